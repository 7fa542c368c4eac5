"""Results of `pfc/training` and of the demo, as the paper tells them."""

from collections.abc import Mapping, Sequence
from math import nan
from types import MappingProxyType
from typing import Any

from lab.tests.experiments.story import Story
from lab.tests.observed import measured, measurement, nudged, with_each

from ncscope.measurement.records import GeodesicRecord
from ncscope_lab.experiments.pfc import demo, training
from ncscope_lab.experiments.pfc.demo import PART, DemoConfig
from ncscope_lab.experiments.pfc.paths import SAMPLE, WHOLE
from ncscope_lab.observations import Observation, Results

SMALL = training.EXPERIMENT.scales["small"]
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


def made(network: str = "digits", **changed: Any) -> Results:
    """All runs: collapse with decay, and paths that stay bent without; one network as changed."""
    found, paths = [], []
    for part, run in SMALL.runs.items():
        told = TOLD | (changed if part.split(", seed ")[0] == network else {})
        if not training_decays(part):
            told = told | {"straightness": (0.6, 0.6, 0.61, 0.62)}
        for index, epoch in enumerate(EPOCHS):
            found.append(_measured(part, run.seed, told, index))
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


MORE = "layer to layer more steadily"
FALLING = "past zero training error PFC{} of the last layer falls"
TRAINING = Story(
    experiment=training.EXPERIMENT,
    settings=SMALL,
    tell=made,
    count=2 * 17 + 16,  # one network has no controls
    turns=[
        (
            {"straightness": (0.6, 0.65, 0.7, 0.79)},
            ["training makes paths straighter", "paths are straight"],
        ),
        ({"straightness": (0.6, 0.65, 0.7, 0.9)}, ["at the end paths are straight lines"]),
        (
            {"straightness": (0.6, 0.6, 0.61, 0.62)},
            ["training makes paths", "paths are straight lines", "paths are straighter with"],
        ),
        ({"alignment_cosine": (0.4, -0.01, 0.6, 0.7)}, ["the premises of theorem 1"]),
        ({"remaining_pfc1": (1.1, 0.5, 0.2, 0.11)}, ["the premises of theorem 1"]),
        ({"energy_constant": (5.0, 2.0)}, ["at the end the ratio of a block's energy"]),
        ({"pfc1": (4.0, 0.5, 3.0, 2.0, 0.3)}, ["at the end PFC1 falls from layer to layer"]),
        ({"pfc2": (1.0, 0.4, 0.8, 0.6, 0.3)}, ["PFC2 falls from layer", "PFC2 falls along"]),
        ({"pfc3": (0.3, 0.9, 0.5, 0.8, 1.0)}, ["PFC3 rises from layer", "PFC3 rises along"]),
        # An order whose differences mean nothing.
        (
            {"pfc2": (0.309, 0.306, 0.304, 0.302, 0.3)},
            ["PFC2 falls from layer", "PFC2 falls along", "predicts PFC2"],
        ),
        ({"start": {"pfc1": (5.0, 4.0, 3.0, 2.0, 1.0)}}, [f"error PFC1 falls from {MORE}"]),
        ({"start": {"pfc2": (1.0, 0.9, 0.8, 0.7, 0.6)}}, [f"error PFC2 falls from {MORE}"]),
        ({"start": {"pfc3": (0.3, 0.5, 0.6, 0.7, 0.8)}}, [f"error PFC3 rises from {MORE}"]),
        ({"line": {"pfc2": (1.0, 0.4, 0.8, 0.6, 0.3)}}, ["PFC2 falls along", "predicts PFC2"]),
        ({"line": {"pfc3": (0.3, 0.9, 0.5, 0.8, 1.0)}}, ["PFC3 rises along the straight line"]),
        ({"line": {"pfc1": (4.0, 1.0, 0.5, 0.4, 0.3)}}, ["predicts PFC1"]),
        ({"line": {"pfc2": (1.0, 0.5, 0.4, 0.35, 0.3)}}, ["predicts PFC2"]),
        ({"at zero error": {"pfc1": (4.0, 3.0, 2.0, 0.5, 0.31)}}, [FALLING.format(1)]),
        ({"at zero error": {"pfc2": (1.0, 0.8, 0.6, 0.5, 0.31)}}, [FALLING.format(2)]),
        # Behind the effective depth the order is free.
        ({"pfc1": (4.0, 3.0, 2.0, 0.3, 0.31), "pfc3": (0.3, 0.5, 0.8, 1.0, 1.0)}, []),
        ({"accuracy": 0.99}, 5 * ["undecided: digits: past zero training error"]),
    ],
)

Metrics = Mapping[str, float]
NONE: Metrics = MappingProxyType({})
DEEP: Mapping[str, Sequence[float]] = {
    "pfc1": (0.6, 0.3, 0.2, 0.1),
    "pfc2": (0.7, 0.5, 0.3, 0.2),
    "pfc3": (0.9, 0.95, 0.97, 1.0),
}
"""Values of the demo's layers at the end."""
EARLY: Metrics = {
    "accuracy": 1.0,
    "nc1": 0.1,
    "nc2_etf": 0.3,
    "nc3_self_duality": 0.2,
    "nc4_disagreement": 0.0,
}
LATE: Metrics = {key: value / 4 for key, value in EARLY.items()} | {"accuracy": 1.0}
DEMO_STEPS = (5, 10, 15, 20, 35, 50)
"""Measured epochs from zero training error on."""


def collapsed(
    last: Metrics = NONE,
    deep: Mapping[str, Sequence[float]] = {},
    between: Mapping[int, Metrics] = {},
) -> Results:
    """A demo whose error is zero from epoch 5 on, and a test set at the end.

    Args:
        last: Other values of the last layer at the end.
        deep: Other values of all layers from zero error on.
        between: Other values of the last layer at some epochs.
    """
    start, end = {key: 10 * value for key, value in EARLY.items()}, {**LATE, **last}
    course = {
        epoch: {key: (1 - 0.05 * epoch) * value for key, value in start.items()}
        | {"accuracy": 0.1 + 0.2 * epoch, "nc4_disagreement": 0.9}
        for epoch in range(5)
    }
    for index, epoch in enumerate(DEMO_STEPS):
        share = index / (len(DEMO_STEPS) - 1)
        course[epoch] = {key: (1 - share) * EARLY[key] + share * end[key] for key in EARLY}
    found = []
    for epoch, own in course.items():
        curves = {**DEEP, **deep} if epoch >= 5 else DEEP
        layers = [dict(zip(curves, at, strict=True)) for at in zip(*curves.values(), strict=True)]
        layers[-1] |= own | dict(between.get(epoch, {}))
        names = ("stem", *(f"blocks.{index}" for index in range(len(layers) - 1)))
        found.append(measurement(PART, epoch, dict(zip(names, layers, strict=True))))
    return measured([*found, measurement(PART, 50, {}, split="test")])


FIVE = {key: (*values, values[-1]) for key, values in DEEP.items()}
DEMO = Story(
    experiment=demo.EXPERIMENT,
    settings=DemoConfig(width=8, depth=3),
    tell=collapsed,
    count=8,
    turns=[
        (
            {
                "last": {"accuracy": 0.99},
                "between": {epoch: {"accuracy": 0.9} for epoch in DEMO_STEPS},
            },
            ["not held: Training", *(f"undecided: NC{number}" for number in (1, 2, 3, 4))],
        ),
        ({"last": {"accuracy": 0.99}}, ["Training"]),
        *(({"last": {"nc1": value}}, ["NC1"]) for value in (0.1, nan, 0.092)),
        ({"last": {"nc2_etf": 0.31}}, ["NC2"]),
        ({"last": {"nc3_self_duality": 0.21}}, ["NC3"]),
        ({"last": {"nc4_disagreement": 0.001}}, ["NC4"]),
        # Everything fell from epoch 0, but not since the error is zero.
        ({"last": EARLY}, ["NC1", "NC2", "NC3"]),
        # NC2 ends low, but was higher than at zero error in between: a fall needs a trend.
        ({"between": {e: {"nc2_etf": 0.3 + e / 1000} for e in DEMO_STEPS[1:-1]}}, ["NC2"]),
        *(({"deep": {"pfc1": (0.6, value, 0.2, 0.1)}}, ["PFC1"]) for value in (0.61, nan)),
        ({"deep": {"pfc2": (0.7, 0.71, 0.3, 0.2)}}, ["PFC2"]),
        ({"deep": {"pfc3": (0.9, 0.89, 0.97, 1.0)}}, ["PFC3"]),
        # An order is claimed up to the effective depth only.
        ({"deep": FIVE | {"pfc1": (*DEEP["pfc1"], 0.5), "pfc3": (*DEEP["pfc3"], 0.99)}}, []),
        (
            {"deep": FIVE | {"pfc1": (*DEEP["pfc1"], 0.5), "pfc3": (0.9, 0.95, 1.0, 1.0, 0.99)}},
            ["PFC1", "PFC2", "PFC3"],
        ),
    ],
)
STORIES = [TRAINING, DEMO]
