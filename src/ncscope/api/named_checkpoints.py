"""Ranking of checkpoints on a data set, both given by name, as on the command line."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ncscope.api.files import load_weights
from ncscope.api.named_images import (
    ImageOptions,
    find_device,
    make_loader,
    read_image_splits,
    read_images,
)
from ncscope.api.transfer import OnStep, TransferReport, check_distinct, judge_baselines
from ncscope.data.downstream_sets import prepare_like
from ncscope.data.images import ImageData, Images
from ncscope.errors import InputError
from ncscope.models.libraries import ImageClassifier, ModelRequest, open_model
from ncscope.models.weights import weights_notes
from ncscope.transfer.baselines import baselines_of, read_results
from ncscope.transfer.features import head_moments, head_readings
from ncscope.transfer.probes.linear_probe import check_measure
from ncscope.transfer.ranking import name_checkpoint_in_errors, score_checkpoint
from ncscope.transfer.records import rank_results
from ncscope.transfer.samples import check_downstream
from ncscope.transfer.scores.all_scores import SourceOutputs, check_source_outputs


def rank_models(
    names: Sequence[str],
    image_options: ImageOptions,
    *,
    pretraining: str | None = None,
    measure: str | None = None,
    weights_key: str = "",
    expensive: bool | None = None,
    results: str | Path | None = None,
    left_out: str | None = None,
    seed: int = 0,
    on_step: OnStep = lambda part, done, total: None,
) -> TransferReport:
    """Rank classifiers of images by how well their features transfer to a data set.

    The probe does not use the heads of the models: a model may have been trained on other classes.
    LEEP and NCE read the predictions of the head, if there is one. The scores and the probe use
    training and validation images; the accuracy is measured on held-out images.

    Args:
        names: Names of models as `open_model` takes them. An @ and a file of weights may follow a
            name, as in ``small-resnet@run.pt``; not after a model of Hugging Face, whose weights
            lie in its folder.
        image_options: Data set, of which both splits are used, and settings for running the models.
        pretraining: Data set that the models were trained on, by name or as a folder, to measure
            VCI and the rival scores there too. All images are then prepared for the catalogue's
            networks as the images of this set.
        measure: ``"top-1"`` or ``"mean per class"``; None for the customary accuracy of the data
            set.
        weights_key: Dotted path of the entry of every weights file that holds the weights.
        expensive: Request for NLEEP and PARC, as for `rank_checkpoints`.
        results: CSV file of accuracies on other sets, as for `read_results`, with the names of the
            checkpoints as models.
        left_out: Set of the results that is not counted; by default the one with the name of the
            data set.
        seed: Seed of validation samples, and of held-out samples if the data set has none.
        on_step: Function called after each batch, and before each probe.

    Raises:
        InputError: If a model, data set, weights file or device is missing, or does not fit.

    Cost: for each model, a forward pass over all images and a few fits of logistic regression.
    The features of one model are in memory at a time.
    """
    check_distinct(names)
    checkpoints = {name: _split_checkpoint_name(name) for name in names}
    table = None if results is None else read_results(results)
    baselines = {} if table is None else baselines_of(table, names, left_out or image_options.data)
    data = read_image_splits(image_options, seed)
    source = None
    if pretraining is not None:
        options = replace(image_options, data=pretraining, split="train")
        images, classes, shape, _ = read_images(options)
        source = ImageData(pretraining, images, images, classes, shape)
    accuracy = check_measure(measure or data.measure)
    image_sets = [*_parts(data).values(), *([source.train] if source else [])]
    batches = sum(-(-len(images) // image_options.batch_size) for images in image_sets)
    done, total = 0, len(names) * batches

    def start(part: str) -> Callable[[], None]:
        """Report that a part begins; return a function to call after each of its batches."""

        def count_batch() -> None:
            nonlocal done
            done += 1
            on_step(part, done, total)

        on_step(part, done, total)
        return count_batch

    notes: list[str] = []
    ranks = []
    for name, (model, file) in checkpoints.items():
        with name_checkpoint_in_errors(name):
            device = find_device(image_options.device)
            saved = None if file is None else load_weights(file, weights_key)
            named_model = open_model(
                ModelRequest(
                    model,
                    None,
                    (source or data).shape,
                    weights=None if saved is None else saved.tensors,
                    download=image_options.download,
                    weights_from=f"{model}@FILE",
                    trained_on="--pretraining" if source is None else None,
                )
            )
            if saved is not None and named_model.weights is not None:
                notes += [f"{name}: {note}" for note in weights_notes(saved, named_model.weights)]
            del saved  # tensors as large as the model
            named_model.model.to(device)
            size = sum(weight.numel() for weight in named_model.model.parameters())
            inputs = _measure_images(name, named_model, data, source, image_options, device, start)
            del named_model  # the probe needs the memory that the model takes
            start(f"{name}: probe")
            ranks.append(
                score_checkpoint(
                    name,
                    **inputs,
                    baselines={"parameters": float(size), **baselines.get(name, {})},
                    expensive=expensive,
                    measure=accuracy,
                    seed=seed,
                )
            )
            del inputs  # before the features of the next model
    facts: dict[str, str | int] = {"data": data.name}
    facts |= {part: len(images) for part, images in _parts(data).items()}
    facts |= {} if source is None else {"pretraining": source.name}
    facts |= {"seed": seed}
    ranking = rank_results(ranks, accuracy, seed)
    return TransferReport(ranking, facts, tuple(notes), judge_baselines(table, seed))


def _split_checkpoint_name(name: str) -> tuple[str, Path | None]:
    """Split a name into the model and its file of weights, None for those of the library.

    Args:
        name: For example ``timm:resnet18``, ``small-resnet@run.pt`` or ``hf:my-vit``.

    Example:
        >>> _split_checkpoint_name("timm:resnet18")
        ('timm:resnet18', None)
    """
    model, at, file = name.partition("@")
    if not at or name.startswith("hf:"):  # the name of a folder may contain an @
        return name, None
    if not (file and Path(file).exists()):
        found, fix = f"nothing at {file or 'the @'}", "check the path"
        raise InputError(expected=f"a file with weights of {model}", found=found, fix=fix)
    return model, Path(file)


def _measure_images(
    name: str,
    named_model: ImageClassifier,
    data: ImageData,
    source: ImageData | None,
    image_options: ImageOptions,
    device: torch.device,
    start: Callable[[str], Callable[[], None]],
) -> dict[str, Any]:
    """Return a checkpoint's features and outputs for all images, for `score_checkpoint`.

    Args:
        name: Name of the checkpoint, for the progress.
        named_model: Model, on the device.
        data: Downstream set.
        source: Set that the model was trained on, if known.
        image_options: Settings for running the model.
        device: Device of the features.
        start: Function that reports the beginning of a part, and returns one for its batches.
    """
    # A library prepares the images for its model; other networks see them as those of training.
    prepares = named_model.prepare is not None
    images_of_model = data if prepares or source is None else prepare_like(data, source)
    inputs: dict[str, Any] = {}
    outputs: list[SourceOutputs | None] = []
    for part, images in _parts(images_of_model).items():
        on_batch = start(f"{name}: {part} images")
        loader = make_loader(named_model, images, image_options)
        features, labels, rows = head_readings(
            named_model.model, loader, has_head=named_model.has_head, on_batch=on_batch
        )
        inputs[part] = check_downstream(features.to(device), labels.to(device))
        if part != "test":
            outputs.append(None if rows is None else check_source_outputs(rows, labels.to(device)))
    complete = [output for output in outputs if output is not None]
    inputs["source"] = None
    if len(complete) == len(outputs):
        predictions = torch.cat([each.predictions for each in complete])
        parts = [each.probabilities for each in complete if each.probabilities is not None]
        inputs["source"] = SourceOutputs(predictions, torch.cat(parts))
    if source is not None:
        on_batch = start(f"{name}: pretraining images")
        inputs["pretraining"] = head_moments(
            named_model.model,
            make_loader(named_model, source.train, image_options),
            source.num_classes,
            has_head=named_model.has_head,
            on_batch=on_batch,
        )
    return inputs


def _parts(data: ImageData) -> dict[str, Images]:
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    return {part: images for part, images in parts.items() if images is not None}
