"""Measurement of a model on a data set, both given by name, as on the command line."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ncscope.api.files import load_weights
from ncscope.api.model import measure_model
from ncscope.api.named_images import (
    ImageOptions,
    describe_preprocessing,
    find_device,
    fit_size,
    make_loader,
    number_as_model,
    open_loader,
    read_images,
    read_ood_images,
)
from ncscope.api.result import ModelReport
from ncscope.data.catalogue import CATALOGUE
from ncscope.data.image_files import find_image_files
from ncscope.errors import InputError
from ncscope.files import is_file, is_folder
from ncscope.labels import is_ignored
from ncscope.measurement.head_classes import find_model_names
from ncscope.measurement.options import Options
from ncscope.measurement.provenance import record_provenance
from ncscope.models.libraries import ModelRequest, open_model
from ncscope.models.networks.catalogue import NAMES
from ncscope.models.own_code import LIBRARIES, explain_errors, is_own_code, parse_arguments
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
    model_arguments: Sequence[str] = (),
) -> tuple[ModelReport, tuple[str, ...]]:
    """Measure neural collapse in a trained classifier.

    Args:
        name: ``torchvision:NAME``, ``timm:NAME``, ``hf:NAME``, ``hf:FOLDER``, a network of the
            catalogue, or the user's code; see `open_model`.
        image_options: Images to measure on, and settings for running the model. The data may also
            be a loader of the user's code; see `open_loader`.
        options: Options of the measurement; the class counts are those of the images.
        weights: File with the weights, or folder, as for `load_weights`; None for the weights of
            the model's library, or those that the user's code gives the model.
        weights_key: Dotted path of the entry of the file that holds the weights.
        num_classes: Number of outputs of a model with weights from a file; by default, the number
            of classes of the data set.
        ood: Data set or folder of images from outside the distribution, of which the same split is
            taken, prepared as the measured images are; None for none. A loader of the user's code
            if the data are one.
        model_arguments: Pairs ``key=value`` for a class or function in the user's code.

    Returns:
        The report, and sentences on what was done to the model's weights and to the images; those
        on the images are notes of the report too.

    Raises:
        InputError: If the model, data set, weights file or device is missing, or does not fit; or
            if the user's code fails.
    """
    image_options = replace(image_options, ignore_index=options.ignore_index)
    data = image_options.data
    _check_order(name, data, weights)
    if weights is None and weights_key:
        fix = "name the file that has this entry"
        expected = "--weights with --weights-key"
        raise InputError(expected=expected, found="none", fix=fix)
    is_there = is_file(Path(data)) or is_folder(Path(data))
    is_own, loads = is_own_code(name), is_own_code(data) and not is_there
    if is_own and num_classes is not None:
        found, fix = f"{name}, which has its own arguments", "pass it with --model-arg"
        raise InputError(expected="a named model for --num-classes", found=found, fix=fix)
    device = find_device(image_options.device)
    arguments = parse_arguments(model_arguments)
    images = None
    if not loads:
        images = read_images(image_options)
        if is_own or image_options.image_size is not None:
            images = fit_size(images, image_options.image_size)
    saved = None if weights is None else load_weights(weights, weights_key)
    opened = open_model(
        ModelRequest(
            name,
            num_classes or (None if images is None else images.num_classes),
            None if images is None else images.shape,
            weights=None if saved is None else saved.tensors,
            download=image_options.download,
            arguments=arguments,
        )
    )
    notes: list[str] = []
    outside: Any = None
    if images is None:
        loader = open_loader(data, image_options)
        outside = None if ood is None else open_loader(ood, image_options)
    else:
        if options.class_names is None:
            images, renumbered = number_as_model(images, find_model_names(opened.model))
            notes += renumbered
        loader = make_loader(opened, images.images, image_options, images.class_names)
        if ood is not None:
            others = read_ood_images(ood, images.images, image_options)
            outside = make_loader(opened, others, image_options)
        if is_own and image_options.preprocess in (None, "data"):
            notes.append(describe_preprocessing(images.images))
        if options.prior == "uniform":
            labels = images.images.labels
            labels = labels[~is_ignored(labels, options.ignore_index)]
            counts = torch.bincount(labels, minlength=images.num_classes)
            options = replace(options, class_counts=counts)
    if is_own and saved is None:
        notes.append(f"weights: those that {name} gives the model, without --weights")
    own = [each for each in (name, data, image_options.preprocess or "") if is_own_code(each)]
    with explain_errors(
        *own,
        fix="correct it there, or prepare the images as the model takes them, with --image-size or "
        "--preprocess FILE.py:FUNCTION",
    ):
        report = measure_model(opened.model.to(device), loader, options, ood=outside)
    class_names = report.class_names
    record = report.model_record
    alone = options.layers is None and len(record.layers) == 1
    no_blocks = "layers: no repeated blocks found; --layers 'NAME.*' measures other layers too"
    record = record.with_last(notes=(*notes, *record.last.notes, *((no_blocks,) if alone else ())))
    report = ModelReport(record, {n: r.require_statistics() for n, r in report.layers.items()})
    report.class_names = class_names
    report.provenance = record_provenance(
        model=name,
        weights="" if saved is None else saved.file,
        data=data,
        class_names=class_names,
        split=image_options.split,
        caller="ncscope measure-model",
    )
    if saved is not None and opened.weights is not None:
        notes = [*weights_notes(saved, opened.weights), *notes]
    return report, tuple(notes)


def _check_order(name: str, data: str, weights: Path | None) -> None:
    """Refuse DATA before MODEL."""
    is_data = name in CATALOGUE or is_folder(Path(name)) or bool(find_image_files(name))
    library = data.partition(":")[0] in LIBRARIES
    is_model = library or data in NAMES or (is_own_code(data) and not is_own_code(name))
    if is_data and is_model:
        with_weights = "" if weights is None else f" --weights {weights}"
        raise InputError(
            expected="MODEL before DATA",
            found=f"the data {name} first",
            fix=f"ncscope measure-model {data} {name}{with_weights}",
        )
