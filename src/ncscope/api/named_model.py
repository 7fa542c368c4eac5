"""Measurement of a model on a data set, both given by name, as on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ncscope.api.files import load_weights
from ncscope.api.model import measure_model
from ncscope.api.named_images import (
    ImageOptions,
    find_device,
    make_loader,
    read_class_names,
    read_images,
    read_ood_images,
)
from ncscope.api.result import ModelReport
from ncscope.errors import InputError
from ncscope.measurement.plans import SecondPass
from ncscope.measurement.provenance import provenance
from ncscope.models.libraries import open_model
from ncscope.models.weights import weights_notes
from ncscope.stats.options import Precision, Prior, Redraw


class NamedMeasurement(NamedTuple):
    """Measurement of a model on a data set, and sentences on what was done to its weights."""

    report: ModelReport
    notes: tuple[str, ...]


def measure_named_model(
    name: str,
    image_options: ImageOptions,
    *,
    weights: Path | None = None,
    weights_key: str = "",
    num_classes: int | None = None,
    layers: Sequence[str] | None = None,
    head: str | None = None,
    groups: Sequence[str] | None = None,
    prior: Prior = "empirical",
    weight_decay: float = 0.0,
    pool: bool | None = None,
    baseline: bool | None = False,
    uncertainty: Redraw = False,
    precision: Precision = "float64",
    second_pass: SecondPass = "store",
    ood: str | None = None,
) -> NamedMeasurement:
    """Measure neural collapse in a trained classifier of images.

    Args:
        name: ``torchvision:NAME``, ``timm:NAME``, ``hf:NAME``, ``hf:FOLDER``, or a network of
            the catalogue; see `open_model`.
        image_options: Images to measure on, and settings for running the model.
        weights: File with the weights, or folder, as for `load_weights`; None for the weights of
            the model's library.
        weights_key: Dotted path of the entry of the file that holds the weights.
        num_classes: Number of outputs of a model with weights from a file; by default, the number
            of classes of the data set.
        layers: Layers to measure, as in `measure_model`, like all arguments below.
        head: Name of the classifier head.
        groups: Groups of metrics of the head's features.
        prior: Class prior.
        weight_decay: Decay on the head.
        pool: Average feature maps and sequences if True, flatten them if False.
        baseline: Measure with permuted labels too.
        uncertainty: Standard errors to estimate, if any; see `measure`.
        precision: ``"float64"`` or ``"blocked"``; see `ClassMoments`.
        second_pass: Samples on which the nearest-mean rule decides.
        ood: Data set or folder of images from outside the distribution, of which the same split is
            taken, prepared as the measured images are; None for none.

    Raises:
        InputError: If the model, data set, weights file or device is missing, or does not fit.
    """
    if weights is None and weights_key:
        fix = "name the file that has this entry"
        expected = "--weights with --weights-key"
        raise InputError(expected=expected, found="none", fix=fix)
    device = find_device(image_options.device)
    images, classes, shape = read_images(image_options)
    saved = None if weights is None else load_weights(weights, weights_key)
    opened = open_model(
        name,
        num_classes or classes,
        shape,
        weights=None if saved is None else saved.tensors,
        download=image_options.download,
    )
    outside = None if ood is None else read_ood_images(ood, images, image_options)
    counts = torch.bincount(images.labels, minlength=classes) if prior == "uniform" else None
    report = measure_model(
        opened.model.to(device),
        make_loader(opened, images, image_options),
        layers=layers,
        head=head,
        groups=groups,
        prior=prior,
        class_counts=counts,
        weight_decay=weight_decay,
        pool=pool,
        baseline=baseline,
        uncertainty=uncertainty,
        precision=precision,
        second_pass=second_pass,
        ood=None if outside is None else make_loader(opened, outside, image_options),
    )
    report.provenance = provenance(
        model=name,
        weights="" if saved is None else saved.file,
        data=image_options.data,
        class_names=read_class_names(image_options),
        split=image_options.split,
        caller="ncscope measure",
    )
    fitted = opened.weights
    if saved is None or fitted is None:
        return NamedMeasurement(report, ())
    return NamedMeasurement(report, weights_notes(saved, fitted))
