"""Ranking of checkpoints on a data set, both given by name, as on the command line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ncscope.api.files import load_weights
from ncscope.api.named_images import (
    ImageOptions,
    checked_device,
    images_of_split,
    loader_for,
    training_and_test_images,
)
from ncscope.api.transfer import KnownResults, OnStep, TransferReport, check_distinct
from ncscope.data.downstream_sets import prepare_like
from ncscope.data.images import ImageData, Images
from ncscope.errors import InputError
from ncscope.models.libraries import NamedModel, open_model
from ncscope.models.weights import weights_notes
from ncscope.transfer.features import head_moments, head_readings
from ncscope.transfer.inputs import checked_labelled
from ncscope.transfer.probes.probe import Measure, checked_measure
from ncscope.transfer.ranking import naming_checkpoint, ranked
from ncscope.transfer.records import Ranked, ranking_of
from ncscope.transfer.scoring import SourceOutputs, checked_source


@dataclass(frozen=True)
class CheckpointSource:
    """Name of a model, split into the model and its weights file.

    Attributes:
        name: Name as the user gave it.
        model: Model that `open_model` returned.
        weights: File with the weights, or folder, as for `load_weights`; None for the weights of
            the model's library.
    """

    name: str
    model: str
    weights: Path | None


def _parse_checkpoint_name(name: str) -> CheckpointSource:
    """Parse a model's name, which may be followed by an @ and a file of weights.

    Models of Hugging Face have their weights in their folder, whose name may contain an @.

    Args:
        name: For example ``timm:resnet18``, ``small-resnet@run.pt`` or ``hf:my-vit``.

    Raises:
        InputError: If the file does not exist.

    Example:
        >>> _parse_checkpoint_name("timm:resnet18").weights is None
        True
    """
    model, at, file = name.partition("@")
    if not at or name.startswith("hf:"):
        return CheckpointSource(name, name, None)
    if not (file and Path(file).exists()):
        found, fix = f"nothing at {file or 'the @'}", "check the path"
        raise InputError(expected=f"a file with weights of {model}", found=found, fix=fix)
    return CheckpointSource(name, model, Path(file))


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
        names: Names as `_parse_checkpoint_name` takes them.
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
    checkpoints = [_parse_checkpoint_name(name) for name in names]
    known = KnownResults.read(results, names, left_out or image_options.data)
    data = training_and_test_images(image_options, seed)
    source = None if pretraining is None else _pretraining(image_options, pretraining)
    accuracy = checked_measure(measure or data.measure)
    trial = _Trial(image_options, data, source, accuracy, weights_key, seed, expensive, known)
    steps = _Steps(len(names) * trial.batches, on_step)
    ranks = []
    for checkpoint in checkpoints:
        with naming_checkpoint(checkpoint.name):
            ranks.append(trial.ranked(checkpoint, steps))
    ranking = ranking_of(ranks, accuracy, seed)
    return TransferReport(ranking, trial.facts, tuple(trial.notes), known.static(seed))


def _pretraining(image_options: ImageOptions, name: str) -> ImageData:
    images, classes, shape = images_of_split(replace(image_options, data=name, split="train"))
    return ImageData(name, images, images, classes, shape)


class _Steps:
    """Count of batches done, reported after each batch."""

    def __init__(self, total: int, on_step: OnStep) -> None:
        self.done, self.total, self._on_step = 0, total, on_step

    def start(self, part: str) -> Callable[[], None]:
        """Report that a part begins; return a function to call after each of its batches."""
        self._on_step(part, self.done, self.total)

        def batch() -> None:
            self.done += 1
            self._on_step(part, self.done, self.total)

        return batch


@dataclass(frozen=True)
class _Trial:
    """Settings and samples that are the same for every checkpoint."""

    image_options: ImageOptions
    data: ImageData
    source: ImageData | None
    measure: Measure
    weights_key: str
    seed: int
    expensive: bool | None
    known: KnownResults
    notes: list[str] = field(default_factory=list)

    @property
    def batches(self) -> int:
        """Return the number of batches that run through each checkpoint."""
        sets = [*_parts(self.data).values(), *([self.source.train] if self.source else [])]
        return sum(-(-len(images) // self.image_options.batch_size) for images in sets)

    @property
    def facts(self) -> dict[str, str | int]:
        sizes = {part: len(images) for part, images in _parts(self.data).items()}
        source = {} if self.source is None else {"pretraining": self.source.name}
        return {"data": self.data.name, **sizes, **source, "seed": self.seed}

    def ranked(self, checkpoint: CheckpointSource, steps: _Steps) -> Ranked:
        given = self._features(checkpoint, steps)  # frees the model before the probe
        steps.start(f"{checkpoint.name}: probe")
        given |= {"expensive": self.expensive, "measure": self.measure, "seed": self.seed}
        return ranked(checkpoint.name, **given)

    def _features(self, checkpoint: CheckpointSource, steps: _Steps) -> dict[str, Any]:
        device = checked_device(self.image_options.device)
        opened = self._opened(checkpoint)
        opened.model.to(device)
        size = sum(weight.numel() for weight in opened.model.parameters())
        table = self.known.baselines.get(checkpoint.name, {})
        given: dict[str, Any] = {"baselines": {"parameters": float(size), **table}}
        outputs: list[SourceOutputs | None] = []
        for part, images in _parts(self._seen_by(opened)).items():
            on_batch = steps.start(f"{checkpoint.name}: {part} images")
            loader = loader_for(opened, images, self.image_options)
            features, labels, rows = head_readings(
                opened.model, loader, has_head=opened.has_head, on_batch=on_batch
            )
            given[part] = checked_labelled(features.to(device), labels.to(device))
            if part != "test":
                outputs.append(None if rows is None else checked_source(rows, labels.to(device)))
        given["source"] = _joined(outputs)
        if self.source is not None:
            on_batch = steps.start(f"{checkpoint.name}: pretraining images")
            given["pretraining"] = head_moments(
                opened.model,
                loader_for(opened, self.source.train, self.image_options),
                self.source.num_classes,
                has_head=opened.has_head,
                on_batch=on_batch,
            )
        return given

    def _opened(self, checkpoint: CheckpointSource) -> NamedModel:
        saved = None
        if checkpoint.weights is not None:
            saved = load_weights(checkpoint.weights, self.weights_key)
        opened = open_model(
            checkpoint.model,
            None,
            (self.source or self.data).shape,
            weights=None if saved is None else saved.tensors,
            download=self.image_options.download,
            weights_from=f"{checkpoint.model}@FILE",
            trained_on="--pretraining" if self.source is None else None,
        )
        if saved is not None and opened.weights is not None:
            notes = weights_notes(saved, opened.weights)
            self.notes.extend(f"{checkpoint.name}: {note}" for note in notes)
        return opened

    def _seen_by(self, opened: NamedModel) -> ImageData:
        """Return the images, prepared as in the model's training unless its library does that."""
        if opened.prepared is not None or self.source is None:
            return self.data
        return prepare_like(self.data, self.source)


def _parts(data: ImageData) -> dict[str, Images]:
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    return {part: images for part, images in parts.items() if images is not None}


def _joined(parts: Sequence[SourceOutputs | None]) -> SourceOutputs | None:
    """Join the outputs of a head for several parts; None if one of them has none."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    rows = [part.probabilities for part in known if part.probabilities is not None]
    return SourceOutputs(torch.cat([part.predictions for part in known]), torch.cat(rows))
