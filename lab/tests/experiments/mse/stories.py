"""Results of MSE's experiments, as the paper tells them."""

from collections.abc import Mapping, Sequence
from operator import mul
from types import MappingProxyType
from typing import Any

from lab.tests.experiments.mse.histories import ACCURACY, Columns, history_of, small
from lab.tests.experiments.story import Story

from ncscope_lab.experiments.mse import collapse, decomposition, loss_comparison, robustness
from ncscope_lab.experiments.mse.collapse import FALLS
from ncscope_lab.experiments.mse.networks import BOTH, EXCEPTIONS, MSETrainings, name_network
from ncscope_lab.experiments.mse.robustness import MSERobustness
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Runs, replace_fields

NONE: Columns = MappingProxyType({})
KEYS = [*FALLS, "nc4_disagreement"]
COLLAPSING = dict.fromkeys(KEYS, (4, 3, 2, 0.9)) | {"nc4_disagreement": (0.9, 0.1, 0.1, 0)}
GAINING = (0.1, 0.8, 0.9, 0.95)
NETWORKS = ("digits, VGG", "digits, ResNet", "digits, DenseNet", "mnist-5k, VGG")


def collapsed(
    settings: MSETrainings, changed: Mapping[str, Columns], held_out: Sequence[float]
) -> Results:
    """Networks that collapse, but for those that have other numbers."""
    found = []
    for run in Runs.of(settings.runs, Results()):
        train = COLLAPSING | dict(changed.get(name_network(run), {}))
        found += history_of(run.name, train, {"accuracy": held_out})
    return Results(found)


COLLAPSE_SETTINGS = small("mse")


def of_collapse(
    changed: Mapping[str, Columns] = {}, held_out: Sequence[float] = GAINING
) -> Results:
    return collapsed(COLLAPSE_SETTINGS, changed, held_out)


def little(key: str, *networks: str) -> dict[str, Any]:
    """A metric that falls too little in some networks."""
    course = (1, 1, 1, 0.92 if "nc1" not in key else 0.6)
    return {"changed": {network: {key: course} for network in networks}}


TEXTS = [claim.text for claim in collapse.EXPERIMENT.judge(COLLAPSE_SETTINGS, of_collapse())]
FALLS_TEXTS = dict(zip(KEYS, TEXTS[1:], strict=False))
COLLAPSE = Story(
    experiment=collapse.EXPERIMENT,
    settings=COLLAPSE_SETTINGS,
    tell=of_collapse,
    count=2 + len(KEYS),
    turns=[
        *((little(key, NETWORKS[0]), []) for key in KEYS),
        *((little(key, *NETWORKS[:2]), [f"not held: {FALLS_TEXTS[key]}"]) for key in KEYS),
        # Without a terminal phase no fall is judged, but that of NC4, which is of the last epoch.
        (
            {"changed": {each: {"accuracy": (0, 0, 0, 1)} for each in NETWORKS}},
            [f"not held: {TEXTS[0]}"]
            + [f"undecided: {FALLS_TEXTS[key]}" for key in FALLS]
            + [f"undecided: {TEXTS[-1]}"],
        ),
        ({"held_out": (0, 0, 0.9, 0.88)}, [f"not held: {TEXTS[-1]}"]),
    ],
)

EXCEPTIONAL = MSETrainings(
    runs={n: run for n, run in collapse.PAPER.runs.items() if run.data in ("stl10", "mnist")}
)


def exceptions(end: float = 1.9) -> Results:
    """The paper's networks of two data sets, of which the exceptions end at some NC1."""
    changed = {key: {"nc1": (4, 3, 2, end)} for key in EXCEPTIONS}
    return collapsed(EXCEPTIONAL, changed, GAINING)


OF_EXCEPTIONS = Story(
    experiment=collapse.EXPERIMENT,
    settings=EXCEPTIONAL,
    tell=exceptions,
    count=3 + len(KEYS),
    turns=[({"end": 0.9}, ["not held: "])],
)

DECOMPOSITION_SETTINGS = MSETrainings(  # the rate falls after epochs 4 and 8
    runs={name: replace_fields(one, epochs=12) for name, one in small("mse").runs.items()}
)
ON_PATH = {
    "mse_nc1": (0.1, 0.2, 0.1, 0.01),
    "mse_nc23": (0.4, 0.1, 1e-3, 1e-4),
    "mse_off_path": (0.3, 0.04, 8e-3, 8e-4),
}
NEARER = ON_PATH | {"mse_off_path": (0.3, 0.02, 3e-3, 2e-4)}
EARLY = {"accuracy": (0.1, 1, 1, 1), "mse_off_path": (0.3, 0.6, 8e-3, 8e-4)}


def decomposed(evaluation: Columns = NONE, training: Columns = NONE) -> Results:
    """Networks near the central path, three of four with other numbers by the mode."""
    found = []
    for name in DECOMPOSITION_SETTINGS.runs:
        own = "densenet" not in name
        train, mode = (evaluation, training) if own else ({}, {})
        found += history_of(name, ON_PATH | dict(train), training_mode=NEARER | dict(mode))
    return Results(found)


def off(*course: float) -> dict[str, Columns]:
    """Distances from the path in training mode."""
    return {"training": {"mse_off_path": course}}


DECOMPOSITION = Story(
    experiment=decomposition.EXPERIMENT,
    settings=DECOMPOSITION_SETTINGS,
    tell=decomposed,
    count=7,
    turns=[
        ({"evaluation": {"accuracy": (0, 0, 0, 0.9)}}, [2, 3, 6]),
        ({"evaluation": {"mse_off_path": (0.3, 0.04, 2e-2, 2e-2)}}, []),  # a remark
        (off(0.3, 0.02, 1e-3, 1.2e-3), [0, 3]),
        (off(0.3, 0.2, 2e-2, 2e-4), [1, 2, 3]),
        ({"evaluation": EARLY, **off(0.3, 0.2, 3e-3, 2e-4)}, [2]),
        (off(0.3, 0.04, 6e-3, 6e-4), [3]),
        (off(0.3, 0.003, 3e-3, 2e-4), [4]),
        (
            {
                "training": {
                    "mse_nc1": (0.1, 0.2, 0.1, 1.5e-4),
                    "mse_off_path": (0.3, 0.02, 1e-3, 2e-6),
                }
            },
            [5],
        ),
        ({"training": {"mse_nc23": (0.02, 0.01, 1e-2, 1e-4)}}, [6]),
    ],
)

COMPARISON_SETTINGS = small(*BOTH)
TRAIN = {"mse": (8, 3, 0.9, 0.1), "cross-entropy": (8, 5, 3, 1)}
GOLD = {"mse": (8, 6, 4, 3), "cross-entropy": (8, 7, 5, 4)}


def compared(
    loss: str = "mse",
    train: Sequence[float] | None = None,
    test: Sequence[float] | None = None,
    *,
    left: float = 10,
    accuracy: Sequence[float] = ACCURACY,
    gap: float = 0,
) -> Results:
    """NC1 falls less on the harder data; under one loss with other numbers."""
    found = []
    for name, run in COMPARISON_SETTINGS.runs.items():
        own, hard = run.loss == loss, run.data != "digits"
        seen = train if own and train else TRAIN[run.loss]
        held_out = test if own and test else GOLD[run.loss]
        end = left if own else 10
        scale = (5, end, end, end) if hard else (1, 1, 1, 1)  # larger before training too
        right = 0.8 - 0.1 * hard + (gap if run.loss == "mse" else 0)
        found += history_of(
            name,
            {"nc1": list(map(mul, scale, seen)), "accuracy": accuracy if own else ACCURACY},
            {"nc1": list(map(mul, scale, held_out)), "accuracy": [0.1, 0.3, right, right]},
        )
    return Results(found)


OTHER = {"loss": "cross-entropy"}
COMPARISON = Story(
    experiment=loss_comparison.EXPERIMENT,
    settings=COMPARISON_SETTINGS,
    tell=compared,
    count=12,
    turns=[
        ({"accuracy": (0, 0, 0, 0.9)}, [0, 5, 6]),
        ({"train": (8, 5.9, 3, 1)}, [1]),  # as late, but from a higher value at epoch 4
        ({"train": (8, 2, 0.9, 0.8)}, [2, 6]),  # sooner, but no steeper
        ({"train": (8, 2, 1.5, 1)}, [2, 6]),  # half-way sooner, and at the least as late
        ({"gap": 0.02}, [3]),
        ({"test": (8.1, 6, 0.2, 0.1)}, [4]),
        ({"test": (8, 4, 3.1, 3)}, [5]),
        ({"test": (8, 40, 40, 4)}, [6]),
        ({"left": 5}, [7]),
        (OTHER | {"test": (8, 2.9, 2.1, 1)}, [8, 10]),
        (OTHER | {"test": (8, 5, 4.1, 4)}, [9]),
        (OTHER | {"left": 5}, [11]),
    ],
)

ROBUSTNESS_SETTINGS = MSERobustness(runs=small(*BOTH).runs)
FOOLED = {"fooled": (1, 1, 1, 1)}
GROWING = {"robustness": (0.1, 0.2, 0.3, 0.6)} | FOOLED
LOWER = {"robustness": (0.1, 0.1, 0.2, 0.3)} | FOOLED


def attacked(
    mse: Columns = NONE, last: Columns = NONE, accuracy: Sequence[float] = ACCURACY
) -> Results:
    """Three networks under MSE, the last with other numbers, and under cross-entropy."""
    found = []
    for name, one in ROBUSTNESS_SETTINGS.runs.items():
        own = GROWING | dict(mse if "warped" not in name else last)
        chosen = own if one.loss == "mse" else LOWER
        found += history_of(name, {"accuracy": accuracy}, attacked=chosen)
    return Results(found)


ROBUSTNESS = Story(
    experiment=robustness.EXPERIMENT,
    settings=ROBUSTNESS_SETTINGS,
    tell=attacked,
    count=3,
    turns=[
        ({"last": {"robustness": (0.1, 0.2, 0.25, 0.2)}}, []),  # one network may lose
        ({"accuracy": (0, 0, 0, 0.9)}, [0, 1]),
        ({"last": {"fooled": (0.9, 0.9, 1, 1)}}, []),
        ({"last": {"fooled": (1, 1, 1, 0.99)}}, [0]),
        ({"mse": {"robustness": (0.1, 0.2, 0.58, 0.6)}}, [1]),
        ({"mse": {"robustness": (0.1, 0.2, 0.7, 0.6)}}, [1]),
        (
            {
                "mse": {"robustness": (0.1, 0.1, 0.1, 0.31)},
                "last": {"robustness": (0.1, 0.1, 0.1, 0.31)},
            },
            [2],
        ),
    ],
)
STORIES = [COLLAPSE, OF_EXCEPTIONS, DECOMPOSITION, COMPARISON, ROBUSTNESS]
