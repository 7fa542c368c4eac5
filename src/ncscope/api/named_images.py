"""Images of a data set given by name, prepared for a model that was opened by name."""

import re
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from inspect import isclass, isfunction, signature
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.transforms.v2.functional import to_pil_image

from ncscope.data.catalogue import CATALOGUE, load
from ncscope.data.folders import (
    Split,
    list_classes,
    list_splits,
    prepare_photographs,
    read_folder,
)
from ncscope.data.image_files import choose_split, find_image_files, read_image_files
from ncscope.data.images import ImageData, Images
from ncscope.data.names import check_data
from ncscope.data.preprocessing import Preprocessing
from ncscope.errors import InputError, say_error
from ncscope.labels import IgnoreIndex, fold_names, is_ignored
from ncscope.measurement.batches import prepare_batch, split
from ncscope.measurement.head_classes import HeadClasses
from ncscope.models.evaluation_mode import evaluation_mode, restore_buffers
from ncscope.models.forward import forward
from ncscope.models.libraries import ImageClassifier
from ncscope.models.own_code import explain_errors, is_own_code, open_own
from ncscope.transfer.ranking import hold_out

Shape = tuple[int, int, int]
SplitName = Literal["train", "test", "val", "validation"]


@dataclass(frozen=True)
class ImageOptions:
    """Images to run a model on, and settings for running it.

    Attributes:
        data: A data set of the catalogue, a folder of images as for `read_folder`, or files of many
            images as for `find_image_files`.
        split: Split of the images; not used by functions that take both splits.
        data_folder: Folder of the catalogue's stored sets.
        download: Fetch missing data sets and pretrained weights if True.
        preprocess: ``"model"`` for the preprocessing of the model's library, ``"data"`` for that of
            the data set, or ``FILE.py:NAME`` of a function of the user that makes a tensor of a
            coloured PIL image; None for the first if the library defines one, else the second.
        batch_size: Number of images in a forward pass.
        device: ``cpu``, ``cuda``, or ``auto`` for cuda if available.
        workers: Number of processes that read images ahead.
        image_size: Height and width of the images for the model; None for that of the data set.
        image_key: Column or entry of the images in files; empty for the only one.
        label_key: Column or entry of the labels in files; empty for the only one.
        ignore_index: Labels in files of samples that will be left out, which no class needs to
            have.
    """

    data: str
    split: SplitName = "train"
    data_folder: Path = Path("data")
    download: bool = False
    preprocess: str | None = None
    batch_size: int = 64
    device: str = "auto"
    workers: int = 0
    image_size: int | None = None
    image_key: str = ""
    label_key: str = ""
    ignore_index: IgnoreIndex = None


class ImageSet(NamedTuple):
    """Images of one split.

    Attributes:
        images: Images with their preprocessing.
        num_classes: Number of classes of the data set.
        shape: Channels, height and width of the images after preprocessing.
        class_names: Names of the classes, in the order of the labels; empty for sets of the
            catalogue.
    """

    images: Images
    num_classes: int
    shape: Shape
    class_names: tuple[str, ...] = ()


def read_images(image_options: ImageOptions) -> ImageSet:
    """Read the images of one split.

    Raises:
        InputError: If the data set or the split does not exist, or a file of images is damaged.
    """
    name = image_options.data
    split: Split = "validation" if image_options.split == "val" else image_options.split
    if name in CATALOGUE:
        data = load(name, image_options.data_folder, download=image_options.download)
        images = {"train": data.train, "test": data.test, "validation": data.validation}[split]
        if images is None:
            found, fix = "train and test only", "pass --split train or --split test"
            raise InputError(expected=f"validation images of {name}", found=found, fix=fix)
        return ImageSet(images, data.num_classes, data.shape)
    if found_files := find_image_files(name):
        files = choose_split(found_files, split, name)
        others = [file for part in found_files.values() for file in part if file not in files]
        pictures, names = read_image_files(
            files,
            image_options.image_key,
            image_options.label_key,
            others,
            image_options.ignore_index,
        )
        images = prepare_photographs(pictures)
        kept = images.labels[~is_ignored(images.labels, image_options.ignore_index)]
        classes = len(names) or int(kept.max()) + 1
        return ImageSet(images, classes, _shape(images), names)
    for option in ("image_key", "label_key"):
        if getattr(image_options, option):
            flag = f"--{option.replace('_', '-')}"
            found, fix = f"the folder {name}", f"leave {flag} out"
            raise InputError(expected=f"files of images for {flag}", found=found, fix=fix)
    folder = _find_folder(name)
    if split != "train" and not list_splits(folder):
        fix = "leave --split out to measure all its images"
        raise InputError(expected=f"a folder test or val in {folder}", found="neither", fix=fix)
    images = read_folder(folder, split)
    names = tuple(list_classes(folder))
    return ImageSet(images, len(names), _shape(images), names)


def fit_size(found: ImageSet, size: int | None) -> ImageSet:
    """Return images in a size that is given, or in their own size if they all have one.

    Photographs of all sizes are resized and cropped at the centre, to 224 pixels by default.

    Args:
        found: Images of one split.
        size: Height and width to resize the images to; None for their own.
    """
    images = found.images
    traits = images.preprocessing.traits
    native = _find_size(images)
    size = size or native or traits.size
    traits = replace(traits, size=size, native=native, resized=native not in (None, size))
    images = images.through(Preprocessing(traits))
    return found._replace(images=images, shape=(len(traits.mean), size, size))


def _find_size(images: Images) -> int | None:
    """Return the height and width that all images have; None if they differ."""
    native = images.preprocessing.traits.native
    if native is not None:
        return native
    # Of a set whose images differ in size, a few show it; the others are checked when read.
    step = max(1, len(images) // _SIZES_READ)
    pictures = (images.picture(index) for index in range(0, len(images), step))
    sizes = {picture.size for picture in pictures if isinstance(picture, Image)}
    ((width, height), *others) = sizes
    return width if width == height and not others else None


_SIZES_READ = 16


def number_as_model(found: ImageSet, of_model: Sequence[str]) -> tuple[ImageSet, tuple[str, ...]]:
    """Return images with the labels of the model if the model knows the names of the data set.

    Folders are numbered in the order of their names, and would be compared with other rows of the
    head.

    Args:
        found: Images of one split.
        of_model: Names that the model knows, in the order of the head's rows; empty for none.

    Returns:
        The images, and a sentence if their labels changed.

    Raises:
        InputError: If the model has a name of the data set twice.
    """
    names, known = fold_names(found.class_names), fold_names(of_model)
    labels = found.images.labels
    numbered = (labels >= 0) & (labels < len(names))  # others are marks of samples to leave out
    # A folder without images counts as a class of the data set, and needs none of the model.
    present = {names[label] for label in labels[numbered].unique().tolist()}
    if not present or not present <= set(known):
        return found, ()
    twice = next((name for name in present if known.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            expected="one class of the model for each class of the data set",
            found=f"{twice!r} twice in the model's configuration",
            fix="name as DATA a loader of your own, FILE.py:NAME, with the labels of the model",
        )
    rows = torch.tensor(
        [known.index(name) if name in present else 0 for name in names], device="cpu"
    )
    images = copy(found.images)
    images.labels = torch.where(numbered, rows[labels.clamp(0, len(names) - 1)], labels)
    note = (
        f"labels: the {len(present)} classes numbered by name as the {len(of_model)} of the model"
    )
    changed = not torch.equal(images.labels, labels)
    found = found._replace(images=images, num_classes=len(of_model), class_names=tuple(of_model))
    return found, (note,) if changed else ()


def describe_preprocessing(images: Images) -> str:
    """Describe the preprocessing of images that no library has defined, for a note."""
    traits = images.preprocessing.traits
    size = f"{traits.size} x {traits.size}"
    done = "resized and cropped to" if traits.native is None else "resized to"
    done = "as they are," if traits.native == traits.size else done
    mean, deviation = (
        ", ".join(f"{value:.3g}" for value in values) for values in (traits.mean, traits.deviation)
    )
    return (
        f"images: {done} {size}, less the mean ({mean}), over the deviation ({deviation}); pass "
        "--preprocess FILE.py:FUNCTION if the model was trained on others"
    )


def read_ood_images(data: str, images: Images, image_options: ImageOptions) -> Images:
    """Read images of another data set in the size, channels and normalisation of the first set.

    Args:
        data: A data set of the catalogue, or a folder of images; the split is that of the options.
        images: Images of the first set.
        image_options: Options of the first set.

    Raises:
        InputError: If the data set or the split does not exist.
    """
    others = read_images(replace(image_options, data=data, image_key="", label_key="")).images
    traits = images.preprocessing.traits
    # Photographs are cropped if those of the first set are.
    native = None if traits.native is None else _find_size(others)
    resized = traits.resized or native != traits.native
    return others.through(Preprocessing(replace(traits, native=native, resized=resized)))


def read_image_splits(image_options: ImageOptions, seed: int) -> ImageData:
    """Read both splits of a data set, and its validation images if there are any.

    Args:
        image_options: Options that name the data set.
        seed: Seed for holding out a fifth of each class if there are no test images.

    Raises:
        InputError: If the data set or the split does not exist.
    """
    name = image_options.data
    if name in CATALOGUE:
        return load(name, image_options.data_folder, download=image_options.download)
    splits = {*(find_image_files(name) or list_splits(_find_folder(name)))}

    def read(split: SplitName) -> ImageSet:
        return read_images(replace(image_options, split=split))

    train = read("train")
    if splits & {"test", "validation"}:
        test = read("test")
        classes = max(train.num_classes, test.num_classes)
        both = {"test", "validation"} <= splits
        validation = read("validation").images if both else None
        return ImageData(name, train.images, test.images, classes, train.shape, validation)
    held_out = hold_out(train.images.labels, seed)
    rest, part = (
        train.images.subset(torch.nonzero(mask).flatten()) for mask in (~held_out, held_out)
    )
    return ImageData(name, rest, part, train.num_classes, train.shape)


def _find_folder(data: str) -> Path:
    check_data(data)
    return Path(data)


def _shape(images: Images) -> Shape:
    size = images.preprocessing.traits.size
    return 3, size, size


def make_loader(
    named_model: ImageClassifier,
    images: Images,
    image_options: ImageOptions,
    class_names: Sequence[str] = (),
) -> DataLoader[Any]:
    """Make a loader of the images in their order, prepared as in the model's training.

    Args:
        named_model: The model.
        images: Images to load.
        image_options: Preprocessing, size of batches, and workers.
        class_names: Names of the classes, in the order of the labels, which become ``classes`` of
            the loader.

    Raises:
        InputError: If the preprocessing of the model is requested and it has none, or if that of
            the data set is requested and the model does not run on the first image. Also if a model
            of Hugging Face has none, and nothing is requested; or if a size is requested where the
            preprocessing sets it.
    """
    by_name = image_options.preprocess
    prepare = named_model.prepare if by_name != "data" else None
    if by_name is not None and is_own_code(by_name):
        prepare = open_transform(by_name)
    elif by_name not in (None, "model", "data"):
        fix = "pass model, data, or FILE.py:FUNCTION of your own"
        raise InputError(expected="a kind of preprocessing", found=repr(by_name), fix=fix)
    elif named_model.prepare is None and named_model.input_name and by_name != "data":
        raise InputError(
            expected="an image processor beside the model of Hugging Face",
            found="none",
            fix="add it with processor.save_pretrained(FOLDER); or pass --preprocess data, if the "
            "model takes images of the data set's size and channels",
        )
    elif prepare is None and by_name == "model":
        fix = "leave --preprocess out"
        found = "none for the catalogue's networks and for your own code"
        raise InputError(expected="the model's own preprocessing", found=found, fix=fix)
    if prepare is not None and image_options.image_size is not None:
        found = "preprocessing of its own"
        fix = "leave --image-size out, or pass --preprocess data too"
        raise InputError(expected="images to resize for --image-size", found=found, fix=fix)
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
            message = say_error(error)
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
    loader = _Loader(items, image_options.batch_size, num_workers=image_options.workers)
    loader.classes = tuple(class_names)
    return loader


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
        found = say_error(error)
        fix = "pass --device cpu, or see ncscope doctor"
        raise InputError(expected=f"a device {name}", found=found, fix=fix) from error


def open_transform(name: str) -> Callable[[Image], Tensor]:
    """Open the user's preprocessing: a function of a coloured PIL image, or one that returns it.

    Args:
        name: ``FILE.py:NAME``, as for `open_own`.

    Raises:
        InputError: If there is no such function, or it fails.
    """
    transform = open_own(name)
    if (isfunction(transform) or isclass(transform)) and not signature(transform).parameters:
        with explain_errors(name):
            transform = transform()
    if not callable(transform):
        fix = "name a function that makes a tensor of a PIL image"
        found = type(transform).__name__
        raise InputError(expected=f"a function {name}", found=found, fix=fix)

    def prepare(picture: Image) -> Tensor:
        pixels = transform(picture)
        if not isinstance(pixels, Tensor):
            found = type(pixels).__name__
            fix = "end it with torchvision's ToTensor() or the like"
            raise InputError(expected=f"a tensor from {name}", found=found, fix=fix)
        return pixels

    return prepare


def open_loader(name: str, image_options: ImageOptions) -> Iterable[Any]:
    """Open the user's loader, or a loader of the user's data set.

    Args:
        name: ``FILE.py:NAME``, as for `open_own`, of a loader, a data set, or a function that
            returns one of them; an argument ``split`` gets the split.
        image_options: Split, and batch size and workers for a data set.

    Raises:
        InputError: If the code fails, returns something else, or has no argument for the split.
    """
    value = open_own(name)
    if isfunction(value) or isclass(value):
        known = signature(value).parameters
        arguments = {"split": image_options.split} if "split" in known else {}
        if not arguments and image_options.split != "train":
            fix = "add it, or leave --split out and name a function for each split"
            found = "none"
            raise InputError(expected=f"an argument split of {name}", found=found, fix=fix)
        with explain_errors(name):
            value = value(**arguments)
    if isinstance(value, Dataset) or type(value).__module__.startswith("datasets."):
        loader: Any = _Loader(value, image_options.batch_size, num_workers=image_options.workers)
    else:
        loader = value
    if not (isinstance(loader, Iterable) or hasattr(loader, "__getitem__")):
        fix = "return a DataLoader, a Dataset, or a list of (inputs, labels)"
        raise InputError(expected=f"a loader from {name}", found=type(value).__name__, fix=fix)
    return loader


class _Loader(DataLoader[Any]):
    """Loader that raises errors of input in its processes as such; torch raises their text."""

    classes: tuple[str, ...] = ()

    def __iter__(self) -> Any:
        try:
            yield from super().__iter__()
        except RuntimeError as error:
            last = str(error).strip().rpartition("\n")[2]
            parts = re.fullmatch(
                r"ncscope\.errors\.InputError: expected (.*), found (.*); (.*)", last
            )
            if parts is None:
                raise
            expected, found, fix = parts.groups()
            raise InputError(expected=expected, found=found, fix=fix) from error


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
