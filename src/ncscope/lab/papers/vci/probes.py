"""Linear probes of a pretrained network on other data sets."""

from collections.abc import Iterator, Sequence

from jaxtyping import Float, Int
from torch import Tensor

from ncscope.data.catalogue import load
from ncscope.data.downstream_sets import prepare_like
from ncscope.data.images import ImageData, Images
from ncscope.data.loaders import make_measurement_loader
from ncscope.lab.observations import Event, Heartbeat, Observation, Value
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Bench, bench_events, prepared
from ncscope.models.taps import HEAD_INPUT
from ncscope.transfer import choose_probe, head_features
from ncscope.transfer.probes.linear_probe import MEASURES
from ncscope.transfer.ranking import hold_out

_SPLIT_SEED = 0


def transfer_events(
    sets: Sequence[str], training: Training, resources: Resources
) -> Iterator[Event]:
    """Pretrain, then probe on every downstream set.

    The downstream sets are located, or downloaded, before the training begins.

    Args:
        sets: Names of the downstream sets.
        training: The pretraining.
        resources: Resources of the run.

    Yields:
        The events of `bench_events`; then for each set an observation, with the set's name as its
        split, and a heartbeat.

    Raises:
        InputError: As for `bench_events`, or if a set is missing.
    """
    bench = prepared(training, resources)
    with resources.fabric.rank_zero_first(local=True):  # one process a machine downloads
        downstream = [
            prepare_like(
                load(name, resources.data, download=resources.download, seed=training.seed),
                bench.data,
            )
            for name in sets
        ]
    yield from bench_events(bench, resources)
    for data in downstream:
        learner = bench.learner
        yield Observation(
            learner.step, learner.epoch, data.name, HEAD_INPUT, values=probe(bench, data)
        )
        yield Heartbeat()


def probe(bench: Bench, data: ImageData) -> dict[str, Value]:
    """Fit a logistic regression to a set's features and return its held-out accuracy.

    The penalty is chosen on the set's validation images or, without these, on a stratified fifth of
    the training images. Every process uses all images, so all compute the same result.

    Args:
        bench: Pretraining run that has ended.
        data: Data set, preprocessed for the network.
    """
    train, labels = _features(bench, data.train)
    if data.validation is None:
        aside = hold_out(labels, _SPLIT_SEED)
        validation = train[aside], labels[aside]
        train, labels = train[~aside], labels[~aside]
    else:
        validation = _features(bench, data.validation)
    chosen = choose_probe(train, labels, *validation, measure=data.measure)
    test, known = _features(bench, data.test)
    accuracy = MEASURES[data.measure](chosen.probe.predict(test), known)
    return {"accuracy": accuracy, "measure": data.measure, "strength": chosen.strength}


def _features(bench: Bench, images: Images) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Gather the classifier's inputs and the labels on the device of the run."""
    size, device = bench.settings.optimisation.batch_size, bench.fabric.device
    loader = make_measurement_loader(images, size, workers=bench.workers)
    features, labels = head_features(bench.learner.evaluated, loader)
    return features.to(device), labels.to(device)
