"""Cells of the zoo: a network is trained, and measured on every target.

A *cell* is a network on a target. Its truth is the held-out accuracy of a linear probe and, in a
third of the cells, of the network fine-tuned as a whole. The features of all cells are kept in
files, so that a new score needs no network, and a stopped run goes on at the next cell.
"""

import copy
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional

from ncscope.data.catalogue import load
from ncscope.data.downstream_sets import prepare_like
from ncscope.data.draws import Purpose, stream_seed
from ncscope.data.images import ImageData, Images
from ncscope.data.loaders import make_measurement_loader
from ncscope.files import write_bytes
from ncscope.metrics.information import dataset_entropies
from ncscope.models.forward import classifier
from ncscope.models.taps import HEAD_INPUT
from ncscope.tensor_files import TensorFile, check_exists
from ncscope.transfer import (
    NctiParts,
    ncti,
)
from ncscope.transfer.baselines import make_accuracy_table
from ncscope.transfer.features import head_readings
from ncscope.transfer.records import (
    PRETRAINING,
    PRETRAINING_SCORES,
)
from ncscope.transfer.samples import check_downstream
from ncscope_lab.experiments.transfer.design import TARGET_SEED, TransferZoo, list_networks
from ncscope_lab.experiments.transfer.scores import NCTI, Sample, score_sample
from ncscope_lab.observations import Event, Heartbeat, Observation, Value, flatten
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Bench, bench_events, prepare_bench

SOURCE = "source"
"""Split of the facts of a network on its own source, and name of the file of its features there."""

IMAGES = "images"
"""Key of the number of training images of a cell: `ALL` or `A_FEW`."""

ALL, A_FEW = "all", "few"

ACCURACY = "accuracy"
"""Key of the truth by probe."""

TUNED_ACCURACY = "tuned_accuracy"

Tensors = Mapping[str, Tensor]

_MADE_BY = "made by"

_SOURCE_FACTS = ("mir", "parameters")


@dataclass(frozen=True)
class Tuning:
    """Fine-tuning of a whole network on a target.

    Attributes:
        epochs: Passes over the target's training images.
        batch_size: Images per step.
        rate: Highest learning rate, on a cosine to 0; the optimiser is SGD with momentum 0.9.
    """

    epochs: int = 8
    batch_size: int = 64
    rate: float = 0.01


def cell_events(
    training: Training,
    targets: Sequence[str],
    tuned: Sequence[str],
    tuning: Tuning,
    resources: Resources,
) -> Iterator[Event]:
    """Train a network, then measure every target.

    Args:
        training: The network's training.
        targets: Names of the targets.
        tuned: Names of the targets on which the network is also fine-tuned.
        tuning: Settings of the fine-tuning.
        resources: Resources of the run; features are written to its checkpoint folder.

    Yields:
        A heartbeat for each epoch; observations of the source at the end; then for each target two
        observations, with the target's name as their split, of all training images and of a few;
        and a heartbeat.

    Raises:
        InputError: As for `bench_events`, or if a target is missing.
    """
    bench = prepare_bench(training, resources)
    made_by = json.dumps([training.model_dump(mode="json"), asdict(tuning), TARGET_SEED])
    for event in bench_events(bench, resources):
        if isinstance(event, Heartbeat):
            yield event
        else:
            rows = flatten([event])
            yield from (row for row in rows if row.epoch == training.optimisation.epochs)
    learner = bench.learner
    model = learner.evaluated
    make_source = partial(_extract_features, bench, bench.data)
    source = _load_or_make(resources, SOURCE, made_by, make_source)
    weight, labels = classifier(model).weight.detach().double().cpu(), source["train_labels"]
    counts = torch.bincount(labels, minlength=len(weight))
    entropies = dataset_entropies([(source["train"].double(), labels)], counts, weight)
    facts = {
        "mir": entropies.mir,  # NaN if undefined
        "parameters": sum(each.numel() for each in model.parameters()),
    }
    yield Observation(learner.step, learner.epoch, SOURCE, HEAD_INPUT, values=facts)

    def make_cell(name: str) -> dict[str, Tensor]:
        data = load(name, resources.data, download=resources.download, seed=TARGET_SEED)
        seen = prepare_like(data, bench.data)
        tensors = _extract_features(bench, seen)
        if name in tuned:
            accuracy = _fine_tune(model, seen, tuning, training.seed)
            tensors[TUNED_ACCURACY] = torch.tensor(accuracy, dtype=torch.float64)
        return tensors

    for name in targets:
        cell = _load_or_make(resources, name, made_by, partial(make_cell, name))
        sample = make_sample(cell, source)
        test = check_downstream(cell["test"], cell["test_labels"])
        for images, own in ((ALL, sample), (A_FEW, sample.few())):
            values: dict[str, Value] = {IMAGES: images, **score_sample(own, test)}
            if images == ALL and TUNED_ACCURACY in cell:
                values[TUNED_ACCURACY] = float(cell[TUNED_ACCURACY])
            yield Observation(learner.step, learner.epoch, name, HEAD_INPUT, values=values)
        yield Heartbeat()


def _load_or_make(
    resources: Resources, name: str, made_by: str, make: Callable[[], dict[str, Tensor]]
) -> Tensors:
    """Return tensors from their file; make them, and write it, if there is none of these settings.

    Args:
        resources: Resources, with the checkpoint folder.
        name: Name of the file.
        made_by: Settings that the tensors depend on, which the file states.
        make: Function that makes the tensors.
    """
    if resources.checkpoints is None:
        return make()
    path = feature_file(resources.checkpoints, name)
    if path.exists():
        check_exists(TensorFile.at(path))
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get(_MADE_BY) == made_by:
                return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    tensors = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {key: value.contiguous() for key, value in tensors.items()}
    write_bytes(path, save(whole, {_MADE_BY: made_by}))
    return tensors


def feature_file(checkpoints: Path, name: str) -> Path:
    """Return the path of the file of a network's features.

    Args:
        checkpoints: Checkpoint folder of the network's part.
        name: Name of the target, or `SOURCE`.
    """
    return checkpoints / "features" / f"{name}.safetensors"


def read_features(folder: Path, name: str) -> dict[str, Tensor]:
    """Read tensors that a run keeps.

    Args:
        folder: Folder of the checkpoints.
        name: Name of the file.

    Raises:
        InputError: If there is no file of that name, but nothing, a pipe or a device.
    """
    path = feature_file(folder, name)
    check_exists(TensorFile.at(path))
    return load_file(path)


def make_sample(cell: Tensors, source: Tensors) -> Sample:
    """Return what a score may read of a cell.

    Args:
        cell: Tensors of the cell's file.
        source: Tensors of the file of the network's source.
    """
    return Sample(
        cell["train"],
        cell["train_labels"],
        cell.get("probabilities"),
        source["train"],
        source["train_labels"],
    )


def _extract_features(bench: Bench, data: ImageData) -> dict[str, Tensor]:
    """Return features and labels of training and held-out images, and probabilities."""
    size = 4 * bench.settings.optimisation.batch_size
    train, test = (
        head_readings(bench.learner.evaluated, make_measurement_loader(images, size))
        for images in (data.train, data.test)
    )
    features, labels, probabilities = train
    tensors = {"train": features, "train_labels": labels}
    tensors |= {"test": test[0], "test_labels": test[1]}
    if probabilities is not None:
        # From a softmax at temperature 1 to one at the temperature of the training.
        tensors["probabilities"] = (probabilities.log() / bench.settings.temperature).softmax(1)
    return tensors


def _fine_tune(model: nn.Module, data: ImageData, tuning: Tuning, seed: int) -> float:
    """Return the held-out accuracy of a copy of the network, fine-tuned with a new head."""
    draws = torch.Generator().manual_seed(stream_seed(seed, Purpose.ORDER))
    network = copy.deepcopy(model)
    device = next(network.parameters()).device
    head = classifier(network)  # gets new weights, of the customary size, for other classes
    bound = head.weight.shape[1] ** -0.5
    weight = torch.empty(data.num_classes, head.weight.shape[1])
    head.weight = nn.Parameter(weight.uniform_(-bound, bound, generator=draws).to(device))
    head.bias = nn.Parameter(torch.zeros(data.num_classes, device=device))
    head.out_features = data.num_classes
    train, labels = (each.to(device) for each in _load_pixels(data.train))
    optimiser = torch.optim.SGD(network.parameters(), tuning.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, tuning.epochs)
    network.train()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(stream_seed(seed, Purpose.STEPS))  # for dropout and the like
        for _ in range(tuning.epochs):
            for rows in torch.randperm(len(train), generator=draws).split(tuning.batch_size):
                if len(rows) > 1:
                    optimiser.zero_grad()
                    functional.cross_entropy(network(train[rows]), labels[rows]).backward()
                    optimiser.step()
            schedule.step()
    network.eval()
    test, known = (each.to(device) for each in _load_pixels(data.test))
    with torch.no_grad():
        right = [
            (network(part).argmax(1) == answer).float().sum()
            for part, answer in zip(test.split(256), known.split(256), strict=True)
        ]
    return float(torch.stack(right).sum()) / len(known)


def _load_pixels(images: Images) -> tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]:
    batches = list(make_measurement_loader(images, 256))
    return torch.cat([each[0] for each in batches]), torch.cat([each[1] for each in batches])


@dataclass(frozen=True)
class Cell:
    """A network on a target.

    Attributes:
        network: Name of the network.
        architecture: Name of its architecture.
        source: Name of the set that it was trained on.
        target: Name of the target.
        images: Number of training images of the target: `ALL` or `A_FEW`.
        values: Truth, scores and facts by key; a value that is unknown is missing or NaN.
        folder: Checkpoint folder of the network, with its features; None if they are not there.
    """

    network: str
    architecture: str
    source: str
    target: str
    images: str
    values: Mapping[str, float]
    folder: Path | None = None

    def value(self, key: str) -> float:
        """Return a value; NaN if it is unknown."""
        return self.values.get(key, math.nan)

    def with_values(self, values: Mapping[str, float]) -> "Cell":
        """Return the cell with further values."""
        return replace(self, values={**self.values, **values})


def collect_cells(
    config: TransferZoo, rows: Iterable[Observation], folder: Path | None = None
) -> list[Cell]:
    """Return the cells of a run.

    Args:
        config: Settings of the run.
        rows: Its observations.
        folder: Folder of the checkpoints of its parts; None if there are none.
    """
    trained = list_networks(config)
    facts: dict[str, dict[str, float]] = {}
    cells = []
    for row in rows:
        training = trained.get(row.part)
        if training is None:
            continue
        own = facts.setdefault(row.part, {})
        if IMAGES in row:
            values = {key: float(v) for key, v in row.values.items() if key != IMAGES}
            cells.append(
                Cell(
                    row.part,
                    training.network,
                    training.data,
                    row.split,
                    str(row[IMAGES]),
                    values,
                    None if folder is None else folder / row.part,
                )
            )
        elif row.split == SOURCE:
            own |= {key: float(row[key]) for key in _SOURCE_FACTS if key in row}
        elif row.epoch == training.optimisation.epochs and row.split == "test":
            own |= {"source_accuracy": float(row.get(ACCURACY, math.nan))}
        elif row.epoch == training.optimisation.epochs:
            keys = [key.removeprefix(PRETRAINING) for key in PRETRAINING_SCORES]
            own |= {PRETRAINING + key: float(row[key]) for key in keys if key in row}
            own |= {key: float(row[key]) for key in ("within_off_signal",) if key in row}
    return add_relative([cell.with_values(facts[cell.network]) for cell in cells])


def add_relative(cells: Sequence[Cell]) -> list[Cell]:
    """Add what depends on the other cells: NCTI, and the mean result on the other targets.

    Both are relative to the networks that were measured on the same target with as many images.

    Args:
        cells: Cells of all networks and targets.
    """
    found: dict[int, dict[str, float]] = {}
    for images in (ALL, A_FEW):
        own = [cell for cell in cells if cell.images == images]
        others = average_others(own)
        for target in dict.fromkeys(cell.target for cell in own):
            of_target = [cell for cell in own if cell.target == target]
            parts = {
                id(cell): NctiParts(*(cell.value(NCTI + key) for key in NctiParts._fields))
                for cell in of_target
            }
            # A network without parts would take the index from all others.
            known = {key: each for key, each in parts.items() if all(map(math.isfinite, each))}
            indices = dict(zip(known, ncti(list(known.values())), strict=True))
            for cell in of_target:
                other = others[cell.network, cell.target]
                found[id(cell)] = {"ncti": indices.get(id(cell), math.nan), "other_sets": other}
    return [cell.with_values(found[id(cell)]) for cell in cells]


def average_others(cells: Sequence[Cell]) -> dict[tuple[str, str], float]:
    """Return each network's mean standardised accuracy on the other targets.

    Accuracies are standardised by target over all networks, as `AccuracyTable.standing` does. This
    is what a table of past results tells.

    Args:
        cells: Cells of the same number of images.

    Returns:
        The mean by network and target; NaN if no other target is known.
    """
    results: dict[str, dict[str, float]] = {}
    for cell in cells:
        results.setdefault(cell.network, {})[cell.target] = cell.value(ACCURACY)
    table = make_accuracy_table(results)
    standings = {
        target: dict(zip(table.models, table.standings(left_out=target).tolist(), strict=True))
        for target in table.sets
    }
    return {(cell.network, cell.target): standings[cell.target][cell.network] for cell in cells}
