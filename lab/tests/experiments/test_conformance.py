"""All experiments: settings are described, and claims and figures come out of any numbers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest

from ncscope.measurement.records import GeodesicRecord, LayerRecord, Measurement, ModelRecord
from ncscope_lab import catalogue
from ncscope_lab.catalogue import REPRODUCTIONS, find_experiment
from ncscope_lab.observations import ITERATION, Heartbeat, Observation, Recorded, Results
from ncscope_lab.report.drawing import render
from ncscope_lab.runs.resources import Resources

EXPERIMENTS = {
    name: find_experiment(name)
    for name in REPRODUCTIONS
    if "runs" in find_experiment(name).config.model_fields
}


def with_two_seeds(config: Any) -> Any:
    """The settings with the runs of two seeds alone: more show no other fault, and take longer."""
    seeds = sorted({run.seed for run in config.runs.values()})[:2]
    runs = {name: run for name, run in config.runs.items() if run.seed in seeds}
    return config.model_copy(update={"runs": runs})


SMALL = {name: with_two_seeds(each.scales["small"]) for name, each in EXPERIMENTS.items()}
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


@cache
def recordings(name: str) -> tuple[tuple[str, Recorded], ...]:
    """Events of an epoch of the first run, as if of all runs; and of the models."""
    small = SMALL[name]
    first = next(iter(small.runs.values()))
    brief = {"epochs": 1, "warmup_epochs": 0, "batch_size": 64}
    short = first.optimisation.model_copy(update=brief)
    config = with_runs(small, optimisation=short, balanced=200, measured=None)
    few = {"steps": 20, "images": 10, "downstream": ("warped-digits-5-9",), "weights": ()}
    run, *others = EXPERIMENTS[name].parts(config.model_copy(update=few))
    events = [event for event in run.run(Resources()) if not isinstance(event, Heartbeat)]
    models = [part for part in others if part.name not in config.runs]
    return (
        *((part, event) for part in config.runs for event in events),
        *(
            (part.name, event)
            for part in models
            for event in part.run(Resources())
            if not isinstance(event, Heartbeat)
        ),
    )


def results_of(pairs: Recordings) -> Results:
    results = Results()
    for part, event in pairs:
        results.add(event, part)
    return results


def of_models(event: Recorded) -> bool:
    return "objective" in event.values


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
    """One metric of every network, or all of them, at a value."""

    def changed(event: Recorded) -> Recorded:
        if of_models(event):
            return event
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
def test_settings_are_described_and_seeds_bounded(name: str) -> None:
    experiment = find_experiment(name)
    for field_name, field in experiment.config.model_fields.items():
        said = field.description or ""
        assert said[:1].isupper(), field_name
        assert said.endswith("."), field_name
        if field_name.endswith("seed"):
            assert any(getattr(bound, "lt", None) == 2**63 for bound in field.metadata), field_name
    for settings in experiment.scales.values():
        assert experiment.config.model_validate(settings.model_dump()) == settings


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_claims_of_any_numbers(name: str) -> None:
    experiment, pairs = EXPERIMENTS[name], list(recordings(name))
    config = SMALL[name]
    texts = [claim.text for claim in experiment.judge(config, results_of(pairs))]
    assert texts
    for label, change in CHANGES.items():
        found = experiment.judge(config, results_of(change(pairs)))
        assert all(claim.evidence for claim in found), label
        assert label == "the last layer alone" or [one.text for one in found] == texts, label


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_claims_of_what_was_not_measured_do_not_hold(name: str) -> None:
    experiment, pairs = EXPERIMENTS[name], list(recordings(name))
    config = SMALL[name]
    unknown = results_of(at(math.nan)(pairs))
    assert not any(claim.held for claim in experiment.judge(config, unknown))
    for key in set().union(*(numbers(event) for _, event in pairs)):
        for change in (at(0.0, key), at(math.nan, key), without(key)):
            for own in (change, past_zero_error(change)):
                told = experiment.judge(config, results_of(own(pairs)))
                assert not [c for c in told if c.held and "nan" in c.evidence], key


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("label", SETTINGS)
def test_claims_of_other_settings(name: str, label: str) -> None:
    config = with_runs(SMALL[name], **SETTINGS[label])
    assert EXPERIMENTS[name].judge(config, results_of(list(recordings(name))))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_figures_of_zeros_and_of_what_was_not_measured(name: str) -> None:
    experiment, pairs = EXPERIMENTS[name], list(recordings(name))
    config = SMALL[name]
    first = next(iter(config.runs))
    mixed = [pair for pair in at(0.0)(pairs) if pair[0] == first]
    mixed += [pair for pair in at(math.nan)(pairs) if pair[0] != first]
    expected = [drawing.name for drawing in experiment.draw(config, results_of(pairs))]
    assert [drawing.name for drawing in experiment.draw(config, results_of(mixed))] == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("label", ["zeros", "untrained", "not measured"])
def test_every_figure_can_be_written(name: str, label: str) -> None:
    change = {**CHANGES, "not measured": at(math.nan)}[label]
    drawings = EXPERIMENTS[name].draw(SMALL[name], results_of(change(list(recordings(name)))))
    assert drawings
    for drawing in drawings:
        assert len(render(drawing, "svg")) > 1000
