"""A network of the zoo: training, and for each target features, truth and scores.

A *cell* is a network on a target. Its truth is the held-out accuracy of a linear probe and, in a
third of the cells, of the network fine-tuned as a whole. The features of all cells are kept in
files, so that a new score needs no network.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional

from ncscope.data.catalogue import load
from ncscope.data.downstream_sets import seen_as
from ncscope.data.draws import Purpose, stream_seed
from ncscope.data.images import ImageData, Images
from ncscope.data.loaders import measuring_loader
from ncscope.files import write_bytes
from ncscope.lab.observations import Event, Heartbeat, Observation, Value
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Bench, bench_events, prepared
from ncscope.lab.zoo.design import TARGET_SEED
from ncscope.metrics.information import dataset_entropies
from ncscope.models.forward import classifier
from ncscope.models.taps import HEAD_INPUT
from ncscope.transfer.features import HeadReadings, head_readings
from ncscope.transfer.inputs import LabelledSamples, checked_labelled
from ncscope.transfer.ranking import ranked
from ncscope.transfer.scoring import SourceOutputs

NCTI = "ncti_"
"""Prefix of the keys of NCTI's parts, whose index needs all networks."""
SOURCE = "source"
"""Name of the file of the features of a network's own source."""
_FEATURES = "features"


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
        The events of the training; then for each target an observation, with the target's name as
        its split, and a heartbeat.

    Raises:
        InputError: As for `bench_events`, or if a target is missing.
    """
    bench = prepared(training, resources)
    yield from bench_events(bench, resources)
    learner = bench.learner
    source = _readings(bench, bench.data.train)
    _keep(resources, SOURCE, source, _readings(bench, bench.data.test))
    facts = {"mir": _mir(learner.evaluated, source)}
    yield Observation(learner.step, learner.epoch, SOURCE, HEAD_INPUT, values=facts)
    for name in targets:
        data = seen_as(
            load(name, resources.data, download=resources.download, seed=TARGET_SEED), bench.data
        )
        train, test = _readings(bench, data.train), _readings(bench, data.test)
        _keep(resources, name, train, test)
        values = _measured(train, test)
        values["parameters"] = sum(each.numel() for each in learner.evaluated.parameters())
        if name in tuned:
            values["tuned_accuracy"] = _tuned(learner.evaluated, data, tuning, training.seed)
        yield Observation(learner.step, learner.epoch, name, HEAD_INPUT, values=values)
        yield Heartbeat()


def _readings(bench: Bench, images: Images) -> HeadReadings:
    size = 4 * bench.settings.optimisation.batch_size
    return head_readings(bench.learner.evaluated, measuring_loader(images, size))


def _mir(model: nn.Module, source: HeadReadings) -> float:
    """Return the matrix mutual information ratio of features and head rows; NaN if undefined."""
    weight = classifier(model).weight.detach().double()
    counts = torch.bincount(source.labels, minlength=len(weight))
    batches = [(source.features.double(), source.labels)]
    return dataset_entropies(batches, counts, weight).mir


def _keep(resources: Resources, name: str, train: HeadReadings, test: HeadReadings) -> None:
    """Write features into the checkpoint folder, if there is one."""
    if resources.checkpoints is None:
        return
    tensors = {"train": train.features, "train_labels": train.labels}
    tensors |= {"test": test.features, "test_labels": test.labels}
    if train.probabilities is not None:
        tensors["probabilities"] = train.probabilities
    path = resources.checkpoints / _FEATURES / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, save({key: value.contiguous() for key, value in tensors.items()}))


def _measured(train: HeadReadings, test: HeadReadings) -> dict[str, Value]:
    """Return the probe's accuracy and all scores of a cell."""
    outputs = None
    if train.probabilities is not None:
        outputs = SourceOutputs(train.probabilities.argmax(1), train.probabilities)
    samples = checked_labelled(train.features, train.labels)
    held_out = checked_labelled(test.features, test.labels)
    found = ranked("", samples, held_out, source=outputs, expensive=True)
    parts = {} if found.parts is None else found.parts._asdict()
    return {
        "accuracy": found.accuracy,
        **found.scores,
        **{NCTI + key: value for key, value in parts.items()},
    }


def _tuned(model: nn.Module, data: ImageData, tuning: Tuning, seed: int) -> float:
    """Return the held-out accuracy of a copy of the network, fine-tuned with a new head."""
    draws = torch.Generator().manual_seed(stream_seed(seed, Purpose.ORDER))
    network = copy.deepcopy(model)
    _replace_head(network, data.num_classes, draws)
    train, labels = _pixels(data.train)
    optimiser = torch.optim.SGD(network.parameters(), tuning.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, tuning.epochs)
    network.train()
    for _ in range(tuning.epochs):
        for rows in torch.randperm(len(train), generator=draws).split(tuning.batch_size):
            if len(rows) > 1:
                optimiser.zero_grad()
                functional.cross_entropy(network(train[rows]), labels[rows]).backward()
                optimiser.step()
        schedule.step()
    network.eval()
    test, known = _pixels(data.test)
    with torch.no_grad():
        right = [
            (network(part).argmax(1) == answer).float().sum()
            for part, answer in zip(test.split(256), known.split(256), strict=True)
        ]
    return float(torch.stack(right).sum()) / len(known)


def _replace_head(network: nn.Module, num_classes: int, draws: torch.Generator) -> None:
    """Give the network's classifier new weights, of the customary size, for other classes."""
    head = classifier(network)
    dim = head.weight.shape[1]
    bound = dim**-0.5
    weight = torch.empty(num_classes, dim).uniform_(-bound, bound, generator=draws)
    head.weight = nn.Parameter(weight)
    head.bias = nn.Parameter(torch.zeros(num_classes))
    head.out_features = num_classes


def _pixels(images: Images) -> tuple[Float[Tensor, "n c h w"], Int[Tensor, " n"]]:
    batches = list(measuring_loader(images, 256))
    return torch.cat([each[0] for each in batches]), torch.cat([each[1] for each in batches])


