"""The demo at the smallest size, and each of its claims seen to fail."""

from collections import Counter
from random import Random
from typing import Any

import pytest
import torch
from lab.tests.observed import gathered, measured, measurement, with_each
from pydantic import ValidationError

from ncscope.measurement.model import ModelResult, measure_layers
from ncscope.measurement.records import Measurement
from ncscope_lab.experiments.pfc import demo
from ncscope_lab.experiments.pfc.demo import EXPERIMENT, PART, DemoConfig, train_demo
from ncscope_lab.observations import ITERATION, Heartbeat, Observation, Results
from ncscope_lab.training.loop import train

TINY = DemoConfig(width=8, depth=2, epochs=2, measurements=3)
HEAD_METRICS = {"accuracy", "nc1", "vci", "nc2_etf", "nc2_equinorm_means", "nc3_self_duality"}
LAYERS = ("stem", "blocks.0", "blocks.1")


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


def test_both_splits_are_measured_at_log_spaced_epochs(tiny: list[Measurement]) -> None:
    when = [(m.step, m.values[ITERATION], m.split) for m in tiny]
    assert when == [(e, 23 * e, split) for e in (0, 1, 2) for split in ("train", "test")]


def test_every_layer_is_measured_and_the_last_with_the_head(tiny: list[Measurement]) -> None:
    for each in tiny:
        layers = each.model_record.layers
        assert tuple(record.layer for record in layers) == LAYERS
        assert HEAD_METRICS | {"nc4_disagreement", "pfc1"} <= set(layers[-1].metrics)
        assert all({"nc1", "nc2_etf", "pfc3"} <= set(record.metrics) for record in layers)
        assert layers[-1].num_samples == {"train": 1437, "test": 360}[each.split]
        assert each.model_record.geodesic is not None


def test_it_trains(tiny: list[Measurement]) -> None:
    accuracy = [m.model_record.layers[-1].metrics["accuracy"] for m in tiny if m.split == "train"]
    assert accuracy[0] < 0.3
    assert accuracy[-1] > 0.5


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


def test_same_seed_same_bits(tiny: list[Measurement]) -> None:
    torch.rand(1)
    again = run(TINY)
    assert repr(again) == repr(tiny)


def test_another_seed_another_run(tiny: list[Measurement]) -> None:
    other = begin(TINY.model_copy(update={"seed": 1}))
    assert other.model_record.layers[0].metrics != tiny[0].model_record.layers[0].metrics


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


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match="widht"):
        DemoConfig.model_validate({"widht": 8})


Metrics = dict[str, float]
DEEP: list[Metrics] = [
    {"pfc1": 0.6, "pfc2": 0.7, "pfc3": 0.9},
    {"pfc1": 0.3, "pfc2": 0.5, "pfc3": 0.95},
    {"pfc1": 0.2, "pfc2": 0.3, "pfc3": 0.97},
    {"pfc1": 0.1, "pfc2": 0.2, "pfc3": 1.0},
]
EARLY: Metrics = {
    "accuracy": 1.0,
    "nc1": 0.1,
    "nc2_etf": 0.3,
    "nc3_self_duality": 0.2,
    "nc4_disagreement": 0.0,
}
LATE: Metrics = {key: value / 4 for key, value in EARLY.items()} | {"accuracy": 1.0}
STEPS = (5, 10, 15, 20, 35, 50)
"""Measured epochs from zero training error on."""
BEFORE = [{"accuracy": 0.1 + 0.2 * epoch, "nc4_disagreement": 0.9} for epoch in range(5)]
"""Values before it, at every epoch."""


def at(epoch: int, last: Metrics, deep: list[Metrics] = DEEP) -> Measurement:
    layers = [*deep[:-1], deep[-1] | last]
    names = (*LAYERS, *(f"blocks.{index}" for index in range(2, len(layers))))
    return measurement(PART, epoch, dict(zip(names, layers, strict=False)))


def collapsed(last: Metrics = LATE, deep: list[Metrics] = DEEP) -> Results:
    """A run whose error is zero from epoch 5 on, up to a test set at the end."""
    start = {key: 10 * value for key, value in EARLY.items()}
    course = [
        at(epoch, {key: (1 - 0.05 * epoch) * value for key, value in start.items()} | early)
        for epoch, early in enumerate(BEFORE)
    ]
    for index, epoch in enumerate(STEPS):
        share = index / (len(STEPS) - 1)
        course.append(at(epoch, {k: (1 - share) * EARLY[k] + share * last[k] for k in EARLY}, deep))
    held_out = measurement(PART, 50, {}, split="test")
    return measured([*course, held_out])


def failing(results: Results) -> list[str]:
    return [found.text for found in EXPERIMENT.judge(TINY, results) if not found.held]


def deep_with(layer: int, **metrics: float) -> list[Metrics]:
    return [old | metrics if i == layer else old for i, old in enumerate(DEEP)]


def test_all_claims_hold_of_a_collapsing_run() -> None:
    found = EXPERIMENT.judge(TINY, collapsed())
    assert failing(collapsed()) == []
    assert len(found) == 8
    for claim in found:
        assert claim.source
        assert claim.evidence


def test_claims_of_a_real_run_have_the_same_shape(tiny: list[Measurement]) -> None:
    assert [c.text for c in EXPERIMENT.judge(TINY, measured(tiny))] == [
        c.text for c in EXPERIMENT.judge(TINY, collapsed())
    ]


def test_the_picture_is_drawn_from_the_measurements(tiny: list[Measurement]) -> None:
    (drawing,) = EXPERIMENT.draw(TINY, gathered(tiny, PART))
    assert drawing.name == "demo"
    assert len(drawing.figure.axes) >= 3


CASES: list[tuple[str, Results]] = [
    ("Training", collapsed(LATE | {"accuracy": 0.99})),
    ("NC1", collapsed(LATE | {"nc1": 0.1})),
    ("NC1", collapsed(LATE | {"nc1": float("nan")})),
    ("NC1", collapsed(LATE | {"nc1": 0.092})),
    ("NC2", collapsed(LATE | {"nc2_etf": 0.31})),
    ("NC3", collapsed(LATE | {"nc3_self_duality": 0.21})),
    ("NC4", collapsed(LATE | {"nc4_disagreement": 0.001})),
    ("PFC1", collapsed(deep=deep_with(1, pfc1=0.61))),
    ("PFC1", collapsed(deep=deep_with(1, pfc1=float("nan")))),
    ("PFC2", collapsed(deep=deep_with(1, pfc2=0.71))),
    ("PFC3", collapsed(deep=deep_with(1, pfc3=0.89))),
]


@pytest.mark.parametrize(("name", "results"), CASES)
def test_each_claim_can_fail(name: str, results: Results) -> None:
    (claim,) = failing(results)
    assert claim.startswith(name)


def test_collapse_is_counted_from_zero_error_on() -> None:
    """Everything fell from epoch 0, but not since epoch 5, when the error reached zero."""
    names = [claim.split(":")[0] for claim in failing(collapsed(EARLY))]
    assert names == ["NC1", "NC2", "NC3"]


def test_a_fall_needs_a_trend() -> None:
    """NC2 ends low, but it was higher than at zero error in between."""
    high = dict(zip(STEPS[1:-1], (0.31, 0.32, 0.33, 0.34), strict=True))

    def changed(row: Observation) -> Observation:
        late = row.epoch in high and "nc2_etf" in row
        return row.with_values({"nc2_etf": high[row.epoch]}) if late else row

    (claim,) = failing(with_each(collapsed(), changed))
    assert claim.startswith("NC2")


def test_without_zero_error_nothing_after_it_is_held() -> None:
    run = [at(0, EARLY | {"accuracy": 0.5}), at(9, LATE | {"accuracy": 0.9})]
    first, *falling = EXPERIMENT.judge(TINY, measured(run))[:5]
    assert not first.held
    assert "never" in first.evidence
    for claim in falling:
        assert claim.verdict == "undecided"


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
def test_claims_seldom_hold_of_permuted_measurements() -> None:
    """Null test: the last layer's metrics are exchanged among epochs.

    The order of layers has its null test in `test_null_demo`.
    """
    held: Counter[str] = Counter()
    for draw in range(40):
        results, random = collapsed(), Random(draw)
        rows = list(results)
        at = [index for index, row in enumerate(rows) if "accuracy" in row]
        for key in EARLY:
            moved = random.sample([rows[index][key] for index in at], len(at))
            for index, value in zip(at, moved, strict=True):
                rows[index] = rows[index].with_values({key: value})
        changed = Results(rows, results.measurements)
        held.update(claim.text for claim in EXPERIMENT.judge(TINY, changed)[:5] if claim.held)
    assert max(held.values(), default=0) <= 4, held


def test_order_is_claimed_up_to_the_effective_depth_only() -> None:
    deep = [*DEEP, DEEP[3] | {"pfc1": 0.5, "pfc3": 0.99}]
    assert failing(collapsed(deep=deep)) == []
    shallow = [*DEEP[:2], DEEP[2] | {"pfc3": 1.0}, *deep[3:]]
    assert [claim[:4] for claim in failing(collapsed(deep=shallow))] == ["PFC1", "PFC2", "PFC3"]


def test_evidence_counts_the_breaks() -> None:
    found = {
        c.text[:4]: c.evidence
        for c in EXPERIMENT.judge(TINY, collapsed(deep=deep_with(1, pfc1=0.7)))
    }
    assert found["PFC1"] == "0.6 at stem, 0.1 at blocks.2; 1 steps the wrong way, by 0.1 at most"
