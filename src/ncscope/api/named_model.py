"""Measure a model by its name, on a data set by its name: what the command line asks for."""

from collections.abc import Sequence
from pathlib import Path

import torch

from ncscope.api.files import load_weights
from ncscope.api.model import measure_model
from ncscope.api.named_images import ImageOptions, checked_device, images_of_split, loader_for
from ncscope.api.result import ModelReport
from ncscope.models.libraries import open_model
from ncscope.stats.moments import Prior


def measure_named_model(
    name: str,
    image_options: ImageOptions,
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
        image_options: Images to measure on, and how to run the model.
        weights: A .safetensors or .pt file with its weights; None for those of its library.
        num_classes: Outputs of a model with weights from a file; None for as many as the data set
            has classes.
        layers: Layers, as in `measure_model`; likewise all arguments below.
        head: Name of its head.
        groups: Groups of metrics of the head's features.
        prior: Class prior.
        weight_decay: Decay on the head.
        pool: Average feature maps if True.

    Raises:
        InputError: A model, data set, weights or device that is not there, or that does not fit.
    """
    device = checked_device(image_options.device)
    images, classes, shape = images_of_split(image_options)
    content = None if weights is None else load_weights(weights)
    opened = open_model(
        name, num_classes or classes, shape, weights=content, download=image_options.download
    )
    counts = torch.bincount(images.labels, minlength=classes) if prior == "uniform" else None
    return measure_model(
        opened.model.to(device),
        loader_for(opened, images, image_options),
        layers=layers,
        head=head,
        groups=groups,
        prior=prior,
        class_counts=counts,
        weight_decay=weight_decay,
        pool=pool,
    )
