"""Results of INFO's experiments, as the paper tells them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from lab.tests.experiments.story import Story
from lab.tests.observed import nudged, observed, with_each

from ncscope_lab.experiments.info import (
    connectivity,
    grokking,
    label_smoothing,
    pruning,
    semi_supervised,
    supervised,
    training,
)
from ncscope_lab.experiments.info.grokking import InfoGrokking
from ncscope_lab.experiments.info.modular_addition import Grokking
from ncscope_lab.experiments.info.pruning import PRUNED, TUNED, UNTRAINED
from ncscope_lab.experiments.info.semi_supervised import METHODS, SemiSupervised
from ncscope_lab.observations import Observation, Results

CLASSES = 10
BEFORE: Mapping[str, float] = {"accuracy": 0.1, "mir": 0.06, "hdr": 0.88}
"""Values of networks before training, of the small scales."""


def made(
    part: str, where: Mapping[str, Any], values: Mapping[str, float], ratio: float = 1.1
) -> Observation:
    """An observation of a last layer; a batch's estimate is a multiple of the exact value."""
    ratios = {key: values[key] for key in values if key != "accuracy"}
    batch = {f"{key}_batch": ratio * value for key, value in ratios.items()}
    base = {"part": part, "layer": "head input", "num_classes": CLASSES}
    return nudged(Observation.of_line(base | dict(where) | dict(values) | batch))


Change = Callable[[float, dict[str, float]], dict[str, float]]


def over_training(
    change: Change = lambda share, values: {}, learnt: float = 1.0, ratio: float = 1.0
) -> Results:
    """Results at `share` of the way to collapse.

    In every other epoch all values are a tenth back, so that accuracy and the ratios fall together
    as often as they rise; a third of the seeds goes back once less. From 0.4 on no training image
    is wrong. Values by batch are a multiple of the exact ones.
    """
    found = []
    for part, run in training.SMALL.runs.items():
        for index in range(11):
            share, back = index / 10, 0.1 * (index % 2) * (index < 9 or run.seed % 3 > 0)
            values = {
                "accuracy": 0.1 + 0.8 * share - back,
                "mir": 0.3 + 0.6 * share - back,
                "hdr": 0.8 - 0.79 * share + back,
                "back": back,
            }
            values |= change(share, values)
            at = {"epoch": index}
            right = {"accuracy": learnt * float(share >= 0.4)}
            found.append(made(part, at | {"split": "train"}, right))
            found.append(made(part, at | {"split": "test"}, values, ratio))
    return Results(found)


PAST = "past zero training error, the distance"
TRAINING = Story(
    experiment=training.EXPERIMENT,
    settings=training.SMALL,
    tell=over_training,
    count=7,
    turns=[
        ({"change": lambda share, values: {"mir": values["mir"] + 2 * values["back"]}}, ["accura"]),
        (
            {"change": lambda share, values: {"mir": 0.88 + 0.06 * share - values["back"]}},
            ["MIR rises"],
        ),
        (
            {"change": lambda share, values: {"mir": 0.9 - 0.5 * share - values["back"]}},
            ["MIR rises", PAST],
        ),
        (
            {"change": lambda share, value: {"mir": 0.3 + 0.4 * min(share, 0.4) - value["back"]}},
            [PAST],
        ),
        ({"change": lambda share, values: {"hdr": values["hdr"] + 0.1}}, ["HDR ends"]),
        (
            {"change": lambda share, values: {"hdr": 0.03 + 0.001 * share + values["back"]}},
            ["HDR falls", "past zero training error, HDR"],
        ),
        ({"change": lambda share, values: {"hdr": values["hdr"] - 2 * values["back"]}}, ["accura"]),
        ({"learnt": 0.9}, ["undecided: past zero training error"] * 2),
    ],
)


def between(part: str, depth: float, lift: float, learnt: float) -> list[Observation]:
    """Accuracy in a valley, MIR with a hill in it, HDR that falls off either end."""
    found = [
        made(part, {"epoch": 16, "split": f"train, {run} run"}, {"accuracy": learnt})
        for run in ("first", "second")
    ]
    for statistics, share in ((connectivity.REESTIMATED, 1.0), (connectivity.AS_THEY_ARE, 1.1)):
        for step in range(11):
            omega = step / 10
            valley = min(1, 1.3 * (1 - abs(2 * omega - 1)))
            values = {
                "accuracy": 0.95 - share * depth * valley,
                "mir": 0.5 - depth * valley / 4 + (lift if 4 <= step <= 6 else 0.0),
                "hdr": 0.2 - depth * valley / 4,
            }
            where = {"omega": omega, "statistics": statistics, "split": "between"}
            found.append(made(part, where, values))
    return found


VALLEYS = {0.3: 0.85, 0.03: 0.3, 0.003: 0.01}
"""Depth of the valley by rate."""


def connected(
    depths: Mapping[float, float] = VALLEYS,
    lift: float = 0.3,
    learnt: Mapping[float, float] = dict.fromkeys(VALLEYS, 1.0),
) -> Results:
    """Pairs of runs with networks between them, at several learning rates."""
    found = []
    for part, run in connectivity.SMALL.runs.items():
        rate = run.optimisation.learning_rate
        depth = depths[rate] * (1 + 0.01 * (run.seed % 3 - 1))
        found += between(part, depth, lift * (rate == 0.3), learnt[rate])
    return Results(found)


LOWER = "every lower learning rate"
CONNECTIVITY = Story(
    experiment=connectivity.EXPERIMENT,
    settings=connectivity.SMALL,
    tell=connected,
    count=1 + 2 + 3 + 1 + 3,
    turns=[
        ({"lift": 0.0}, ["for omega from 0.4 to 0.6, than"]),
        ({"depths": VALLEYS | {0.03: 0.9}}, ["accuracy varies less", "HDR (batches of 64) varies"]),
        ({"depths": VALLEYS | {0.003: 0.29}}, ["less than 0.02", *(2 * ["almost unchanged"])]),
        ({"depths": VALLEYS | {0.3: 0.5}}, ["random guessing"]),
        (
            {"depths": VALLEYS | {0.3: -0.1, 0.03: -0.05}},
            ["random guessing", "HDR (batches of 64) is lower", "re-estimated"],
        ),
        # Rates are compared only where networks are trained equally well.
        (
            {"learnt": {0.3: 1.0, 0.03: 1.0, 0.003: 0.98}},
            [*3 * ["undecided: "], *3 * ["undecided: "]],
        ),
        ({"learnt": dict.fromkeys(VALLEYS, 0.1)}, 10 * ["undecided: "]),
    ],
)

STEPS = [0, 10, 100, 1_000, 5_000, 10_000]
COURSE: Mapping[str, list[float]] = {
    "train": [0.04, 0.5, 1.0, 1.0, 1.0, 1.0],
    "test": [0.04, 0.05, 0.06, 0.30, 0.995, 1.0],
    "mir": [0.5, 0.7, 0.8, 0.6, 0.4, 0.3],
    "hdr": [0.8, 0.4, 0.2, 0.6, 0.3, 0.1],
}
RULE = InfoGrokking(training=Grokking(modulus=23, steps=10_000), seeds=(0, 1, 2))


def grokked(suffixes: tuple[str, ...] = ("", "_batch"), **changed: list[float]) -> Results:
    """Results of three runs; a changed course is that of all pairs, of batches, or of both.

    Values by batch are also between the steps, where they change evenly.
    """
    found: list[dict[str, Any]] = []
    for seed in RULE.seeds:
        for index, step in enumerate(STEPS):
            for split in ("train", "test"):
                when = step + seed * (step > 0)
                right = (changed.get(split) or COURSE[split])[index]
                row = {
                    **{"part": f"seed {seed}", "step": when, "epoch": when, "split": split},
                    **{
                        "layer": "head input",
                        "accuracy": right,
                        "accuracy_unmirrored": right - 0.01,
                    },
                }
                information = {
                    f"{key}{suffix}": (changed.get(key, []) if suffix in suffixes else [])[
                        index : index + 1
                    ]
                    or COURSE[key][index : index + 1]
                    for key in ("mir", "hdr")
                    for suffix in ("", "_batch")
                }
                if step != 10:
                    row |= {key: (1 + 0.01 * seed) * value for key, (value,) in information.items()}
                found.append(row)
        found += list(fill_steps([row for row in found if row["part"] == f"seed {seed}"]))
    found.sort(key=lambda row: (row["part"], row["step"]))
    return with_each(observed(found), nudged)


def fill_steps(rows: Sequence[Mapping[str, Any]], count: int = 8) -> Iterator[dict[str, Any]]:
    """Rows of values by batch between those of two steps."""
    for split in ("train", "test"):
        own = [row for row in rows if row["split"] == split and "mir_batch" in row]
        for one, other in pairwise(own):
            for share in (at / (count + 1) for at in range(1, count + 1)):
                values = {
                    key: one[key] + share * (other[key] - one[key])
                    for key in ("mir_batch", "hdr_batch")
                }
                when = round(one["step"] + share * (other["step"] - one["step"]))
                kept = {key: value for key, value in one.items() if key not in ("mir", "hdr")}
                yield kept | values | {"step": when, "epoch": when}


BY_HEART = "when all training pairs are known by heart, held-out accuracy exceeds chance by less "
REACHES = "held-out accuracy is 1 after"
LATE = "learning the rule takes at least 10 times as many steps"
MIR_FIRST = "until the training pairs are known by heart, MIR rises"
HDR_FIRST = "until the training pairs are known by heart, HDR falls"
MIR_SECOND = "then, until just before the rule is learnt, MIR falls"
HDR_SECOND = "then HDR rises by more than 0.05, for the most part at once"
MIR_END = "with the rule MIR reaches its minimum"
HDR_END = "HDR then falls from its highest value to less than half of it"
NEEDS_RULE = [MIR_SECOND, MIR_END, HDR_END]
FLAT = {"mir": [0.5] * 6, "hdr": [0.5] * 6}
GROKKING = Story(
    experiment=grokking.EXPERIMENT,
    settings=RULE,
    tell=grokked,
    count=3 + 6,
    turns=[
        # Batches decide, as in the paper.
        ({"suffixes": ("",), **FLAT}, []),
        (
            {"suffixes": ("_batch",), **FLAT},
            [MIR_FIRST, HDR_FIRST, MIR_SECOND, HDR_SECOND, MIR_END, HDR_END],
        ),
        (
            {"train": [0.04, 0.5, 0.991, 0.991, 0.991, 0.991]},
            [BY_HEART, MIR_FIRST, HDR_FIRST, MIR_SECOND, HDR_SECOND, MIR_END, HDR_END],
        ),
        ({"train": [0.04, 0.5, 0.6, 1.0, 1.0, 1.0]}, [BY_HEART, LATE, HDR_SECOND, HDR_END]),
        ({"test": [0.04, 0.05, 0.10, 0.30, 0.995, 1.0]}, [BY_HEART]),
        ({"test": [0.04, 0.05, 0.06, 0.30, 1.0, 0.999]}, [REACHES]),
        ({"test": [0.04, 0.05, 0.06, 0.30, 0.8, 0.9]}, [REACHES, LATE, *NEEDS_RULE]),
        ({"mir": [0.76, 0.7, 0.8, 0.6, 0.4, 0.3]}, [MIR_FIRST]),
        ({"mir": [0.5, 0.7, 0.8, 0.76, 0.9, 0.3]}, [MIR_SECOND]),
        ({"mir": [0.5, 0.7, 0.8, 0.3, 0.4, 0.5]}, [MIR_END]),
        ({"hdr": [0.1, 0.4, 0.2, 0.6, 0.3, 0.1]}, [HDR_FIRST]),
        ({"hdr": [0.8, 0.4, 0.2, 0.1, 0.1, 0.04]}, [HDR_SECOND, HDR_END]),
        ({"hdr": [0.8, 0.4, 0.2, 0.6, 0.1, 0.6]}, [HDR_SECOND, HDR_END]),
        ({"hdr": [0.8, 0.4, 0.2, 0.6, 0.5, 0.4]}, [HDR_END]),
    ],
)


def pruned(ratios: Mapping[str, float] = {}, **changed: Mapping[str, float]) -> Results:
    """Fine-tuned networks are nearly as the dense ones, untrained ones at chance.

    Values change linearly with the sparsity to those at the highest, which can be changed by stage,
    as can be how many times as large values by batch are.
    """
    dense = {"accuracy": 0.9, "dense_mir": 0.8, "dense_hdr": 0.0}
    most = {
        UNTRAINED: {"accuracy": 0.1, "dense_mir": 0.2, "dense_hdr": 0.9},
        PRUNED: {"accuracy": 0.2, "dense_mir": 0.5, "dense_hdr": 0.6},
        TUNED: {"accuracy": 0.88, "dense_mir": 0.78, "dense_hdr": 0.02},
    }
    small, found = pruning.SMALL, []
    for part, run in small.runs.items():
        for sparsity in small.sparsities:
            for stage in (UNTRAINED, PRUNED, TUNED):
                end = {**most[stage], **changed.get(stage, {})}
                share = 1 if stage == UNTRAINED else sparsity / small.sparsities[-1]
                values = {key: dense[key] + share * (end[key] - dense[key]) for key in dense}
                values["accuracy"] += 0.002 * (run.seed % 3)
                where = {"sparsity": sparsity, "stage": stage}
                found.append(made(part, where, values, ratios.get(stage, 1.1)))
    return Results(found)


KEEPS, RESTORES = ": after ", ": fine-tuning "
PRUNING = Story(
    experiment=pruning.EXPERIMENT,
    settings=pruning.SMALL,
    tell=pruned,
    count=2 * 3,
    turns=[
        ({TUNED: {"dense_hdr": 0.2}}, [KEEPS]),
        ({TUNED: {"dense_mir": 0.7}}, [KEEPS]),
        ({TUNED: {"dense_mir": 0.6}}, [KEEPS, RESTORES]),
        ({TUNED: {"accuracy": 0.7}}, [KEEPS]),
        # What fine-tuning restores of MIR is judged on its exact values.
        ({"ratios": {TUNED: 0.9}}, ["MIR with the dense features (batches of 64)"]),
        ({PRUNED: {"dense_mir": 0.78}}, [RESTORES]),
        (
            {TUNED: {"accuracy": 0.1, "dense_mir": 0.2, "dense_hdr": 0.9}},
            [KEEPS] * 3 + [RESTORES] * 3,
        ),
    ],
)


def smoothed(slope: float = 0.04, rise: float = 0.5) -> Results:
    """Metrics that training raises, and that rise by a slope with the smoothness."""
    found = []
    for part, run in label_smoothing.SMALL.runs.items():
        for epoch, more in ((0, 0.0), (20, rise + slope * run.label_smoothing)):
            values = dict.fromkeys(("accuracy", "mir", "hdr"), 0.2 + more)
            found.append(made(part, {"epoch": epoch, "split": "test"}, values))
    return Results(found)


SMOOTHING = Story(
    experiment=label_smoothing.EXPERIMENT,
    settings=label_smoothing.SMALL,
    tell=smoothed,
    count=3 + 2,
    turns=[
        # The levels go to 0.4, so slopes of 0.125 make a tenth of what training changes; from 0.1
        # on, those of 0.167.
        ({"slope": 0.12}, []),
        ({"slope": 0.16}, 3 * ["not held: "]),
        ({"slope": -0.13}, 3 * ["not held: "]),
        ({"slope": 0.17}, 3 * ["differs between"] + 2 * ["from 0.1 on"]),
        # Networks that learn nothing have no small variation.
        ({"slope": 0.0, "rise": 0.0}, 5 * [": "]),
    ],
)


def with_losses(gain: float = 0.005, mir: float = 0.1, hdr: float = -0.1) -> Results:
    """Accuracy, MIR and HDR with the gains of each loss."""
    gains = {"CE": (0.0, 0.0, 0.0), "CE + MI": (gain, mir, 0.0), "CE + ED": (gain, 0.0, hdr)}
    found = []
    for part, run in supervised.SMALL.runs.items():
        better, more, less = gains[supervised.loss_of(run)]
        accuracy = 0.9 + 0.01 * (run.seed % 3 - 1) + better
        values = {"accuracy": accuracy, "mir": 0.5 + more, "hdr": 0.2 + less}
        found.append(made(part, {"epoch": 0, "split": "test"}, BEFORE))
        found.append(made(part, {"epoch": 24, "split": "test"}, values))
    return Results(found)


ACCURACY = ("accuracy", "accuracy")
SUPERVISED = Story(
    experiment=supervised.EXPERIMENT,
    settings=supervised.SMALL,
    tell=with_losses,
    count=4,
    turns=[
        *(({"gain": gain}, ACCURACY) for gain in (0.0, -0.005, 0.02)),
        ({"mir": -0.1, "hdr": 0.1}, ["MIR", "HDR"]),
    ],
)

FEW_LABELS = SemiSupervised(
    runs={name: run for name, run in semi_supervised.SMALL.runs.items() if run.seed < 105}
)
"""The small scale with five seeds of the methods that claims are about."""
ERRORS: Mapping[str, float] = {
    **dict.fromkeys(METHODS, 0.4),
    "UDA": 0.31,
    "FixMatch": 0.3,
    "FlexMatch": 0.25,
    "SoftMatch": 0.22,
    "FreeMatch": 0.2,
    "FreeMatch + MI": 0.195,
    "FreeMatch + ED": 0.196,
}
MANY: Mapping[str, float] = {"FreeMatch + MI": 0.199, "FreeMatch + ED": 0.198}
"""Errors with 40 labels."""


def few_labels(
    changed: Mapping[str, float] = {}, labels: int = 20, most: Mapping[str, float] = {}
) -> Results:
    """Results of the runs, some methods' errors changed at one number of labels, and at most."""
    rows: list[dict[str, Any]] = []
    ratios = {"FreeMatch + MI": (0.6, 0.2), "FreeMatch + ED": (0.5, 0.1)}
    for name, run in FEW_LABELS.runs.items():
        method = name.split(", ")[2]
        own = {**ERRORS, **(MANY if run.labels == 40 else {})}
        own |= changed if run.labels == labels else {}
        own |= most if run.labels == 40 else {}
        mir, hdr = ratios.get(method, (0.5, 0.2))
        trained = {"error": own[method] + 0.01 * (run.seed - 100), "mir": mir, "hdr": hdr}
        before = {"error": 0.9, "mir": BEFORE["mir"], "hdr": BEFORE["hdr"]}
        for epoch, values in ((0, before), (10, trained)):
            where = {"part": name, "epoch": epoch, "split": "test", "layer": "last"}
            rows.append(where | values)
            if method != "supervised":
                classes = {
                    f"{key}_{k}": 0.1 for key in ("threshold", "histogram") for k in range(10)
                }
                shares = {"threshold": 0.5, "mask_rate": 0.9, "pseudo_label_accuracy": 0.8}
                rows.append(where | {"split": "unlabelled", "layer": "all"} | shares | classes)
    return with_each(observed(rows), nudged)


LESS_DIFFERENCE = "minimising the entropy difference"
SEMI_SUPERVISED = Story(
    experiment=semi_supervised.EXPERIMENT,
    settings=FEW_LABELS,
    tell=few_labels,
    count=3 * 9 + 2,
    turns=[
        ({"changed": {"FixMatch": 0.19}}, ["20 labels: FreeMatch errs"]),
        ({"changed": dict.fromkeys(semi_supervised.WEAK, 0.2)}, ["20 labels: Pi model"]),
        (
            {"changed": {"UDA": 0.18, "SoftMatch": 0.35}, "labels": 10},
            ["10 labels: errors of the methods"],
        ),
        ({"changed": {"FreeMatch + MI": 0.205}}, ["20 labels: maximising mutual information low"]),
        ({"changed": {"FreeMatch + ED": 0.2}}, [f"20 labels: {LESS_DIFFERENCE} low"]),
        ({"changed": {"FreeMatch + MI": 0.18}}, ["20 labels: maximising mutual information ch"]),
        (
            {"changed": {"FreeMatch + ED": 0.18}, "labels": 10},
            [f"10 labels: {LESS_DIFFERENCE} ch"],
        ),
        ({"changed": {"FreeMatch + MI": 0.1995}, "labels": 10}, ["FreeMatch + MI gains more"]),
        (
            {"changed": {"FreeMatch + ED": 0.25}, "labels": 40},
            [f"40 labels: {LESS_DIFFERENCE} {word}" for word in ("lowers", "changes")],
        ),
        # A term that harms less with few labels gains nothing there.
        (
            {"changed": {"FreeMatch + ED": 0.201}, "labels": 10, "most": {"FreeMatch + ED": 0.25}},
            [
                f"10 labels: {LESS_DIFFERENCE} low",
                f"40 labels: {LESS_DIFFERENCE} low",
                f"40 labels: {LESS_DIFFERENCE} ch",
                "digits: FreeMatch + E",
            ],
        ),
        (
            {"changed": {"FreeMatch + ED": 0.201}, "labels": 10},
            [f"10 labels: {LESS_DIFFERENCE} low", "digits: FreeMatch + E"],
        ),
    ],
)
STORIES = [TRAINING, CONNECTIVITY, GROKKING, PRUNING, SMOOTHING, SUPERVISED, SEMI_SUPERVISED]
