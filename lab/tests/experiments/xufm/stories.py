"""Results of XUFM's experiments on networks and on descents from many starts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from lab.tests.experiments.story import Story
from lab.tests.observed import nudged, observed, with_each

from ncscope.models.taps import HEAD_INPUT
from ncscope_lab.experiments.xufm import extended, network
from ncscope_lab.experiments.xufm.extended import list_descent_claims
from ncscope_lab.experiments.xufm.network import DUALITIES, SURROGATES
from ncscope_lab.observations import Results

SMALL = network.EXPERIMENT.scales["small"]
MSE, CE = "digits, MSE, no bias", "digits, CE, bias"
LEVELS = (HEAD_INPUT, "stages.0", "stages.1", "stages.2")
"""In the order of a run's rows: what the experiment measures besides follows the measurement."""
EPOCHS = (0, 10, 60)
Paths = Mapping[str, Sequence[Sequence[float]]]

PATHS: Paths = {
    "nc1": ([9, 9, 9], [9, 4, 3], [9, 1, 0.02], [9, 0.3, 0.02]),
    "nc2_of": ([1, 1, 1], [1, 0.9, 0.9], [1, 0.5, 0.3], [1, 0.3, 0.2]),
    "nc2_etf": ([1, 1, 1], [1, 0.9, 0.9], [1, 0.5, 0.3], [1, 0.3, 0.1]),
}
"""By metric and level, the blocks before the classifier's input, values over the epochs."""
NONE: Paths = MappingProxyType({})
Models = Mapping[str, tuple[float, float]]
MODELS: Models = {"linear": (2.0, 0.4), "relu": (0.8, 0.8)}
ALIKE: Models = dict.fromkeys(MODELS, (1.0, 1.0))


def made(
    name: str = "",
    changed: Paths = NONE,
    accuracy: Sequence[float] = (0.1, 1.0, 1.0),
    models: Models | None = None,
) -> Results:
    """Results of all runs, those of one network as it is changed, and of the models."""
    found: list[dict[str, Any]] = []
    for part, training in SMALL.runs.items():
        ours = bool(name) and part.startswith(name)
        paths = PATHS | {"nc2_of": _farther()} if training.loss != "mse" else PATHS
        paths = paths | (changed if ours else {})
        off = 1 + 0.01 * training.seed
        for at, epoch in enumerate(EPOCHS):
            for layer in LEVELS:
                row: dict[str, Any] = {
                    "part": part,
                    "split": "train",
                    "epoch": epoch,
                    "layer": layer,
                }
                level = LEVELS.index(layer) - 1  # the classifier's input is the last of a path
                row |= {key: float(paths[key][level][at]) * off ** (at + 1) for key in PATHS}
                if layer == HEAD_INPUT:
                    row["accuracy"] = (accuracy if ours else (0.1, 1.0, 1.0))[at]
                    row["loss"] = (2.0, 0.1, 0.01 if row["accuracy"] == 1 else 0.7)[at]
                    falling = paths.get("duality", [[1.0, 0.5, 0.2]])[0]
                    row[DUALITIES[training.loss]] = falling[at] * off**at
                else:
                    row["block"] = level + 1
                found.append(row)
    return Results([*with_each(observed(found), nudged), *model_results(models or MODELS)])


def _farther() -> list[list[float]]:
    """The orthogonal frame's distances under cross-entropy."""
    return [[1, 1, 1], [1, 0.9, 0.9], [1, 0.8, 0.7], [1, 0.6, 0.5]]


def model_results(models: Models) -> Results:
    """Decades by which NC1 of H1 falls, that of H2 by 2, and the share that NC2 of H1 keeps."""
    return observed(
        {
            "part": part,
            "layer": layer,
            "step": step,
            "objective": 1.0,
            "minimum": 0.5,
            "nc1": 10 ** -((models[activation][0] if layer == "H1" else 2.0) * share),
            "nc2_of": models[activation][1] if layer == "H1" and step else 1.0,
            "nc3_alignment": 0.1,
        }
        for activation, part in SURROGATES.items()
        for step, share in ((0, 0.0), (100, 1.0))
        for layer in ("H1", "H2")
    )


FAR = ([2, 2, 2], [2, 1.8, 1.8], [2, 1.5, 1.4], [2, 1.2, 1.2])
LEVEL = "at the end every level has a lower NC1 than the level before"
NEAREST = (
    "at the end the deepest features are nearer to their frame (nc2_etf) than the features of any "
    "block before the last"
)
HALVED = "training at least halves the distance of the deepest features to their frame"
ONLY = (
    "only the deepest features approach their frame: in every block before the last, training "
    "reduces the distance to the frame by less than half as many decades as in the deepest"
)
RATES = (
    "the fall of NC1 at the first level over the fall at the last, both in decades, is nearer "
    "to that of the ReLU model than to that of the linear model"
)
STAYS = "zero training error stays: at every measurement past it no training image is misclassified"
PAST = "past zero training error NC1 of the deepest features falls to less than a tenth"


NEARER, SIMPLEX = (
    "digits: of the distance between the deepest class means and an orthogonal frame, training "
    "leaves a smaller share under MSE than under cross-entropy",
    "digits: under cross-entropy training leaves a smaller share of the distance between the "
    "deepest class means and a simplex than of their distance to an orthogonal frame",
)
NETWORK = Story(
    experiment=network.EXPERIMENT,
    settings=SMALL,
    tell=made,
    count=2 * 8 + 2,
    turns=[
        *(
            ({"name": CE, "changed": changed}, [f"{CE}: {text}"])
            for changed, text in [
                ({"nc1": ([9, 9, 2.9], *PATHS["nc1"][1:])}, LEVEL),
                ({"nc1": (*PATHS["nc1"][:3], [9, 0.15, 0.02])}, PAST),
                ({"nc2_etf": ([1, 1, 1], [0.16, 0.9, 0.1], *PATHS["nc2_etf"][2:])}, NEAREST),
                ({"nc2_etf": (*PATHS["nc2_etf"][:3], [1, 0.5, 0.52]), "nc2_of": FAR}, HALVED),
                ({"nc2_etf": ([1, 1, 1], [1, 0.9, 0.2], *PATHS["nc2_etf"][2:])}, ONLY),
                (
                    {"duality": ([0.2, 0.5, 0.15],)},
                    "training at least halves the distance of the classifier from the class means",
                ),
                ({"nc1": ([9, 4, 0.08], [9, 4, 0.05], [9, 1, 0.03], [9, 0.3, 0.02])}, RATES),
            ]
        ),
        # Collapse past zero error needs zero error.
        (
            {"name": MSE, "accuracy": (0.1, 0.99, 0.99)},
            [f"undecided: {MSE}: {STAYS}", f"{MSE}: {PAST}"],
        ),
        ({"name": MSE, "accuracy": (0.1, 1.0, 0.99)}, [f"not held: {MSE}: {STAYS}"]),
        ({"name": CE, "changed": {"nc2_of": PATHS["nc2_of"]}}, [NEARER]),
        (
            {"name": CE, "changed": {"nc2_of": [*_farther()[:3], [1, 0.3, 0.08]]}},
            [NEARER, SIMPLEX],
        ),
        ({"models": ALIKE}, [f"undecided: {name}: {RATES}" for name in (MSE, CE)]),
    ],
)

EXTENDED_SETTINGS = extended.EXPERIMENT.scales["small"].model_copy(
    update={"starts": 10, "first_seed": 0}
)
N = 200
METRICS = ("nc1", "nc2_of", "nc3_alignment", "nuclear_cost")
Last = dict[str, float]


def descents(relu: Mapping[int, Last] = {}, linear: Mapping[int, Last] = {}) -> Results:
    """Descents that arrive, unless some of their last numbers are changed."""
    found = []
    for name, run in EXTENDED_SETTINGS.runs.items():
        rectified = run.activation == "relu"
        last = (relu if rectified else linear).get(run.seed, {})
        ends = {"H1": 0.4 if rectified else 1e-8, "H2": 1e-6}
        for step in (0, 100):
            for level in ("H1", "H2"):
                decades = (4.0 if rectified and level == "H1" else 8.0) + 0.1 * run.seed
                row = {
                    "part": name,
                    "step": step,
                    "layer": level,
                    "objective": 0.06 if step else 0.6,
                    "minimum": 0.06,
                    "nc1": 10**-decades if step else 1.0,
                    "nc2_of": ends[level] * (1 + 0.1 * run.seed) if step else 1.0,
                    "nc3_alignment": 1e-5 * (1 + run.seed) if step else 1.0,
                    "nuclear_cost": 1e-9 if step else 0.005,
                    "lost_samples": 0,
                    "samples": N,
                }
                found.append(row | (last if step else {}))
    return observed(found)


def lost(samples: int) -> Last:
    return {"objective": 0.06 + 0.97 * samples / (2 * N), "lost_samples": samples, "nc2_of": 0.3}


def of_all(**last: float) -> Mapping[int, Last]:
    """Last numbers of every start."""
    return dict.fromkeys(range(10), last)


MOST = "K = 4, ReLU: gradient descent arrives"
FAR_AWAY: Mapping[int, Last] = of_all(objective=0.5)
EXTENDED = Story(
    experiment=replace(extended.EXPERIMENT, claims=list_descent_claims(4)),
    settings=EXTENDED_SETTINGS,
    tell=descents,
    count=14,
    turns=[
        ({"relu": {9: lost(1)}}, []),
        (
            {"relu": {at: lost(1 + at % 2) for at in range(1, 10)}},
            [f"not held: {MOST}", "K = 4, the levels differ more in the rate"],
        ),
        ({"relu": {at: lost(1) for at in range(5)}}, [f"undecided: {MOST}"]),
        # An excess that no lost sample explains.
        ({"relu": {0: lost(1) | {"lost_samples": 0}}}, ["not held: K = 4, ReLU: every start ends"]),
        # What arrives must collapse.
        ({"relu": of_all(nuclear_cost=1e-4)}, ["ReLU"]),
        ({"relu": of_all(nc2_of=0.05)}, ["ReLU", "ReLU"]),
        ({"linear": of_all(nc1=1)}, ["K = 4", "K = 4"]),
        ({"linear": FAR_AWAY, "relu": FAR_AWAY}, 14 * [""]),
    ],
)
STORIES = [NETWORK, EXTENDED]
