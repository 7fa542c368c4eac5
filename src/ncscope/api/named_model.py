"""Measure a model by its name, on a data set by its name: what the command line asks for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2.functional import to_pil_image

from ncscope.api.files import load_weights
from ncscope.api.model import measure_model
from ncscope.api.result import ModelReport
from ncscope.errors import InputError
from ncscope.models.libraries import NamedModel, open_model
from ncscope.stats.moments import Prior
from ncscope.training.data.catalogue import CATALOGUE, load
from ncscope.training.data.folders import Split, read_folder
from ncscope.training.data.images import Images

Preprocess = Literal["model", "data"]


@dataclass(frozen=True)
class Setting:
    """What a model is measured on, and how.

    Attributes:
        data: A data set of the catalogue, or a folder of images; see `read_folder`.
        split: Which of its images.
        data_folder: Where the files of the catalogue's stored sets are.
        download: Whether data sets and pretrained weights may be fetched.
        preprocess: The model's own preprocessing, or the data set's; None for the model's where
            its library says what it is.
        batch_size: Images a forward pass.
        device: ``cpu``, ``cuda``, or ``auto`` for cuda where there is one.
        workers: Processes that read images ahead.
    """

    data: str
    split: Split = "train"
    data_folder: Path = Path("data")
    download: bool = False
    preprocess: Preprocess | None = None
    batch_size: int = 64
    device: str = "auto"
    workers: int = 0


def measure_named_model(
    name: str,
    setting: Setting,
    *,
    weights: Path | None = None,
    num_classes: int | None = None,
    layers: Sequence[str] | None = None,
    head: str | None = None,
    groups: Sequence[str] | None = None,
    prior: Prior = "empirical",
    weight_decay: float = 0.0,
    pool: bool = False,
) -> ModelReport:
    """Measure neural collapse in a trained classifier of images.

    Args:
        name: ``torchvision:NAME``, ``timm:NAME``, ``hf:NAME``, ``hf:FOLDER``, or a network of
            the catalogue; see `open_model`.
        setting: What on, and how.
        weights: A .safetensors or .pt file with its weights; None for those of its library.
        num_classes: Outputs of a model with weights from a file; None for as many as the data set
            has classes.
        layers: As in `measure_model`, like all below.
        head: Name of its head.
        groups: Groups of metrics of the head's features.
        prior: Class prior.
        weight_decay: Decay on the head.
        pool: Whether feature maps are averaged.

    Raises:
        InputError: A model, data set, weights or device that is not there, or that does not fit.
    """
    device = checked_device(setting.device)
    images, classes, shape = _images(setting)
    content = None if weights is None else load_weights(weights)
    opened = open_model(
        name, num_classes or classes, shape, weights=content, download=setting.download
    )
    counts = torch.bincount(images.labels, minlength=classes) if prior == "uniform" else None
    return measure_model(
        opened.model.to(device),
        _loader(images, opened, setting),
        layers=layers,
        head=head,
        groups=groups,
        prior=prior,
        class_counts=counts,
        weight_decay=weight_decay,
        pool=pool,
    )


def checked_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is cuda where there is one.

    Raises:
        InputError: If torch knows no such device, or has none here.
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


def _images(setting: Setting) -> tuple[Images, int, tuple[int, int, int]]:
    """The images to measure, how many classes they have, and their shape."""
    if setting.data in CATALOGUE:
        known = load(setting.data, setting.data_folder, download=setting.download)
        images = known.train if setting.split == "train" else known.test
        return images, known.num_classes, known.shape
    if not Path(setting.data).is_dir():
        raise InputError(
            expected="a data set of the catalogue, or a folder of images",
            found=repr(setting.data),
            fix=f"pass one of {', '.join(CATALOGUE)}, or check the path",
        )
    images = read_folder(Path(setting.data), setting.split)
    size = images.preprocessing.traits.size
    return images, int(images.labels.max()) + 1, (3, size, size)


def _loader(images: Images, opened: NamedModel, setting: Setting) -> DataLoader[Any]:
    seen = opened.prepared if setting.preprocess != "data" else None
    if seen is None and setting.preprocess == "model":
        fix = "leave --preprocess out"
        found = "none for the catalogue's networks"
        raise InputError(expected="the model's own preprocessing", found=found, fix=fix)
    items = _Inputs(images, seen, opened.input_name)
    return DataLoader(items, setting.batch_size, num_workers=setting.workers)


class _Inputs(Dataset[Any]):
    """Images as the model takes them, with their labels."""

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
