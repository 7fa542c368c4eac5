"""All experiments: settings are described, and claims and figures come out of any numbers."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ncscope.errors import InputError
from ncscope.measurement.records import GeodesicRecord, LayerRecord, Measurement, ModelRecord
from ncscope_lab import catalogue
from ncscope_lab.catalogue import find_experiment
from ncscope_lab.experiment import Part
from ncscope_lab.observations import ITERATION, Heartbeat, Observation, Recorded, Results
from ncscope_lab.report.drawing import render
from ncscope_lab.runs.resources import Resources
from ncscope_lab.runs.settings import change_settings, list_settings

EXPERIMENTS = {
    name: find_experiment(name)
    for name in catalogue.EXPERIMENTS
    if name != "transfer/zoo"  # of minutes: see `lab.tests.test_transfer_zoo`
}
OF_NETWORKS = [name for name, each in EXPERIMENTS.items() if "runs" in each.config.model_fields]
MEASURED = [*OF_NETWORKS, "pfc/demo", "info/grokking"]
"""Experiments on networks; those of the others are computed points of a model."""
SAVING = {*OF_NETWORKS, "info/grokking"}
"""Experiments whose parts save checkpoints."""
POINT = {"num_classes": 3, "dim": 5, "per_class": 4}
DESCENT = POINT | {"steps": 4, "every": 2}
FLOW = POINT | {"points": 9, "descent_steps": (8, 16)}
SHORT: Mapping[str, Mapping[str, Any]] = {
    "xufm/ufm": {"first_steps": 4, "every": 2, "starts": 2, "bias_decays": (1e-4, 0.1)},
    "xufm/extended": {"steps": 4, "every": 2, "starts": 2, "per_class": (10, 20), "seeds": 2},
    "pfc/mufm": {
        **{"steps": 4, "every": 2, "seeds": 1},
        **{"transports": (5e-4, 0.02), "small_transports": (1e-8, 1e-4)},
    },
    "pfc/demo": {"width": 8, "depth": 2, "epochs": 2, "measurements": 3},
    "mse/central-path": FLOW,
    "central-path": FLOW,
    "info/grokking": {
        **{"training.modulus": 7, "training.train_share": 0.5, "training.steps": 40},
        **{"training.width": 32, "training.hidden": 64, "training.batch_size": 8},
        **{"training.learning_rate": 0.01, "training.measurements": 4, "seeds": (0, 1)},
    },
    "ufm": DESCENT,
    "ufm-cross-entropy": DESCENT,
    "extended": DESCENT,
    "mufm": DESCENT,
    "perturbed": {"num_classes": 3, "dim": 4, "per_class": (10, 20), "seeds": 2},
    "geodesic": POINT | {"points": 5},
}
"""Changes of the small scale that make an experiment one of a second or two."""
FEW = {"steps": 20, "images": 10, "downstream": ("warped-digits-5-9",), "weights": ()}
FEW |= {"sparsities": (0.0, 0.9), "intervals": 2}
"""The same for what experiments on networks do beside training."""


LIGHT: Mapping[str, Mapping[str, Any]] = {
    "info/pruning": {"data": "digits", "network": "small-wrn"},
}
"""A third of the images and fewer features, where a run measures them again and again."""


def with_two_seeds(config: Any) -> Any:
    """Settings with the runs of two seeds alone: more show no other fault, and take longer."""
    if hasattr(config, "tuning"):
        tuning = config.tuning.model_copy(update={"epochs": 1})
        config = config.model_copy(update={"tuning": tuning})
    own = {key: value for key, value in FEW.items() if key in type(config).model_fields}
    seeds = sorted({run.seed for run in config.runs.values()})[:2]
    runs = {name: run for name, run in config.runs.items() if run.seed in seeds}
    return config.model_copy(update={"runs": runs, **own})


SMALL = {
    name: with_two_seeds(each.scales["small"])
    if name in OF_NETWORKS
    else each.configure("small", SHORT[name])
    for name, each in EXPERIMENTS.items()
}
pytestmark = pytest.mark.usefixtures("unchecked_signatures")  # most of the time, otherwise
Recordings = list[tuple[str, Recorded]]
"""Events with the names of their parts."""
Change = Callable[[Recordings], Recordings]
LINE = ("pfc1", "pfc2", "pfc3", "alignment", "transport_cost")
POSITION = "relative_position"


def with_runs(config: Any, **update: Any) -> Any:
    """The settings with something changed in every run."""
    runs = {name: run.model_copy(update=update) for name, run in config.runs.items()}
    return config.model_copy(update={"runs": runs})


def short_parts(name: str) -> list[Part]:
    """The parts of a short run; of networks, one epoch of each."""
    config = SMALL[name]
    if name in OF_NETWORKS:
        first = next(iter(config.runs.values()))
        brief = {"epochs": 1, "warmup_epochs": 0, "batch_size": 64}
        short = first.optimisation.model_copy(update=brief)
        own = LIGHT.get(name, {})
        config = with_runs(config, optimisation=short, balanced=200, measured=None, **own)
    return list(EXPERIMENTS[name].parts(config))


def recorded(part: Part, resources: Resources | None = None) -> list[Recorded]:
    events = part.run(resources or Resources())
    return [event for event in events if not isinstance(event, Heartbeat)]


@cache
def recordings(name: str) -> tuple[tuple[str, Recorded], ...]:
    """Events of all parts; those of the first network as if of all networks."""
    networks = SMALL[name].runs if name in OF_NETWORKS else ()
    first, *others = short_parts(name)
    own = recorded(first)
    return (
        *((part, event) for part in networks or [first.name] for event in own),
        *(
            (part.name, event)
            for part in others
            if part.name not in networks
            for event in recorded(part)
        ),
    )


def results_of(pairs: Recordings) -> Results:
    results = Results()
    for part, event in pairs:
        results.add(event, part)
    return results


def numbers(event: Recorded) -> set[str]:
    """Keys of the metrics, spectra and points of the line that an event holds."""
    keys = {key for key, value in event.values.items() if isinstance(value, float)}
    if isinstance(event, Measurement):
        for layer in event.model_record.layers:
            keys |= {*layer.metrics, *layer.spectra}
        keys |= {POSITION} if event.model_record.relative_position else set()
        keys |= set(LINE) if event.model_record.geodesic else set()
    return keys - {ITERATION}


def revalued(event: Recorded, keys: set[str], value: float) -> Recorded:
    """The event with some of its metrics, wherever they are, at a value."""

    def own(old: Mapping[str, Any]) -> dict[str, Any]:
        return {**old, **dict.fromkeys(keys & old.keys(), value)}

    if isinstance(event, Observation):
        return event.with_values(own(event.values))
    probe = event.model_record
    positions = (value,) * len(probe.relative_position) if POSITION in keys else None
    changed = replace(
        probe,
        layers=tuple(
            replace(
                layer,
                metrics=own(layer.metrics),
                spectra={k: [value] * len(v) if k in keys else v for k, v in layer.spectra.items()},
            )
            for layer in probe.layers
        ),
        relative_position=positions or probe.relative_position,
        geodesic=probe.geodesic and line_at(probe.geodesic, keys, value),
    )
    return replace(event, model_record=changed, values=own(event.values))


def line_at(line: GeodesicRecord, keys: set[str], value: float) -> GeodesicRecord:
    """The straight line with some of its numbers, but never its positions, at a value."""
    assert {field.name for field in fields(line)} == {"t", *LINE}
    old = {key: getattr(line, key) for key in keys.intersection(LINE)}
    new = {k: [value] * len(v) if isinstance(v, list) else value for k, v in old.items()}
    return replace(line, **new)


def lacking(event: Recorded, key: str) -> Recorded:
    """The event without one of its metrics."""

    def own(old: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in old.items() if k != key}

    if isinstance(event, Observation):
        return replace(event, values=own(event.values))

    def bare(layer: LayerRecord) -> LayerRecord:
        return replace(layer, metrics=own(layer.metrics), spectra=own(layer.spectra))

    probe = replace(event.model_record, layers=tuple(map(bare, event.model_record.layers)))
    if key == POSITION:
        probe = replace(probe, comparable=(), relative_position=())
    if key in LINE:
        probe = replace(probe, geodesic=None)
    return replace(event, model_record=probe, values=own(event.values))


def at(value: float, key: str | None = None) -> Change:
    """One metric, or all of them, at a value."""

    def changed(event: Recorded) -> Recorded:
        keys = numbers(event)
        return revalued(event, keys if key is None else keys & {key}, value)

    return lambda pairs: [(part, changed(event)) for part, event in pairs]


def without(key: str) -> Change:
    return lambda pairs: [(part, lacking(event, key)) for part, event in pairs]


def past_zero_error(change: Change) -> Change:
    return lambda pairs: at(1.0, "accuracy")(change(pairs))


def untrained(pairs: Recordings) -> Recordings:
    return [
        (part, event)
        for part, event in pairs
        if (event.step if isinstance(event, Measurement) else event.epoch) == 0
    ]


def last_layer(pairs: Recordings) -> Recordings:
    """No other layers, lines or spectra."""
    names = ("head input", "input", "H1", "H2")
    found: Recordings = []
    for part, event in pairs:
        if isinstance(event, Observation):
            if event.layer in names:
                found.append((part, event))
            continue
        layers = [replace(x, spectra={}) for x in event.model_record.layers if x.layer in names]
        if layers:
            found.append((part, replace(event, model_record=ModelRecord(tuple(layers)))))
    return found


CHANGES: Mapping[str, Change] = {
    "zeros": at(0.0),
    "zeros past zero error": past_zero_error(at(0.0)),
    "constants": at(1.0),
    "untrained": untrained,
    "the last layer alone": last_layer,
}
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "squared error": {"loss": "mse"},
    "cross-entropy": {"loss": "cross-entropy"},
    "another network": {"network": "small-vit"},
    "another data set": {"data": "moons"},
}


@pytest.mark.parametrize("name", catalogue.EXPERIMENTS)
def test_settings_are_described_restored_and_set_by_name(name: str) -> None:
    experiment = find_experiment(name)
    for field_name, field in experiment.config.model_fields.items():
        said = field.description or ""
        assert said[:1].isupper(), field_name
        assert said.endswith("."), field_name
        if field_name.endswith("seed"):
            assert any(getattr(bound, "lt", None) == 2**63 for bound in field.metadata), field_name
    assert experiment.id == name
    assert {"small", *(["paper"] if name in catalogue.REPRODUCTIONS else [])} <= {
        *experiment.scales
    }
    assert set(experiment.scales) == {scale for scale, cost in experiment.cost.items() if cost}
    for settings in experiment.scales.values():
        names = [part.name for part in experiment.parts(settings)]
        assert len(set(names)) == len(names) > 0
        restored = experiment.config.model_validate(json.loads(settings.model_dump_json()))
        assert restored == settings
        known = list_settings(settings)
        assert change_settings(settings, known) == settings
        seeds = (field for field in known if field.endswith(("seed", "seeds")))
        seed = next(seeds, "networks")  # of the zoo
        other = known[seed] + (1 if isinstance(known[seed], int) else [7])
        changed = list_settings(change_settings(settings, {seed: other}))
        assert {field for field in known if changed[field] != known[field]} == {seed}


@pytest.mark.parametrize(
    ("name", "wrong", "needed"),
    [
        *(
            (name, wrong, next(iter(wrong)))
            for name in ("ufm", "ufm-cross-entropy")
            for wrong in (
                *({"rate": math.inf}, {"seed": 2**63}, {"weight_decay": math.nan}, {"width": 3}),
                *({"num_classes": 1}, {"weight_decay": 0.0}, {"steps": 0}),
            )
        ),
        ("extended", {"weight_decays": (-1,)}, "weight_decays"),
        ("extended", {"weight_decays": (0.1, math.nan)}, "weight_decays"),
        ("extended", {"rate": math.inf}, "rate"),
        ("perturbed", {"per_class": (5, 5)}, "per_class: at least two different values"),
        ("perturbed", {"per_class": (0, 5)}, "per_class: every value at least 1"),
        ("perturbed", {"noise": math.inf}, "noise"),
        ("perturbed", {"feature_decay": math.nan}, "feature_decay"),
        ("geodesic", {"size": 1e200}, "size"),
        ("geodesic", {"size": math.nan}, "size"),
        ("geodesic", {"spread": math.inf}, "spread"),
        ("geodesic", {"num_classes": 8, "dim": 6}, "dim of at least num_classes - 1"),
        ("central-path", {"dim": 2}, "dim of at least num_classes - 1"),
        ("central-path", {"dim": 40, "per_class": 5}, "per_class of at least"),
        ("central-path", {"descent_steps": (64, 16)}, "ascending"),
        ("central-path", {"descent_steps": (10, 16)}, "multiple of 8"),
        ("central-path", {"separation": math.nan}, "separation"),
        *(
            ("xufm/ufm", {"bias_decays": (0.1, wrong)}, "every value greater than 0")
            for wrong in (0.0, math.inf, math.nan)
        ),
        ("pfc/mufm", {"transports": (0.02, 0.01)}, "ascending prices"),
        ("pfc/mufm", {"transports": (0.01, 0.01)}, "ascending prices"),
        ("pfc/mufm", {"transports": (0.0, 0.1)}, "every value greater than 0"),
        ("info/grokking", {"training.width": 30}, "a width that the heads share"),
        ("info/grokking", {"training.modulus": 11}, "pairs for two batches"),
        ("info/pruning", {"tuning.average": 0.9}, "tuning without an average"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    name: str, wrong: Mapping[str, Any], needed: str
) -> None:
    with pytest.raises(InputError, match=needed):
        EXPERIMENTS[name].configure("small", wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_claims_of_any_numbers(name: str) -> None:
    experiment, pairs = EXPERIMENTS[name], list(recordings(name))
    config = SMALL[name]
    texts = [claim.text for claim in experiment.judge(config, results_of(pairs))]
    assert texts
    for label, change in CHANGES.items():
        found = experiment.judge(config, results_of(change(pairs)))
        assert all(claim.evidence for claim in found), label
        assert label == "the last layer alone" or [one.text for one in found] == texts, label


@pytest.mark.nightly
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_claims_of_what_was_not_measured_do_not_hold(name: str) -> None:
    experiment, pairs = EXPERIMENTS[name], list(recordings(name))
    config = SMALL[name]
    keys = set().union(*(numbers(event) for _, event in pairs))
    if name in MEASURED:
        unknown = results_of(at(math.nan)(pairs))
        assert not any(claim.held for claim in experiment.judge(config, unknown))
    else:  # of points that are computed, only metrics can be undefined
        keys = {key for key in keys if key.startswith(("nc", "pfc"))}
        keys -= {"pfc1_falls_from", "pfc2_falls_from"}
    known = repr(experiment.judge(config, results_of(past_zero_error(list)(pairs))))
    for key in keys:
        gone = past_zero_error(at(math.nan, key))(pairs)
        if repr(experiment.judge(config, results_of(gone))) == known:
            continue  # no claim reads it
        changes = [at(0.0, key), at(math.nan, key)] + [without(key)] * (name in OF_NETWORKS)
        for change in changes:
            for own in (change, past_zero_error(change)):
                told = experiment.judge(config, results_of(own(pairs)))
                assert not [c for c in told if c.held and "nan" in c.evidence], key


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_NETWORKS)
@pytest.mark.parametrize("label", SETTINGS)
def test_claims_of_other_settings(name: str, label: str) -> None:
    config = with_runs(SMALL[name], **SETTINGS[label])
    assert EXPERIMENTS[name].judge(config, results_of(list(recordings(name))))


@pytest.mark.parametrize(
    ("name", "label"),
    [
        pytest.param(name, label, marks=mark)
        for name in EXPERIMENTS
        for label, mark in (
            ("as recorded", pytest.mark.slow),
            ("untrained", pytest.mark.nightly),
            ("partly measured", pytest.mark.nightly),
        )
        if name in MEASURED or label == "as recorded"
    ],
)
def test_every_figure_can_be_written(name: str, label: str) -> None:
    experiment, pairs = EXPERIMENTS[name], list(recordings(name))
    expected = experiment.draw(SMALL[name], results_of(pairs))
    drawings = expected
    if label == "untrained":
        drawings = experiment.draw(SMALL[name], results_of(untrained(pairs)))
    if label == "partly measured":
        changed = [pair for pair in at(0.0)(pairs) if pair[0] == pairs[0][0]]
        changed += [pair for pair in at(math.nan)(pairs) if pair[0] != pairs[0][0]]
        drawings = experiment.draw(SMALL[name], results_of(changed))
    assert [drawing.name for drawing in drawings] == [drawing.name for drawing in expected]
    assert drawings
    for drawing in drawings:
        assert drawing.caption.endswith(".")
        assert len(render(drawing, "svg")) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_part_stopped_again_and_again_ends_with_the_same_events(
    name: str, tmp_path: Path
) -> None:
    """Every event is compared as text: NaN differs from itself."""
    part, resources = short_parts(name)[0], Resources(checkpoints=tmp_path, checkpoint_interval=0.0)
    pairs = recordings(name)
    whole = [event for own, event in pairs if own == pairs[0][0]]
    for count in (1, len(whole) // 2, len(whole) - 1):
        events = iter(part.run(resources))
        seen = 0
        while seen < count:
            seen += not isinstance(next(events), Heartbeat)
        getattr(events, "close", lambda: None)()
    assert repr(recorded(part, resources)) == repr(whole)
    assert any(tmp_path.iterdir()) == (name in SAVING)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_columns_of_the_table_are_in_the_rows(name: str) -> None:
    keys = {key for row in results_of(list(recordings(name))) for key in row.as_line()}
    assert {*EXPERIMENTS[name].columns} <= keys
