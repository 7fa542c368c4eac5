"""Measurement of a model on a data set, both given by name, as on the command line."""

from dataclasses import replace
from pathlib import Path

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
from ncscope.labels import is_ignored
from ncscope.measurement.options import Options
from ncscope.measurement.provenance import record_provenance
from ncscope.models.libraries import open_model
from ncscope.models.weights import weights_notes


def measure_named_model(
    name: str,
    image_options: ImageOptions,
    options: Options,
    *,
    weights: Path | None = None,
    weights_key: str = "",
    num_classes: int | None = None,
    ood: str | None = None,
) -> tuple[ModelReport, tuple[str, ...]]:
    """Measure neural collapse in a trained classifier of images.

    Args:
        name: ``torchvision:NAME``, ``timm:NAME``, ``hf:NAME``, ``hf:FOLDER``, or a network of
            the catalogue; see `open_model`.
        image_options: Images to measure on, and settings for running the model.
        options: Options of the measurement; the class counts are those of the images.
        weights: File with the weights, or folder, as for `load_weights`; None for the weights of
            the model's library.
        weights_key: Dotted path of the entry of the file that holds the weights.
        num_classes: Number of outputs of a model with weights from a file; by default, the number
            of classes of the data set.
        ood: Data set or folder of images from outside the distribution, of which the same split is
            taken, prepared as the measured images are; None for none.

    Returns:
        The report, and sentences on what was done to the model's weights.

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
    counts = None
    if options.prior == "uniform":
        labels = images.labels[~is_ignored(images.labels, options.ignore_index)]
        counts = torch.bincount(labels, minlength=classes)
    report = measure_model(
        opened.model.to(device),
        make_loader(opened, images, image_options),
        replace(options, class_counts=counts),
        ood=None if outside is None else make_loader(opened, outside, image_options),
    )
    report.provenance = record_provenance(
        model=name,
        weights="" if saved is None else saved.file,
        data=image_options.data,
        class_names=read_class_names(image_options) or report.class_names,
        split=image_options.split,
        caller="ncscope measure-model",
    )
    fitted = opened.weights
    if saved is None or fitted is None:
        return report, ()
    return report, weights_notes(saved, fitted)
