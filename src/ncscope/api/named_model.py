"""Measurement of a model on a data set, both given by name, as on the command line."""

from collections.abc import Sequence
from pathlib import Path

import torch

from ncscope.api.files import load_weights
from ncscope.api.model import measure_model
from ncscope.api.named_images import ImageOptions, checked_device, images_of_split, loader_for
from ncscope.api.result import ModelReport
from ncscope.data.catalogue import CATALOGUE
from ncscope.data.folders import class_names
from ncscope.models.libraries import open_model
from ncscope.probing.provenance import provenance
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
        image_options: Images to measure on, and settings for running the model.
        weights: File with the weights, .safetensors or .pt; None for the weights of the model's
            library.
        num_classes: Number of outputs of a model with weights from a file; by default, the number
            of classes of the data set.
        layers: Layers to measure, as in `measure_model`, like all arguments below.
        head: Name of the classifier head.
        groups: Groups of metrics of the head's features.
        prior: Class prior.
        weight_decay: Decay on the head.
        pool: Average feature maps if True.

    Raises:
        InputError: If the model, data set, weights file or device is missing, or does not fit.
    """
    device = checked_device(image_options.device)
    images, classes, shape = images_of_split(image_options)
    content = None if weights is None else load_weights(weights)
    opened = open_model(
        name, num_classes or classes, shape, weights=content, download=image_options.download
    )
    counts = torch.bincount(images.labels, minlength=classes) if prior == "uniform" else None
    report = measure_model(
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
    data = image_options.data
    report.provenance = provenance(
        model=name,
        weights="" if weights is None else str(weights),
        data=data,
        class_names=() if data in CATALOGUE else tuple(class_names(Path(data))),
        split=image_options.split,
        caller="ncscope measure",
    )
    return report
