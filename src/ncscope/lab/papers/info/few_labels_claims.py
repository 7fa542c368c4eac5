"""Claims on runs with few labels: INFO table 1 and section 6.3, judged on paired seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from ncscope.lab.evidence.judging import above, combined, judged
from ncscope.lab.observations import Observation
from ncscope.lab.papers.info.few_labels import (
    SemiSupervised,
    Setting,
    by_setting,
    errors,
    last_values,
    shown,
    summary,
)
from ncscope.lab.papers.info.few_labels_tables import ADDED, gains
from ncscope.lab.papers.info.printed import ERRORS, SETTINGS
from ncscope.lab.papers.trained import average
from ncscope.report.claims import Claim

Runs = Mapping[str, Sequence[str]]
"""Names of a setting's runs by method, seed by seed."""


class Pair(NamedTuple):
    """A claim that one method errs less than another.

    Attributes:
        better: Method with the lower error.
        other: Method with the higher error.
        text: Text of the claim.
        source: Owner of the claim.
    """

    better: str
    other: str
    text: str
    source: str


PAIRS = (
    Pair(
        better="FixMatch",
        other="supervised",
        text="unlabelled images help: FixMatch errs less than supervised training",
        source="ours",
    ),
    Pair(
        better="FreeMatch",
        other="FixMatch",
        text="FreeMatch errs less than FixMatch",
        source="INFO, table 1",
    ),
    Pair(
        better="FreeMatch + MI",
        other="FreeMatch",
        text="maximising mutual information lowers FreeMatch's error",
        source="INFO, section 6.3",
    ),
    Pair(
        better="FreeMatch + ED",
        other="FreeMatch",
        text="minimising the entropy difference lowers FreeMatch's error",
        source="INFO, section 6.3",
    ),
)

EFFECTS = {"FreeMatch + MI": ("mir", 1), "FreeMatch + ED": ("hdr", -1)}
"""Ratio of held-out features that each information loss is meant to change, and its direction."""

WEAK = ("Pi model", "Pseudo Label", "MeanTeacher")
"""Methods of table 1 without strongly augmented views, which err most in every printed column.

They are judged apart: a random order within both groups has a rank correlation of 0.64 in the mean.
"""


def claims(config: SemiSupervised, rows: Sequence[Observation]) -> list[Claim]:
    """Judge the methods at each number of labels, and the gain against the number of labels.

    Args:
        config: Settings of the study.
        rows: Rows of the study.
    """
    found = []
    for setting, runs in by_setting(config).items():
        found += [_lower(setting, runs, pair, rows) for pair in PAIRS if _ran(runs, *pair[:2])]
        found += [
            _moves(setting, runs, method, rows)
            for method in EFFECTS
            if _ran(runs, method, "FreeMatch")
        ]
    for data in dict.fromkeys(setting.data for setting in by_setting(config)):
        settings = by_setting(config, data)
        for setting, runs in settings.items():
            strong = [method for method in runs if method in ERRORS and method not in WEAK]
            found.append(_order(config, setting, {one: runs[one] for one in strong}, rows))
            if _ran(runs, *WEAK) and strong:
                found.append(_weak(setting, runs, strong, rows))
        for method in ADDED:
            added = {s: runs for s, runs in settings.items() if _ran(runs, method, "FreeMatch")}
            if added:
                found.append(_more_with_few(data, added, method, rows))
                found.append(_best(data, added, method, rows))
    return found


def _ran(runs: Runs, *methods: str) -> bool:
    return all(method in runs for method in methods)


def _lower(setting: Setting, runs: Runs, pair: Pair, rows: Sequence[Observation]) -> Claim:
    ours, against = (errors(rows, runs[method]) for method in (pair.better, pair.other))
    return judged(
        f"{setting}: {pair.text}",
        source=pair.source,
        values=[b - a for a, b in zip(ours, against, strict=False)],
        region=above(0),
        evidence=f"mean error {shown(summary(ours))} against {shown(summary(against))}",
    )


def _moves(setting: Setting, runs: Runs, method: str, rows: Sequence[Observation]) -> Claim:
    """Judge whether an information loss changes its ratio of held-out features as intended."""
    key, sign = EFFECTS[method]
    changed, plain = (last_values(rows, runs[name], key) for name in (method, "FreeMatch"))
    return judged(
        f"{setting}: {method} ends at a {'higher' if sign > 0 else 'lower'} {key.upper()} than "
        "FreeMatch",
        source="INFO, section 6.2",
        values=[sign * (a - b) for a, b in zip(changed, plain, strict=False)],
        region=above(0),
        evidence=f"means {summary(changed)[0]:.3f} and {summary(plain)[0]:.3f}",
    )


def _more_with_few(
    data: str, settings: Mapping[Setting, Runs], method: str, rows: Sequence[Observation]
) -> Claim:
    """Judge the gain with the fewest labels minus that with the most.

    A loss of accuracy with the most labels counts as no gain, so that a term which harms less with
    few labels than with many does not pass.
    """
    fewest, most = (choose(settings, key=lambda each: each.labels) for choose in (min, max))
    few, many = (gains(settings[setting], rows, method) for setting in (fewest, most))
    return judged(
        f"{data}: {method} gains more over FreeMatch with {fewest.labels} labels than with "
        f"{most.labels}",
        source="INFO, section 6.3",
        values=[a - float(np.maximum(b, 0)) for a, b in zip(few, many, strict=False)],
        region=above(0),
        evidence=f"gains {shown(summary(few))} and {shown(summary(many))} points",
    )


def _best(
    data: str, settings: Mapping[Setting, Runs], method: str, rows: Sequence[Observation]
) -> Claim:
    return combined(
        f"{data}: in most settings {method} errs least or second least of the methods that ran",
        source="INFO, section 6.3",
        claims={str(setting): _second(runs, method, rows) for setting, runs in settings.items()},
        enough=len(settings) // 2 + 1,
        of="settings",
    )


def _second(runs: Runs, method: str, rows: Sequence[Observation]) -> Claim:
    """Judge a method against the second best of the others, by mean error."""
    others = {name: errors(rows, own) for name, own in runs.items() if name != method}
    means = {name: summary(by_seed)[0] for name, by_seed in others.items()}
    ranked = sorted(means, key=lambda name: means[name])
    rival = ranked[min(1, len(ranked) - 1)]
    known = all(map(math.isfinite, means.values()))
    ours = errors(rows, runs[method]) if known else []
    return judged(
        f"{method} errs less than {rival}",
        source="INFO, section 6.3",
        values=[b - a for a, b in zip(ours, others[rival], strict=False)],
        region=above(0),
        evidence=f"against {rival}" if known else "a method without results",
    )


def _order(
    config: SemiSupervised, setting: Setting, runs: Runs, rows: Sequence[Observation]
) -> Claim:
    """Judge the rank correlation of our errors with the printed ones over the methods, by seed."""
    column, methods = printed_column(config, setting), list(runs)
    ours = [errors(rows, runs[method]) for method in methods]
    printed = [ERRORS[method][column].mean for method in methods]
    by_seed = list(zip(*ours, strict=False)) if len(methods) > 1 else []
    return judged(
        f"{setting}: errors of methods with strongly augmented views have the order of the paper's "
        f"for {column[0]} with {column[1]} labels, rank correlation above 0",
        source="INFO, table 1",
        values=[_rank_correlation(seed, printed) for seed in by_seed],
        region=above(0),
        scale="correlation",
        step=_spacing(len(methods)),
        evidence=f"{len(methods)} methods",
    )


def _weak(
    setting: Setting, runs: Runs, strong: Sequence[str], rows: Sequence[Observation]
) -> Claim:
    """Judge the mean error of the methods without strong views against that of the others."""
    without, having = (
        [
            average(list(seed))
            for seed in zip(*(errors(rows, runs[m]) for m in methods), strict=False)
        ]
        for methods in (WEAK, strong)
    )
    return judged(
        f"{setting}: {', '.join(WEAK)} err more than the methods with strongly augmented views",
        source="INFO, table 1",
        values=[a - b for a, b in zip(without, having, strict=False)],
        region=above(0),
        evidence=f"mean errors {shown(summary(without))} and {shown(summary(having))}",
    )


def _spacing(count: int) -> float:
    """Return the spacing of Spearman's coefficient: the sum of squared rank differences is even."""
    return 12 / (count * (count**2 - 1)) if count > 1 else 0.0


def _rank_correlation(ours: Sequence[float], printed: Sequence[float]) -> float:
    """Return Spearman's coefficient; NaN if an error is missing or all errors are equal."""
    return float(spearmanr(ours, printed).statistic) if np.ptp(ours) > 0 else math.nan


def printed_column(config: SemiSupervised, setting: Setting) -> tuple[str, int]:
    """Return the column of table 1 beside a setting.

    A data set that the paper does not have stands beside CIFAR-10, its fewest labels beside the
    fewest there, and so on.

    Args:
        config: Settings of the study.
        setting: Data set and number of labels.
    """
    if tuple(setting) in SETTINGS:
        return setting.data, setting.labels
    columns = [column for column in SETTINGS if column[0] == "cifar10"]
    counts = sorted(each.labels for each in by_setting(config, setting.data))
    return columns[min(counts.index(setting.labels), len(columns) - 1)]
