r"""INFO section 6, table 1: few labels, FreeMatch with the information losses and its rivals.

The paper trains on CIFAR-10 with 10, 40 and 250 labels (WRN-28-2), CIFAR-100 with 400 and 2500
(WRN-28-8) and STL-10 with 40 and 1000 (WRN-37-2), for $2^{20}$ steps of 64 labelled images and 7
times as many unlabelled ones. Settings that INFO does not state are those of FreeMatch (Wang et al.
2023), see `ncscope.lab.training.semi_supervised.settings`, and of the other methods' TorchSSL, see
`ncscope.lab.training.semi_supervised.methods`. Batches of 64 labelled images are our assumption:
INFO prints this size for supervised training only. The weights of the information losses, which it
does not print, are 0.1 here; `SemiSupervised.weights` adds runs with others.

VAT, MixMatch, ReMixMatch, Dash, MPL and OTMatch are not run; the table has their printed values.

The small scale has handwritten digits with 10, 20 and 40 labels, a network of three convolutions,
and 500 steps of 16 labelled and 112 unlabelled images, 16 for methods with one kind of view.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from pydantic import BaseModel, ConfigDict, Field
from scipy.stats import spearmanr

from ncscope.lab.claims import Claim, above
from ncscope.lab.experiment import Experiment, Part
from ncscope.lab.experiments.info.information_runs import change_weights, summarise, write_spread
from ncscope.lab.figures import collect_points, draw_grid
from ncscope.lab.quantities import AnyQuantity, Run, Runs, average, last
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.semi_supervised.run import few_labels_events
from ncscope.lab.training.semi_supervised.settings import FewLabels
from ncscope.report import panels
from ncscope.report.tables import Summary

METHODS: Mapping[str, Mapping[str, Any]] = {
    "supervised": {"method": "supervised"},
    "Pi model": {"method": "pi-model"},
    "Pseudo Label": {"method": "pseudo-label"},
    "MeanTeacher": {"method": "mean-teacher"},
    "UDA": {"method": "uda"},
    "FixMatch": {"method": "fixmatch"},
    "FlexMatch": {"method": "flexmatch"},
    "FreeMatch": {"method": "freematch"},
    "SoftMatch": {"method": "softmatch"},
    "FreeMatch + MI": {"method": "freematch", "mutual_information": 0.1},
    "FreeMatch + ED": {"method": "freematch", "entropy_difference": 0.1},
}
"""Compared methods, as fields of `FewLabels`: supervised, and those of table 1 in its order."""

NAMES = {each["method"]: name for name, each in METHODS.items() if len(each) == 1}
"""Names in the table, by the name of a method in the settings."""

ADDED = {"FreeMatch + MI": "mutual_information", "FreeMatch + ED": "entropy_difference"}
"""Methods with an information loss, and the field of the loss's weight."""

WEAK = ("Pi model", "Pseudo Label", "MeanTeacher")
"""Methods of table 1 without strongly augmented views, which err most in every printed column.

They are judged apart: a random order within both groups has a rank correlation of 0.64 in the mean.
"""


class SemiSupervised(BaseModel):
    """Settings of the experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, FewLabels] = Field(description="Training runs by name.")
    weights: tuple[float, ...] = Field(
        (),
        description="Further weights to run each information loss with; the paper prints none.",
    )

    @property
    def swept(self) -> dict[str, FewLabels]:
        """Runs with further weights: each run with an information loss, at each other weight."""
        return change_weights(self.runs, self.weights)


def make_runs(
    data: str, labels: Sequence[int], seeds: Sequence[int], network: str, **fields: Any
) -> dict[str, FewLabels]:
    """Return settings of every method with every number of labels and every seed."""
    return {
        f"{data}, {count} labels, {name}, seed {seed}": FewLabels(
            **{
                "data": data,
                "network": network,
                "labels": count,
                "seed": seed,
                "fairness_weight": 0.01 if count == min(labels) else 0.05,
                "layers": (),
                "groups": ("nc4", "information"),
                **method,
                **fields,
            }
        )
        for count in labels
        for seed in seeds
        for name, method in METHODS.items()
    }


_PAPER: Mapping[str, Any] = {
    "seeds": (0, 1, 2),
    "optimisation": Optimisation(
        epochs=1024,  # of 1024 steps
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.03,
        weight_decay=5e-4,
        schedule="cosine-7/16",
        average=0.999,
    ),
    "every": 16,
    "measured": 10_000,
}
PAPER = SemiSupervised(
    runs={
        **make_runs("cifar10", labels=(10, 40, 250), network="wrn-28-2-ssl", **_PAPER),
        **make_runs("cifar100", labels=(400, 2500), network="wrn-28-8-ssl", **_PAPER),
        **make_runs("stl10", labels=(40, 1000), network="wrn-37-2", **_PAPER),
    }
)
SMALL = SemiSupervised(
    runs=make_runs(
        "digits",
        labels=(10, 20, 40),
        seeds=(5, 6, 7, 8, 9),  # settings were chosen on seeds 0 to 4
        network="small-conv",
        optimisation=Optimisation(
            epochs=10,
            batch_size=16,
            optimiser="nesterov",
            learning_rate=0.05,
            weight_decay=5e-4,
            schedule="cosine-7/16",
            average=0.99,
        ),
        steps_per_epoch=50,
        every=2,
        views="warp",
        memory=0.99,
    ),
    weights=(0.01, 1.0),
)


class Printed(NamedTuple):
    """A value of table 1: mean over the paper's seeds, and the number after the plus-minus sign.

    The paper does not explain that number.
    """

    mean: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.deviation:.2f}"


class Setting(NamedTuple):
    """A data set and a number of labels."""

    data: str
    labels: int

    def __str__(self) -> str:
        return f"{self.data}, {self.labels} labels"


COLUMNS = (
    Setting("cifar10", 10),
    Setting("cifar10", 40),
    Setting("cifar10", 250),
    Setting("cifar100", 400),
    Setting("cifar100", 2500),
    Setting("stl10", 40),
    Setting("stl10", 1000),
)
"""Data sets and numbers of labels of table 1, in the order of its columns."""

_ERRORS = """
Pi model: 79.18 1.11, 74.34 1.76, 46.24 1.29, 86.96 0.80, 58.80 0.66, 74.31 0.85, 32.78 0.40
Pseudo Label: 80.21 0.55, 74.61 0.26, 46.49 2.20, 87.45 0.85, 57.74 0.28, 74.68 0.99, 32.64 0.71
VAT: 79.81 1.17, 74.66 2.12, 41.03 1.79, 85.20 1.40, 48.84 0.79, 74.74 0.38, 37.95 1.12
MeanTeacher: 76.37 0.44, 70.09 1.60, 37.46 3.30, 81.11 1.44, 45.17 1.06, 71.72 1.45, 33.90 1.37
MixMatch: 65.76 7.06, 36.19 6.48, 13.63 0.59, 67.59 0.66, 39.76 0.48, 54.93 0.96, 21.70 0.68
ReMixMatch: 20.77 7.48, 9.88 1.03, 6.30 0.05, 42.75 1.05, 26.03 0.35, 32.12 6.24, 6.74 0.17
UDA: 34.53 10.69, 10.62 3.75, 5.16 0.06, 46.39 1.59, 27.73 0.21, 37.42 8.44, 6.64 0.17
FixMatch: 24.79 7.65, 7.47 0.28, 5.07 0.05, 46.42 0.82, 28.03 0.16, 35.97 4.14, 6.25 0.33
Dash: 27.28 14.09, 8.93 3.11, 5.16 0.23, 44.82 0.96, 27.15 0.22, 34.52 4.30, 6.39 0.56
MPL: 23.55 6.01, 6.93 0.17, 5.76 0.24, 46.26 1.84, 27.71 0.19, 35.76 4.83, 6.66 0.00
FlexMatch: 13.85 12.04, 4.97 0.06, 4.98 0.09, 39.94 1.62, 26.49 0.20, 29.15 4.16, 5.77 0.18
FreeMatch: 8.07 4.24, 4.90 0.04, 4.88 0.18, 37.98 0.42, 26.47 0.20, 15.56 0.55, 5.63 0.15
OTMatch: 4.89 0.76, 4.72 0.08, 4.60 0.15, 37.29 0.76, 26.04 0.21, 12.10 0.72, 5.60 0.14
SoftMatch: 4.91 0.12, 4.82 0.09, 4.04 0.02, 37.10 0.07, 26.66 0.25, 21.42 3.48, 5.73 0.24
FreeMatch + MI: 4.87 0.66, 4.66 0.13, 4.56 0.15, 36.41 1.91, 25.77 0.35, 16.61 1.19, 5.24 0.17
FreeMatch + ED: 4.69 0.16, 4.63 0.25, 4.60 0.15, 37.31 1.96, 25.79 0.41, 14.93 3.28, 5.30 0.18
"""
ERRORS: Mapping[str, Mapping[Setting, Printed]] = {
    method: dict(
        zip(
            COLUMNS,
            (Printed(*map(float, cell.split())) for cell in cells.split(",")),
            strict=True,
        )
    )
    for method, cells in (line.split(": ") for line in _ERRORS.strip().splitlines())
}
"""Table 1 as printed: errors in per cent by method, then by data set and number of labels."""


def list_claims(settings: SemiSupervised) -> Sequence[Claim]:
    """Return the claims on each number of labels, then those on order, rank and few labels."""
    methods = list_methods(settings)
    claims = []
    for setting, names in methods.items():
        claims += list_claims_on_pairs(setting, names)
    for data in dict.fromkeys(setting.data for setting in methods):
        own = {setting: names for setting, names in methods.items() if setting.data == data}
        for setting, names in own.items():
            claims += list_claims_on_order(settings, setting, names)
        for method in ADDED:
            with_method = {s: n for s, n in own.items() if {method, "FreeMatch"} <= {*n}}
            if with_method:
                claims += list_claims_on_settings(data, method, list(with_method))
    return claims


def list_claims_on_pairs(setting: Setting, methods: Sequence[str]) -> list[Claim]:
    """Return the claims that one method errs less than another, or changes its ratio."""
    lower = (
        (
            "FixMatch",
            "supervised",
            "unlabelled images help: FixMatch errs less than supervised training",
            "ours",
        ),
        ("FreeMatch", "FixMatch", "FreeMatch errs less than FixMatch", "INFO, table 1"),
        (
            "FreeMatch + MI",
            "FreeMatch",
            "maximising mutual information lowers FreeMatch's error",
            "INFO, section 6.3",
        ),
        (
            "FreeMatch + ED",
            "FreeMatch",
            "minimising the entropy difference lowers FreeMatch's error",
            "INFO, section 6.3",
        ),
    )
    ratios = (("FreeMatch + MI", "mir", "higher", 1), ("FreeMatch + ED", "hdr", "lower", -1))
    return [
        *(
            Claim(
                text=f"{setting}: {text}",
                source=source,
                quantity=lead_over(other),
                region=above(0),
                where=partial(select_runs, setting, better),
                tell=tell_errors(other),
            )
            for better, other, text, source in lower
            if {better, other} <= {*methods}
        ),
        *(
            Claim(
                text=f"{setting}: {method} ends at a {direction} {key.upper()} than FreeMatch",
                source="INFO, section 6.2",
                quantity=change_from_freematch(key, sign),
                region=above(0),
                where=partial(select_runs, setting, method),
                tell=tell_ratios(key),
            )
            for method, key, direction, sign in ratios
            if {method, "FreeMatch"} <= {*methods}
        ),
    ]


def list_claims_on_order(
    settings: SemiSupervised, setting: Setting, methods: Sequence[str]
) -> list[Claim]:
    """Return the claims on the order of the methods of table 1: one value a seed."""
    strong = [method for method in methods if method in ERRORS and method not in WEAK]
    column = printed_column(settings, setting)
    one = partial(select_runs, setting, strong[0] if strong else "none")
    claims = [
        Claim(
            text=f"{setting}: errors of methods with strongly augmented views have the order of "
            f"the paper's for {column.data} with {column.labels} labels, rank correlation above 0",
            source="INFO, table 1",
            quantity=rank_correlation([(m, ERRORS[m][column].mean) for m in strong]),
            region=above(0),
            scale="correlation",
            step=spacing(len(strong)),
            where=one,
            tell=lambda runs: f"{len(strong)} methods",
        )
    ]
    if strong and {*WEAK} <= {*methods}:
        claims.append(
            Claim(
                text=f"{setting}: {', '.join(WEAK)} err more than the methods with strongly "
                "augmented views",
                source="INFO, table 1",
                quantity=lambda run: mean_error(run, WEAK) - mean_error(run, strong),
                region=above(0),
                where=one,
                tell=lambda runs: (
                    "mean errors "
                    + " and ".join(
                        write_error([mean_error(run, group) for run in runs])
                        for group in (WEAK, strong)
                    )
                ),
            )
        )
    return claims


def list_claims_on_settings(data: str, method: str, settings: Sequence[Setting]) -> list[Claim]:
    """Return the claims of section 6.3 on all numbers of labels of a data set."""
    fewest, most = (choose(settings, key=lambda each: each.labels) for choose in (min, max))
    return [
        Claim(
            text=f"{data}: {method} gains more over FreeMatch with {fewest.labels} labels than "
            f"with {most.labels}",
            source="INFO, section 6.3",
            quantity=gain_beyond(most),
            region=above(0),
            where=partial(select_runs, fewest, method),
            tell=lambda runs: (
                "gains "
                + " and ".join(
                    write_error(list_gains([find(run, method, setting) for run in runs]))
                    for setting in (fewest, most)
                )
                + " points"
            ),
        ),
        Claim(
            text=f"{data}: in most settings {method} errs least or second least of the methods "
            "that ran",
            source="INFO, section 6.3",
            quantity=lead_over_second_best,
            region=above(0),
            where=lambda runs: Runs(
                run for setting in settings for run in select_runs(setting, method, runs)
            ),
            groups=lambda run: str(setting_of(run)),
            enough=lambda count: count // 2 + 1,
            unit="settings",
            tell=tell_rival,
        ),
    ]


# Runs, their errors, and the quantities of the claims.


def method_of(run: FewLabels) -> str:
    """Return the name of a run's method in the table."""
    added = " + MI" if run.mutual_information else ""
    return NAMES[run.method] + added + (" + ED" if run.entropy_difference else "")


def setting_of(run: Run) -> Setting:
    """Return the data set and the number of labels of a run."""
    return Setting(run.settings.data, run.settings.labels)


def list_methods(settings: SemiSupervised) -> dict[Setting, list[str]]:
    """Return the names of the methods of each setting, in order."""
    methods: dict[Setting, dict[str, None]] = {}
    for run in settings.runs.values():
        methods.setdefault(Setting(run.data, run.labels), {})[method_of(run)] = None
    return {setting: list(names) for setting, names in methods.items()}


def select_runs(setting: Setting, method: str, runs: Runs) -> Runs:
    """Select the runs of a method in a setting, seed by seed, without further weights."""
    own = runs.where(data=setting.data, labels=setting.labels)
    return Runs(run for run in own if method_of(run.settings) == method)


def find(run: Run, method: str, setting: Setting | None = None) -> Run:
    """Return the run of a method with the same seed; without rows if there is none."""
    wanted = (*(setting or setting_of(run)), run.settings.seed)
    for other in run.experiment:
        own = other.settings
        if own and (own.data, own.labels, own.seed) == wanted and method_of(own) == method:
            return other
    return run.experiment.named("none")


def error_of(run: Run) -> float:
    """Return a run's last error on held-out images in per cent."""
    return 100 * last("error", "test")(run)


def write_error(numbers: Sequence[float]) -> str:
    """Write the mean and its standard error; "unknown" if a number is missing."""
    return write_spread(numbers, of_mean=True)


def lead_over(other: str) -> AnyQuantity:
    """Return the quantity of another method's error minus that of the run, in points."""
    return lambda run: error_of(find(run, other)) - error_of(run)


def tell_errors(other: str) -> Callable[[Runs], str]:
    """Return a function that writes the mean errors of the runs and of another method."""

    def tell(runs: Runs) -> str:
        against = write_error([error_of(find(run, other)) for run in runs])
        return f"mean error {write_error(list(map(error_of, runs)))} against {against}"

    return tell


def change_from_freematch(key: str, sign: int) -> AnyQuantity:
    """Return the quantity of a ratio of held-out features, minus FreeMatch's; less if negative."""
    ratio = last(key, "test")
    return lambda run: sign * (ratio(run) - ratio(find(run, "FreeMatch")))


def tell_ratios(key: str) -> Callable[[Runs], str]:
    """Return a function that writes the mean ratios of the runs and of FreeMatch."""

    def tell(runs: Runs) -> str:
        ratio = last(key, "test")
        own, plain = (
            average([ratio(each) for each in both])
            for both in (runs, [find(run, "FreeMatch") for run in runs])
        )
        return f"means {own:.3f} and {plain:.3f}"

    return tell


def list_gains(runs: Iterable[Run]) -> list[float]:
    """Return FreeMatch's error minus each run's, in points."""
    return [lead_over("FreeMatch")(run) for run in runs]


def gain_beyond(most: Setting) -> AnyQuantity:
    """Return the quantity of the gain over FreeMatch, minus that with the most labels.

    A loss of accuracy with the most labels counts as no gain, so that a term which harms less with
    few labels than with many does not pass.
    """

    def quantity(run: Run) -> float:
        few, many = list_gains([run, find(run, method_of(run.settings), most)])
        return few - float(np.maximum(many, 0))

    return quantity


def lead_over_second_best(run: Run) -> float:
    """Return how much less a run errs than the second best of the other methods."""
    rival = second_best(run)
    return error_of(find(run, rival)) - error_of(run) if rival else math.nan


def second_best(run: Run) -> str:
    """Return the second best of the other methods, by mean error; empty if one has no results."""
    own = method_of(run.settings)
    means: dict[str, list[float]] = {}
    for other in run.alike("data", "labels"):
        if method_of(other.settings) != own:
            means.setdefault(method_of(other.settings), []).append(error_of(other))
    ranked = sorted(means, key=lambda name: mean(means[name]))
    known = all(math.isfinite(error) for errors in means.values() for error in errors)
    return ranked[min(1, len(ranked) - 1)] if known else ""


def tell_rival(runs: Runs) -> str:
    """Write the name of the second best of the other methods."""
    rival = second_best(runs[0])
    return f"against {rival}" if rival else "a method without results"


def mean_error(run: Run, methods: Sequence[str]) -> float:
    """Return the mean error of several methods at the seed of a run."""
    return average([error_of(find(run, method)) for method in methods])


def rank_correlation(printed: Sequence[tuple[str, float]]) -> AnyQuantity:
    """Return the quantity of Spearman's coefficient of our errors with the printed ones.

    NaN if an error is missing or all errors are equal.
    """

    def quantity(run: Run) -> float:
        ours = [error_of(find(run, method)) for method, _ in printed]
        theirs = [error for _, error in printed]
        return float(spearmanr(ours, theirs).statistic) if np.ptp(ours) > 0 else math.nan

    return quantity


def spacing(count: int) -> float:
    """Return the spacing of Spearman's coefficient: the sum of squared rank differences is even."""
    return 12 / (count * (count**2 - 1)) if count > 1 else 0.0


def printed_column(settings: SemiSupervised, setting: Setting) -> Setting:
    """Return the column of table 1 beside a setting.

    A data set that the paper does not have stands beside CIFAR-10, its fewest labels beside the
    fewest there, and so on.
    """
    if setting in COLUMNS:
        return setting
    columns = [column for column in COLUMNS if column.data == "cifar10"]
    counts = sorted(each.labels for each in list_methods(settings) if each.data == setting.data)
    return columns[min(counts.index(setting.labels), len(columns) - 1)]


# Tables: errors, gains by number of labels, and errors by weight.

NOT_RUN = "not run"


def make_tables(settings: SemiSupervised, runs: Runs) -> list[Summary]:
    """Return table 1 by data set, the gains, and, if weights are swept, the errors by weight."""
    sets = dict.fromkeys(setting.data for setting in list_methods(settings))
    tables = [tabulate_errors(settings, data, runs) for data in sets]
    tables.append(tabulate_gains(settings, runs))
    return [*tables, tabulate_weights(settings, runs)] if settings.weights else tables


def tabulate_errors(settings: SemiSupervised, data: str, runs: Runs) -> Summary:
    """Return table 1 for a data set: our errors, then the paper's printed ones.

    All rows of the paper's table are there; those of methods that are not run have only printed
    values. A data set that the paper does not have stands beside the paper's CIFAR-10.
    """
    own = {setting: ms for setting, ms in list_methods(settings).items() if setting.data == data}
    other = data if any(data == column.data for column in COLUMNS) else "cifar10"
    printed = [column for column in COLUMNS if column.data == other]
    lines = {
        method: [
            *(
                write_errors(select_runs(setting, method, runs)) if method in methods else NOT_RUN
                for setting, methods in own.items()
            ),
            *(str(ERRORS[method][column]) if method in ERRORS else "" for column in printed),
        ]
        for method in ("supervised", *ERRORS)
    }
    caption = (
        "INFO table 1: error on held-out images, in per cent, at the last step, of the averaged "
        "network: mean over the seeds ± standard deviation; then the values that the paper prints"
    )
    heads = [*map(str, own), *(f"printed: {column}" for column in printed)]
    return Summary(caption, heads, lines, title=f"Table 1, {data}")


def write_errors(runs: Iterable[Run]) -> str:
    """Write mean and standard deviation of the runs' errors."""
    return write_spread([error_of(run) for run in runs])


def tabulate_gains(settings: SemiSupervised, runs: Runs) -> Summary:
    """Return the gain of each information loss by number of labels, and the printed gains."""
    lines = {}
    for setting in dict.fromkeys([*list_methods(settings), *COLUMNS]):
        ours = [
            write_error(list_gains(select_runs(setting, method, runs)))
            if setting in list_methods(settings)
            else NOT_RUN
            for method in ADDED
        ]
        known = setting in COLUMNS
        printed = [f"{printed_gain(method, setting):+.2f}" if known else "" for method in ADDED]
        lines[str(setting)] = [*ours, *printed]
    caption = (
        "INFO 6.3: error of FreeMatch minus error with the information loss, in points: mean over "
        "the seeds ± standard error of the mean; then the difference of the printed means"
    )
    heads = [*ADDED, *(f"printed: {method}" for method in ADDED)]
    return Summary(caption, heads, lines, title="Gain by number of labels")


def printed_gain(method: str, column: Setting) -> float:
    """Return the difference of the printed mean errors of FreeMatch and of a method, in points."""
    return ERRORS["FreeMatch"][column].mean - ERRORS[method][column].mean


def tabulate_weights(settings: SemiSupervised, runs: Runs) -> Summary:
    """Return the errors by weight of each information loss; weight 0 is FreeMatch."""
    columns = list(list_methods(settings))
    names: dict[tuple[str, float], dict[Setting, list[str]]] = {}
    for name, run in (settings.runs | settings.swept).items():
        method = method_of(run)
        if method in ADDED or method == "FreeMatch":
            weight = getattr(run, ADDED[method]) if method in ADDED else 0.0
            by_setting = names.setdefault((method, weight), {})
            by_setting.setdefault(Setting(run.data, run.labels), []).append(name)
    order = ["FreeMatch", *ADDED]
    lines = {
        f"{method}, weight {weight:g}" if weight else method: [
            write_errors(map(runs.named, by_setting[column])) if column in by_setting else NOT_RUN
            for column in columns
        ]
        for (method, weight), by_setting in sorted(
            names.items(), key=lambda item: (order.index(item[0][0]), item[0][1])
        )
    }
    caption = (
        "Error in per cent by weight of the information loss, which the paper does not print: "
        "mean over the seeds ± standard deviation"
    )
    return Summary(caption, list(map(str, columns)), lines, title="Weights of the losses")


# Figures.

COLOURS = {
    "supervised": "#7a8288",
    "Pi model": "#b59bc4",
    "Pseudo Label": "#c9a0a0",
    "MeanTeacher": "#9a6b8f",
    "UDA": "#8aa86a",
    "FixMatch": "#a8761a",
    "FlexMatch": "#4f7a2c",
    "FreeMatch": "#0b6a70",
    "SoftMatch": "#5fa8d3",
    "FreeMatch + MI": "#c2570c",
    "FreeMatch + ED": "#44398a",
}
FOLLOWED = ("supervised", "FixMatch", "FreeMatch", "FreeMatch + MI", "FreeMatch + ED")
"""Methods that figures over training show: FreeMatch, what it came from, and what INFO adds."""


def draw_figures(settings: SemiSupervised, runs: Runs) -> list[Drawing]:
    """Draw table 1, pseudo-labels and information over training, and the gain by labels."""
    methods = list_methods(settings)
    sets = list(dict.fromkeys(setting.data for setting in methods))
    beside = [] if any(column.data in sets for column in COLUMNS) else ["cifar10"]
    ends = [[partial(draw_errors, settings, data, runs) for data in sets]]
    pseudo = [
        [
            *(
                partial(draw_course, setting, runs, "unlabelled", key, title)
                for key, title in (
                    ("threshold", "Threshold"),
                    ("mask_rate", "Share trusted"),
                    ("pseudo_label_accuracy", "Accuracy of the trusted"),
                )
            ),
            partial(draw_classes, setting, runs),
        ]
        for setting in methods
    ]
    information = [
        [partial(draw_course, setting, runs, "test", key, key.upper()) for key in ("mir", "hdr")]
        for setting in methods
    ]
    gains = [[partial(draw_gains, settings, data, runs) for data in sets + beside]]
    return [
        Drawing(
            "table-1",
            "INFO table 1: error of the averaged network on held-out images at the end, by number "
            "of labels. Bars are standard errors of the mean over seeds; dots are the seeds.",
            draw_grid(ends, cell=(4.6, 3.4), legend="beside"),
        ),
        Drawing(
            "pseudo-labels",
            "Pseudo-labels over training, means over seeds: the global threshold, with FreeMatch's "
            "class thresholds as thin lines; the share of pseudo-labels that are trusted; the "
            "accuracy of the trusted pseudo-labels (true labels are read only for this figure); "
            "and FreeMatch's trusted pseudo-labels by class, where 1 is an equal share.",
            draw_grid(pseudo, cell=(3.0, 2.3), legend="above"),
        ),
        Drawing(
            "information",
            "MIR and HDR of held-out features against the classifier over training, means over "
            "seeds.",
            draw_grid(information, cell=(4.0, 2.3), legend="above"),
        ),
        Drawing(
            "gain",
            "INFO 6.3: error of FreeMatch minus error with an information loss, against the number "
            "of labels: means over seeds with their standard errors. Crosses are differences of "
            "the means in the paper's table 1.",
            draw_grid(gains, cell=(3.2, 3.0), legend="beside"),
        ),
    ]


def draw_errors(settings: SemiSupervised, data: str, runs: Runs, axes: Axes) -> None:
    """Draw the errors of every method by number of labels: means, standard errors and seeds."""
    own = {setting: ms for setting, ms in list_methods(settings).items() if setting.data == data}
    for at, (setting, methods) in enumerate(own.items()):
        for index, method in enumerate(methods):
            x = at + 0.8 / len(methods) * (index - (len(methods) - 1) / 2)
            errors = [error_of(run) for run in select_runs(setting, method, runs)]
            axes.plot([x] * len(errors), errors, ".", color=COLOURS[method], alpha=0.3,
                      markersize=4)  # fmt: skip
            axes.errorbar(x, *mean_and_error(errors), fmt="o", color=COLOURS[method], markersize=5,
                          capsize=2.5, label=method if at == 0 else None)  # fmt: skip
    axes.set_xticks(range(len(own)), [str(setting.labels) for setting in own])
    axes.set_xlabel("labels")
    axes.set_ylim(bottom=0)
    axes.grid(axis="x", visible=False)
    axes.set_title(f"Error on {data}, %")


def mean_and_error(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error; NaN where unknown."""
    middle, spread = summarise(numbers)
    return middle, spread / math.sqrt(max(1, len(numbers)))


def draw_course(setting: Setting, runs: Runs, split: str, key: str, title: str, axes: Axes) -> None:
    """Draw a metric of the followed methods over training, means over seeds."""
    for method in FOLLOWED:
        means = average_course(select_runs(setting, method, runs), split, key)
        if means:
            axes.plot(list(means), list(means.values()), "o-", color=COLOURS[method],
                      markersize=2.6, label=method)  # fmt: skip
    if split == "unlabelled":
        axes.set_ylim(0, 1.03)
    if key == "threshold":
        free = select_runs(setting, "FreeMatch", runs)
        for each in list_class_keys(free, key):
            means = average_course(free, split, each)
            axes.plot(list(means), list(means.values()), color=COLOURS["FreeMatch"], alpha=0.35,
                      linewidth=0.6)  # fmt: skip
    axes.set_title(f"{title}, {setting}")
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def average_course(runs: Runs, split: str, key: str) -> dict[float, float]:
    """Average a metric over runs, epoch by epoch; NaN values are left out."""
    points = collect_points((row for run in runs for row in run.path(split)), "epoch", key)
    kept = {at: list(filter(math.isfinite, numbers)) for at, numbers in points.items()}
    return {at: mean(numbers) for at, numbers in kept.items() if numbers}


def list_class_keys(runs: Runs, key: str) -> list[str]:
    """Return the keys of a quantity that is measured for each class."""
    row = next((row for run in runs for row in run.rows if f"{key}_0" in row), None)
    return [name for name in (row.values if row else ()) if name.startswith(f"{key}_")]


def draw_classes(setting: Setting, runs: Runs, axes: Axes) -> None:
    """Draw each class's share of FreeMatch's trusted pseudo-labels, times the number of classes."""
    free = select_runs(setting, "FreeMatch", runs)
    courses = [
        average_course(free, "unlabelled", key) for key in list_class_keys(free, "histogram")
    ]
    epochs = sorted({epoch for course in courses for epoch in course})
    axes.grid(visible=False)
    axes.set_title(f"Classes, FreeMatch, {setting}")
    axes.set_xlabel("epoch")
    axes.set_ylabel("class")
    if not epochs:
        return
    shares = np.array([[course.get(epoch, math.nan) for epoch in epochs] for course in courses])
    image = axes.imshow(
        len(courses) * shares, cmap=panels.make_cosine_colours(), vmin=0, vmax=2, aspect="auto",
        interpolation="nearest",
    )  # fmt: skip
    every = max(1, math.ceil(len(epochs) / 8))
    axes.set_xticks(range(0, len(epochs), every), [f"{epoch:g}" for epoch in epochs[::every]])
    axes.figure.colorbar(image, ax=axes, ticks=[0, 1, 2])


def draw_gains(settings: SemiSupervised, data: str, runs: Runs, axes: Axes) -> None:
    """Draw the gain of each information loss against the number of labels, ours and printed."""
    own = [setting for setting in list_methods(settings) if setting.data == data]
    printed = [column for column in COLUMNS if column.data == data]
    for method in ADDED:
        gains = {s.labels: mean_and_error(list_gains(select_runs(s, method, runs))) for s in own}
        known = {labels: pair for labels, pair in gains.items() if math.isfinite(pair[0])}
        if known:
            means, errors = zip(*known.values(), strict=True)
            axes.errorbar(list(known), means, errors, fmt="o-", color=COLOURS[method],
                          markersize=4, capsize=2.5, label=method)  # fmt: skip
        if printed:
            axes.plot([column.labels for column in printed],
                      [printed_gain(method, column) for column in printed], "x",
                      color=COLOURS[method], linestyle=panels.DASHED, markersize=5,
                      label=f"{method}, printed")  # fmt: skip
    axes.axhline(0, color=panels.SOFT, linewidth=0.7)
    axes.set(xscale="log", xlabel="labels", title=f"Gain on {data}, points")
    counts = sorted({setting.labels for setting in own + printed})
    axes.set_xticks(counts, list(map(str, counts)))
    axes.minorticks_off()


def train_methods(settings: SemiSupervised) -> list[Part]:
    """Return a part for each run, those with further weights last."""
    return [
        Part(name, run.optimisation.epochs, partial(few_labels_events, run), trains=True)
        for name, run in (settings.runs | settings.swept).items()
    ]


EXPERIMENT = Experiment(
    id="info/semi-supervised",
    title="Few labels: FreeMatch with the information losses",
    question=(
        "Networks learn from a few labelled images and many unlabelled ones. INFO adds to "
        "FreeMatch's loss the mutual information of features and heads, or their difference in "
        "entropy, and reports lower errors."
    ),
    source="INFO section 6, table 1",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "231 runs of a GPU-day or more", "small": "22 minutes on one core"},
    parts=train_methods,
    claims=list_claims,
    figures=draw_figures,
    tables=make_tables,
    columns=("epoch", "error", "mask_rate", "pseudo_label_accuracy", "threshold", "mir", "hdr"),
)
