"""The demo at the smallest size, and each of its claims seen to fail."""

from typing import Any

import pytest
import torch

from ncscope.measurement.model import ModelResult, measure_layers
from ncscope.measurement.records import Measurement
from ncscope_lab.experiments.pfc import demo
from ncscope_lab.experiments.pfc.demo import EXPERIMENT, DemoConfig, train_demo
from ncscope_lab.observations import Heartbeat
from ncscope_lab.training.loop import train

TINY = DemoConfig(width=8, depth=2, epochs=2, measurements=3)


def run(config: DemoConfig) -> list[Measurement]:
    return [event for event in train_demo(config) if isinstance(event, Measurement)]


def begin(config: DemoConfig) -> Measurement:
    """The first measurement of a run, which is then left."""
    course = train_demo(config)
    first = next(course)
    course.close()
    assert isinstance(first, Measurement)
    return first


@pytest.fixture(scope="module")
def tiny() -> list[Measurement]:
    return run(TINY)


@pytest.mark.slow
def test_held_out_data_is_held_against_the_training_means(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ModelResult]] = []

    def spy(
        model: object, loader: object, options: object, reference: object = None
    ) -> ModelResult:
        probed = measure_layers(model, loader, options, reference)
        calls.append((reference, probed))
        return probed

    monkeypatch.setattr(demo, "measure_layers", spy)
    run(TINY.model_copy(update={"epochs": 1}))
    for (none, train_set), (reference, _) in zip(calls[::2], calls[1::2], strict=True):
        assert none is None
        assert reference is train_set.statistics


@pytest.mark.slow
def test_another_seed_another_run() -> None:
    first, other = (begin(TINY.model_copy(update={"seed": seed})) for seed in (0, 1))
    assert other.model_record.layers[0].metrics != first.model_record.layers[0].metrics


KNOBS = ("learning_rate", "momentum", "weight_decay", "head_weight_decay", "label_smoothing")


def after_one_epoch(**changes: float) -> dict[str, float]:
    config = TINY.model_copy(update={"epochs": 1, **changes})
    return dict(run(config)[-2].model_record.layers[-1].metrics)


@pytest.mark.slow
@pytest.mark.parametrize("knob", [*KNOBS, "pixel_deviation"])
def test_every_knob_of_training_is_connected(tiny: list[Measurement], knob: str) -> None:
    as_before = dict(tiny[2].model_record.layers[-1].metrics)
    assert repr(after_one_epoch()) == repr(as_before)
    assert repr(after_one_epoch(**{knob: getattr(TINY, knob) / 2})) != repr(as_before)


def training_of(monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> tuple[Any, Any]:
    """The optimiser and the loader of a run, caught on their way into the loop."""
    caught: list[Any] = []

    def spy(*parts: Any) -> Any:
        caught.extend(parts)
        return train(*parts)

    monkeypatch.setattr(demo, "train", spy)
    begin(TINY.model_copy(update={"seed": seed}))
    return caught[1].optimiser, caught[2](0, 0)


def test_the_two_decays_are_on_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    optimiser, _ = training_of(monkeypatch)
    body, head = optimiser.param_groups
    assert body["weight_decay"] == TINY.weight_decay
    assert head["weight_decay"] == TINY.head_weight_decay
    assert [tuple(p.shape) for p in head["params"]] == [(10, 8), (10,)]
    assert len(body["params"]) == 2 * (1 + TINY.depth)


@pytest.mark.slow
def test_seed_decides_split_and_order_and_each_epoch_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, loader = training_of(monkeypatch)
    _, other = training_of(monkeypatch, seed=1)
    first, second = (next(iter(loader))[1].tolist() for _ in range(2))
    assert loader.batch_size == TINY.batch_size
    assert first != second
    assert [each.generator.initial_seed() for each in (loader, other)] == [0, 1]
    assert not torch.equal(loader.dataset.tensors[1], other.dataset.tensors[1])


@pytest.mark.slow
def test_leaves_no_trace_and_a_heartbeat_an_epoch(capfd: pytest.CaptureFixture[str]) -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    brief = TINY.model_copy(update={"epochs": 3, "measurements": 2})
    seen = [None if isinstance(event, Heartbeat) else event.step for event in train_demo(brief)]
    assert seen == [0, 0, 1, 1, None, None, 3, 3, None]
    (part,) = EXPERIMENT.parts(brief)
    assert part.trains
    assert part.yields == seen.count(None)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert capfd.readouterr() == ("", "")
