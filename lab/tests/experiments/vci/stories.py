"""Results of VCI's experiments, as the paper tells them."""

from collections.abc import Callable, Mapping, Sequence

from lab.tests.experiments.story import Story
from lab.tests.experiments.vci.checkpoints import from_tables
from lab.tests.experiments.vci.courses import FALLING, RISING, Courses, made, with_sweeps
from lab.tests.observed import nudged

from ncscope_lab.experiments.vci import imagenet, training, transfer
from ncscope_lab.experiments.vci.imagenet import SQUARED
from ncscope_lab.experiments.vci.training import MANY, NARROW, STEP, TEN
from ncscope_lab.experiments.vci.variability_runs import METRICS, name_setting
from ncscope_lab.observations import Observation, Results

RUNS = list(training.SMALL.runs)
LARGE_RUNS = list(imagenet.PAPER.runs)
Course = tuple[str, str, str, Sequence[float]]
"""Setting, split, key and values."""


def courses(runs: Sequence[str], changes: Sequence[Course]) -> Courses:
    """The courses of all seeds of the settings."""
    return {
        (run, split, key): course
        for setting, split, key, course in changes
        for run in runs
        if name_setting(run) == setting
    }


LESS: Course = (STEP, "train", "within_off_signal", (0.1, 0.2, 0.22, 0.25, 0.3))
"""Less variance is off V_B for 20 classes than for 10."""
SHARE = "the share of the variance off V_B, over the untrained network's share"
RISES = "there is a setting in which {} distance rises: rank correlation with the epoch above 0.5"


def over_training(changes: Sequence[Course] = (), **swept: float) -> Results:
    return with_sweeps(made(RUNS, courses(RUNS, [LESS, *changes])), RUNS, **swept)


TRAINING = Story(
    experiment=training.EXPERIMENT,
    settings=training.SMALL,
    tell=over_training,
    count=3 + 2 + 2 + 4 + 1 + 2,
    never=[RISES.format("squared"), RISES.format("cosine")],
    turns=[
        ({"changes": [(setting, split, key, course)]}, lost)
        for setting, split, key, course, lost in [
            (
                "cosine",
                "train",
                "fuzziness",
                RISING,
                ["fuzziness falls over training, in every se"],
            ),
            ("cosine", "train", "vci", RISING, ["VCI falls over training, in every setting"]),
            ("cosine", "test", "vci", RISING, ["VCI falls on held-out images too, in every sett"]),
            (STEP, "train", "within_in_signal", RISING, ["the variance within classes on V_B"]),
            (MANY, "train", "within_in_signal", RISING, ["the variance within classes on V_B"]),
            (TEN, "train", "within_off_signal", FALLING, ["the variance within classes o", SHARE]),
            (NARROW, "train", "vci", RISING, ["VCI falls over training, in every network for 100"]),
            (STEP, "train", "within_off_signal", RISING, [SHARE]),
        ]
    ]
    + [
        ({"vci": 0.405}, ["changes VCI by 1 % or more"]),
        ({"fuzziness": 12.0}, ["changes fuzziness by more than 10 times"]),
    ],
)


def large(settings: Sequence[str] = SQUARED, changes: Sequence[Course] = ()) -> Results:
    """Networks on many classes, of which some settings end lower by every metric."""
    lower = [
        (setting, "train", key, (9.0, 2.5, 1.5, 1.0, 0.5))
        for setting in settings
        for key in METRICS
    ]
    return made(LARGE_RUNS, courses(LARGE_RUNS, [*lower, *changes]))


LOWER = [f"squared error ends at a lower {title} than cross-entropy" for title in METRICS.values()]
IMAGENET = Story(
    experiment=imagenet.EXPERIMENT,
    settings=imagenet.PAPER,
    tell=large,
    count=15,
    turns=[
        ({"settings": SQUARED[:1]}, LOWER),
        ({"settings": ()}, LOWER),
        *(
            ({"changes": [(setting, split, key, RISING)]}, lost)
            for setting, split, key, lost in [
                (
                    "MSE",
                    "train",
                    "fuzziness",
                    ["fuzziness falls over training, in every resi", LOWER[0]],
                ),
                ("DeiT-T", "train", "nc1_quotient", ["squared distance falls over training, in e"]),
                ("DeiT-S", "test", "vci", ["VCI falls on held-out images too, in every network"]),
                (
                    "CE",
                    "train",
                    "within_in_signal",
                    ["the variance within classes on V_B falls"],
                ),
            ]
        ),
    ],
)

Change = Callable[[Observation], Mapping[str, float]]


def tabled(part: str = "none", change: Change = lambda row: {}, split: str = "train") -> Results:
    """The paper's tables, with other numbers of a part's training images or of another split."""

    def own(row: Observation) -> Observation:
        changes = row.split == split and row.part.startswith(part)
        return row.with_values(change(row)) if changes else row

    return from_tables(lambda row: own(nudged(row)))


BOTH_GROUPS = [
    "VCI's correlation with MLOG is above 0.7 in both groups",
    "VCI falls with the cosine penalty: coefficient below -0.7",
    "VCI rises with the mean log odds of the probes alone, in both groups: coefficient above 0",
    "VCI rises with the mean log odds of the probes at equal pretraining accuracy, in both",
]
TRANSFER = Story(
    experiment=transfer.EXPERIMENT,
    settings=transfer.PAPER,
    tell=tabled,
    count=12,
    turns=[
        *(
            ({"part": part, "change": lambda row, key=key, value=value: {key: value}}, lost)
            for part, key, value, lost in [
                ("temperature 0.1", "fuzziness", -99.0, ["fuzziness rises with MLOG over the"]),
                ("cosine penalty 10", "nc1_quotient", -9.0, ["squared distance rises with MLOG"]),
                (
                    *("cosine penalty 2.5", "cosine_within", 9.0),
                    ["cosine distance rises with MLOG", "The cosine distance rises with the cosi"],
                ),
                (
                    "cosine penalty 7.5",
                    "vci",
                    0.75,
                    [BOTH_GROUPS[0], "VCI falls with the cosine pen"],
                ),
            ]
        ),
        (
            {"part": "cosine penalty", "change": lambda row: {"vci": 1 - float(row["vci"])}},
            BOTH_GROUPS,
        ),
        (
            {"part": "temperature 0.1", "change": lambda row: {"accuracy": 0.72}, "split": "test"},
            ["held-out accuracy in pretraining differs by less than 3 points"],
        ),
    ],
)
STORIES = [TRAINING, IMAGENET, TRANSFER]
