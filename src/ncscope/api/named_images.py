"""Images of a data set given by name, prepared for a model that was opened by name."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from PIL.Image import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.transforms.v2.functional import to_pil_image

from ncscope.data.catalogue import CATALOGUE, load
from ncscope.data.folders import list_classes, list_splits, read_folder
from ncscope.data.images import ImageData, Images
from ncscope.data.preprocessing import Preprocessing
from ncscope.errors import InputError
from ncscope.measurement.batches import device_of, split
from ncscope.models.forward import forward
from ncscope.models.libraries import NamedModel
from ncscope.models.measuring import kept_buffers, measuring
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


def images_of_split(image_options: ImageOptions) -> tuple[Images, int, Shape]:
    """Return the images of one split, the number of classes, and the images' shape.

    Raises:
        InputError: If the data set or the split does not exist.
    """
    if image_options.data in CATALOGUE:
        data = load(image_options.data, image_options.data_folder, download=image_options.download)
        images = data.train if image_options.split == "train" else data.test
        return images, data.num_classes, data.shape
    folder = _checked_folder(image_options.data)
    if image_options.split == "test" and not list_splits(folder):
        fix = "leave --split out to measure all its images"
        raise InputError(expected=f"a folder test or val in {folder}", found="neither", fix=fix)
    images = read_folder(folder, image_options.split)
    return images, len(list_classes(folder)), _shape(images)


def images_outside(data: str, images: Images, image_options: ImageOptions) -> Images:
    """Return images of another data set in the size, channels and normalisation of given ones.

    Args:
        data: A data set of the catalogue, or a folder of images; the split is that of the options.
        images: Images whose preprocessing is taken.
        image_options: Options of these images.

    Raises:
        InputError: If the data set or the split does not exist.
    """
    others, _, _ = images_of_split(replace(image_options, data=data))
    traits, native = images.preprocessing.traits, others.preprocessing.traits.native
    resized = traits.resized or native != traits.native
    return others.through(Preprocessing(replace(traits, native=native, resized=resized)))


def class_names_of(image_options: ImageOptions) -> tuple[str, ...]:
    """Return the names of the classes of a folder of images; empty for a set of the catalogue."""
    named = image_options.data not in CATALOGUE
    return tuple(list_classes(Path(image_options.data))) if named else ()


def training_and_test_images(image_options: ImageOptions, seed: int) -> ImageData:
    """Return both splits of a data set, and its validation images if there are any.

    Args:
        image_options: Options that name the data set.
        seed: Seed for holding out a fifth of each class if a folder has no test images.

    Raises:
        InputError: If the data set or the split does not exist.
    """
    if image_options.data in CATALOGUE:
        return load(image_options.data, image_options.data_folder, download=image_options.download)
    folder = _checked_folder(image_options.data)
    train = read_folder(folder, "train")
    classes, shape = len(list_classes(folder)), _shape(train)
    splits = list_splits(folder)
    if "test" in splits:
        test = read_folder(folder, "test")
        validation = read_folder(folder, "validation") if "validation" in splits else None
        return ImageData(image_options.data, train, test, classes, shape, validation)
    held_out = hold_out(train.labels, seed)
    kept, aside = (torch.nonzero(mask).flatten() for mask in (~held_out, held_out))
    halves = train.subset(kept), train.subset(aside)
    return ImageData(image_options.data, *halves, classes, shape)


def _checked_folder(data: str) -> Path:
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


def loader_for(opened: NamedModel, images: Images, image_options: ImageOptions) -> DataLoader[Any]:
    """Return a loader of the images in their order, prepared as in the model's training.

    Raises:
        InputError: If the preprocessing of the model is requested and it has none, or if that of
            the data set is requested and the model does not run on the first image. Also if a model
            of Hugging Face has none, and nothing is requested.
    """
    seen = opened.prepared if image_options.preprocess != "data" else None
    if opened.prepared is None and opened.input_name and image_options.preprocess != "data":
        raise InputError(
            expected="an image processor beside the model of Hugging Face",
            found="none",
            fix="add it with processor.save_pretrained(FOLDER); or pass --preprocess data, if the "
            "model takes images of the data set's size and channels",
        )
    if seen is None and image_options.preprocess == "model":
        fix = "leave --preprocess out"
        found = "none for the catalogue's networks"
        raise InputError(expected="the model's own preprocessing", found=found, fix=fix)
    plain = seen is None and opened.input_name is None
    items: Dataset[Any] = images if plain else _Inputs(images, seen, opened.input_name)
    if seen is None and (opened.prepared or opened.input_name):
        own = opened.prepared is not None
        _check_taken(opened.model, items[0], images[0][0], own_preprocessing=own)
    return DataLoader(items, image_options.batch_size, num_workers=image_options.workers)


def _check_taken(
    model: nn.Module, item: Any, pixels: Float[Tensor, "c h w"], *, own_preprocessing: bool
) -> None:
    """Check that a model runs on an image that was not prepared for it, by running the model."""
    inputs, _ = split(default_collate([item]), device_of(model))
    try:
        with measuring(model), kept_buffers(model):
            forward(model, inputs)
    except (RuntimeError, ValueError, AssertionError) as error:
        message = " ".join(str(error).split())[:200]
        fix = "leave --preprocess out, to use the model's own preprocessing"
        if not own_preprocessing:
            fix = (
                "write the image processor of the model's training beside the model, with "
                "processor.save_pretrained(FOLDER), and leave --preprocess out"
            )
        raise InputError(
            expected="images that fit the input",
            found=f"{' x '.join(map(str, pixels.shape))} with --preprocess data: {message}",
            fix=fix,
        ) from error


def checked_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is cuda if available, else the CPU.

    Raises:
        InputError: If torch does not know the device, or this machine lacks it.
    """
    chosen = name
    if name == "auto":
        chosen = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=chosen).device
    except (RuntimeError, AssertionError) as error:
        found = " ".join(str(error).split())[:120]
        fix = "pass --device cpu, or see ncscope doctor"
        raise InputError(expected=f"a device {name}", found=found, fix=fix) from error


class _Inputs(Dataset[Any]):
    """Images in the form that the model takes, with their labels."""

    def __init__(
        self, images: Images, prepared: Callable[[Image], Tensor] | None, name: str | None
    ) -> None:
        self.images, self.prepared, self.name = images, prepared, name

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        pixels, label = self._pixels(index), int(self.images.labels[index])
        return (pixels, label) if self.name is None else {self.name: pixels, "labels": label}

    def _pixels(self, index: int) -> Tensor:
        if self.prepared is None:
            return self.images[index][0]
        picture = self.images.picture(index)
        whole = picture if isinstance(picture, Image) else to_pil_image(picture)
        return self.prepared(whole.convert("RGB"))
