"""Results of `pfc/training` made up as the paper tells them, with what a test changes."""

from collections.abc import Sequence
from typing import Any

from lab.tests.observed import measured, measurement, nudged, with_each

from ncscope.measurement.records import GeodesicRecord
from ncscope_lab.experiments.pfc.paths import SAMPLE, WHOLE
from ncscope_lab.experiments.pfc.training import EXPERIMENT
from ncscope_lab.observations import Observation, Results

SMALL = EXPERIMENT.scales["small"]
EPOCHS = (0, 10, 50, 100)
"""Measured epochs; the error is zero from the second on."""
LAYERS = ("stem", "blocks.0", "blocks.1", "blocks.2", "blocks.3")
POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
TOLD: dict[str, Any] = {
    "pfc1": (4.0, 3.0, 2.0, 0.5, 0.3),
    "pfc2": (1.0, 0.8, 0.6, 0.5, 0.3),
    "pfc3": (0.3, 0.5, 0.8, 0.9, 1.0),
    "at zero error": {},
    "line": {},
    "start": {},
    "accuracy": 1.0,
    "straightness": (0.6, 0.65, 0.9, 0.97),
    "alignment_cosine": (0.4, 0.5, 0.6, 0.7),
    "remaining_pfc1": (1.1, 0.5, 0.2, 0.07),
    "energy_constant": (1.0, 1.5),
}
"""By metric, values of the layers at the end, of the epochs, or of both blocks at the end. In
``start``, ``at zero error`` and ``line``: values of the layers elsewhere, if not as they follow."""


def made(network: str = "", **changed: Any) -> Results:
    """All runs: collapse with decay, and paths that stay bent without; one network as changed."""
    found, paths = [], []
    for part, training in SMALL.runs.items():
        told = TOLD | (changed if part.split(", seed ")[0] == network else {})
        if not training_decays(part):
            told = told | {"straightness": (0.6, 0.6, 0.61, 0.62)}
        for index, epoch in enumerate(EPOCHS):
            found.append(_measured(part, training.seed, told, index))
            paths += _paths(part, told, index, epoch)
    results = measured(found)
    return with_each(Results([*results, *paths], results.measurements), nudged)


def training_decays(part: str) -> bool:
    """Return whether a run has weight decay."""
    return SMALL.runs[part].optimisation.weight_decay > 0


def _measured(part: str, seed: int, told: dict[str, Any], index: int) -> Any:
    """Layers at an epoch: against the order at the start, and a third less collapsed after it."""
    seeded = 1 + 0.01 * seed
    rows = {}
    for key in ("pfc1", "pfc2", "pfc3"):
        last = told[key]
        value = [each if key == "pfc3" else seeded * each for each in last]
        if index == 0:
            value = list(told["start"].get(key, [0.9 * each for each in value[::-1]]))
        elif index < len(EPOCHS) - 1:
            default = value if key == "pfc3" else [1.3 * each for each in value]
            value = list(told["at zero error"].get(key, default))
        rows[key] = value
    layers = {
        layer: {"accuracy": 0.1 if index == 0 else told["accuracy"]}
        | {key: row[at] for key, row in rows.items()}
        for at, layer in enumerate(LAYERS)
    }
    return measurement(
        part,
        EPOCHS[index],
        layers,
        comparable=LAYERS,
        relative_position=POSITIONS,
        geodesic=line_through(rows | told["line"]),
        straightness=told["straightness"][index] - 0.001 * seed,
    )


def line_through(curves: dict[str, Sequence[float]]) -> GeodesicRecord:
    """A straight line with one point for every layer, a hundredth below the values between."""
    near = (1.0, 0.99, 0.99, 0.99, 1.0)
    own = {
        key: [a * b for a, b in zip(curves[key], near, strict=True)]
        for key in ("pfc1", "pfc2", "pfc3")
    }
    return GeodesicRecord(t=list(POSITIONS), **own, alignment=1.0, transport_cost=1.0)


def _paths(part: str, told: dict[str, Any], index: int, epoch: int) -> list[Observation]:
    constants = ((0.19, 1.37), (0.5, 4.0), (0.9, 9.0), told["energy_constant"])
    first, last = constants[index] if training_decays(part) else constants[1]
    whole = {key: told[key][index] for key in ("alignment_cosine", "remaining_pfc1")}
    whole |= {
        "path_straight": told["straightness"][index] ** 2,
        "pairing_efficiency": 1.0,
        "path_even": 0.9,
        "path_optimality": 0.5,
    }
    rows: dict[str, dict[str, Any]] = {
        "blocks.0": {"energy_constant": first, "energy_bound": 60.0},
        "blocks.3": {"energy_constant": last, "energy_bound": 90.0},
        WHOLE: whole | {"relative_cost": 0.7},
    }
    return [
        Observation(epoch, epoch, SAMPLE, layer, part, values) for layer, values in rows.items()
    ]
