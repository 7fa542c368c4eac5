"""Images of a data set given by name, prepared for a model that was opened by name."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.transforms.v2.functional import to_pil_image

from ncscope.data.catalogue import CATALOGUE, load
from ncscope.data.folders import list_classes, list_splits, read_folder
from ncscope.data.images import ImageData, Images
from ncscope.data.preprocessing import Preprocessing
from ncscope.errors import InputError
from ncscope.labels import HeadClasses
from ncscope.measurement.batches import prepare_batch, split
from ncscope.models.evaluation_mode import evaluation_mode, restore_buffers
from ncscope.models.forward import forward
from ncscope.models.libraries import ImageClassifier
from ncscope.transfer.ranking import hold_out

Preprocess = Literal["model", "data"]
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class ImageOptions:
    """Images to run a model on, and settings for running it.

    Attributes:
        data: A data set of the catalogue, or a folder of images; see `read_folder`.
        split: Split of the images; not used by functions that take both splits.
        data_folder: Folder of the catalogue's stored sets.
        download: Fetch missing data sets and pretrained weights if True.
        preprocess: ``"model"`` for the preprocessing of the model's library, ``"data"`` for that of
            the data set; None for the former if the library defines one, else the latter.
        batch_size: Number of images in a forward pass.
        device: ``cpu``, ``cuda``, or ``auto`` for cuda if available.
        workers: Number of processes that read images ahead.
    """

    data: str
    split: Literal["train", "test"] = "train"
    data_folder: Path = Path("data")
    download: bool = False
    preprocess: Preprocess | None = None
    batch_size: int = 64
    device: str = "auto"
    workers: int = 0


def read_images(image_options: ImageOptions) -> tuple[Images, int, Shape]:
    """Read the images of one split; return them, the number of classes, and their shape.

    Raises:
        InputError: If the data set or the split does not exist.
    """
    if image_options.data in CATALOGUE:
        data = load(image_options.data, image_options.data_folder, download=image_options.download)
        images = data.train if image_options.split == "train" else data.test
        return images, data.num_classes, data.shape
    folder = _find_folder(image_options.data)
    if image_options.split == "test" and not list_splits(folder):
        fix = "leave --split out to measure all its images"
        raise InputError(expected=f"a folder test or val in {folder}", found="neither", fix=fix)
    images = read_folder(folder, image_options.split)
    return images, len(list_classes(folder)), _shape(images)


def read_ood_images(data: str, images: Images, image_options: ImageOptions) -> Images:
    """Read images of another data set in the size, channels and normalisation of the first set.

    Args:
        data: A data set of the catalogue, or a folder of images; the split is that of the options.
        images: Images of the first set.
        image_options: Options of the first set.

    Raises:
        InputError: If the data set or the split does not exist.
    """
    others, _, _ = read_images(replace(image_options, data=data))
    traits, native = images.preprocessing.traits, others.preprocessing.traits.native
    resized = traits.resized or native != traits.native
    return others.through(Preprocessing(replace(traits, native=native, resized=resized)))


def read_class_names(image_options: ImageOptions) -> tuple[str, ...]:
    """Read the names of the classes of a folder of images; empty for a set of the catalogue."""
    if image_options.data in CATALOGUE:
        return ()
    return tuple(list_classes(Path(image_options.data)))


def read_image_splits(image_options: ImageOptions, seed: int) -> ImageData:
    """Read both splits of a data set, and its validation images if there are any.

    Args:
        image_options: Options that name the data set.
        seed: Seed for holding out a fifth of each class if a folder has no test images.

    Raises:
        InputError: If the data set or the split does not exist.
    """
    if image_options.data in CATALOGUE:
        return load(image_options.data, image_options.data_folder, download=image_options.download)
    folder = _find_folder(image_options.data)
    train = read_folder(folder, "train")
    classes, shape = len(list_classes(folder)), _shape(train)
    splits = list_splits(folder)
    if "test" in splits:
        test = read_folder(folder, "test")
        validation = read_folder(folder, "validation") if "validation" in splits else None
        return ImageData(image_options.data, train, test, classes, shape, validation)
    held_out = hold_out(train.labels, seed)
    rest, test = (train.subset(torch.nonzero(mask).flatten()) for mask in (~held_out, held_out))
    return ImageData(image_options.data, rest, test, classes, shape)


def _find_folder(data: str) -> Path:
    if not Path(data).is_dir():
        raise InputError(
            expected="a data set of the catalogue, or a folder of images",
            found=repr(data),
            fix=f"pass one of {', '.join(CATALOGUE)}, or check the path",
        )
    return Path(data)


def _shape(images: Images) -> Shape:
    size = images.preprocessing.traits.size
    return 3, size, size


def make_loader(
    named_model: ImageClassifier, images: Images, image_options: ImageOptions
) -> DataLoader[Any]:
    """Make a loader of the images in their order, prepared as in the model's training.

    Raises:
        InputError: If the preprocessing of the model is requested and it has none, or if that of
            the data set is requested and the model does not run on the first image. Also if a model
            of Hugging Face has none, and nothing is requested.
    """
    prepare = named_model.prepare if image_options.preprocess != "data" else None
    if (
        named_model.prepare is None
        and named_model.input_name
        and image_options.preprocess != "data"
    ):
        raise InputError(
            expected="an image processor beside the model of Hugging Face",
            found="none",
            fix="add it with processor.save_pretrained(FOLDER); or pass --preprocess data, if the "
            "model takes images of the data set's size and channels",
        )
    if prepare is None and image_options.preprocess == "model":
        fix = "leave --preprocess out"
        found = "none for the catalogue's networks"
        raise InputError(expected="the model's own preprocessing", found=found, fix=fix)
    plain = prepare is None and named_model.input_name is None
    items: Dataset[Any] = images if plain else _Inputs(images, prepare, named_model.input_name)
    if prepare is None and (named_model.prepare or named_model.input_name):
        # Only a forward pass tells whether the model takes images that were not made for it. Its
        # own error on the first batch would not say what to do.
        model = named_model.model
        inputs, _ = prepare_batch(split(default_collate([items[0]]), model), model, HeadClasses())
        try:
            with evaluation_mode(model), restore_buffers(model):
                forward(model, inputs)
        except (RuntimeError, ValueError, AssertionError) as error:
            message = " ".join(str(error).split())[:200]
            size = " x ".join(map(str, images[0][0].shape))
            fix = "leave --preprocess out, to use the model's own preprocessing"
            if named_model.prepare is None:
                fix = (
                    "write the image processor of the model's training beside the model, with "
                    "processor.save_pretrained(FOLDER), and leave --preprocess out"
                )
            raise InputError(
                expected="images that fit the input",
                found=f"{size} with --preprocess data: {message}",
                fix=fix,
            ) from error
    return DataLoader(items, image_options.batch_size, num_workers=image_options.workers)


def find_device(name: str) -> torch.device:
    """Find the device of a name; ``auto`` is cuda if available, else the CPU.

    Raises:
        InputError: If torch does not know the device, or this machine lacks it.
    """
    chosen = name
    if name == "auto":
        chosen = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        # torch.device takes the names of devices that this machine lacks; an allocation does not.
        return torch.empty(0, device=chosen).device
    except (RuntimeError, AssertionError) as error:
        found = " ".join(str(error).split())[:120]
        fix = "pass --device cpu, or see ncscope doctor"
        raise InputError(expected=f"a device {name}", found=found, fix=fix) from error


class _Inputs(Dataset[Any]):
    """Images in the form that the model takes, with their labels."""

    def __init__(
        self, images: Images, prepare: Callable[[Image], Tensor] | None, input_name: str | None
    ) -> None:
        self.images, self.prepare, self.input_name = images, prepare, input_name

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        if self.prepare is None:
            pixels = self.images[index][0]
        else:
            picture = self.images.picture(index)
            image = picture if isinstance(picture, Image) else to_pil_image(picture)
            pixels = self.prepare(image.convert("RGB"))
        label = int(self.images.labels[index])
        if self.input_name is None:
            return pixels, label
        return {self.input_name: pixels, "labels": label}
