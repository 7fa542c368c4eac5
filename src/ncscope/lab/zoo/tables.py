"""Tables of the zoo's page."""

import math
from collections.abc import Mapping, Sequence

from ncscope.lab.intervals import Interval, mean_interval
from ncscope.lab.zoo.cells import A_FEW, ALL
from ncscope.lab.zoo.ingredients import INDEX
from ncscope.lab.zoo.judgement import ByTarget, by_score, grouped, mean_quality, over_targets
from ncscope.lab.zoo.results import Cell
from ncscope.lab.zoo.verdicts import PHRASES, Verdicts
from ncscope.report.tables import Summary
from ncscope.transfer.advice import (
    CONDITIONS,
    FEW,
    FEW_OF_MANY,
    MANY,
    MANY_CLASSES,
    MORE_CLASSES,
    TUNED,
    USUAL,
)

_NONE = "–"


def tables_of(verdicts: Verdicts, costs: Mapping[str, float] | None = None) -> list[Summary]:
    """Return all tables of a half of the zoo.

    Args:
        verdicts: Judgement of the half.
        costs: Seconds of each score for a cell, by key; None if they were not measured.
    """
    tables = [quality_table(verdicts, images) for images in PHRASES]
    tables += [tuned_table(verdicts), conditions_table(verdicts)]
    tables += [architectures_table(verdicts, images) for images in PHRASES]
    tables += [ingredients_table(verdicts)]
    return tables if costs is None else [*tables, cost_table(verdicts, costs)]


def ordered(verdicts: Verdicts, images: str = ALL) -> list[str]:
    """Return the keys of all scores, the best mean weighted tau first.

    Args:
        verdicts: Judgement.
        images: Number of training images of the target.
    """
    means = {key: mean_quality(verdicts.qualities[images, key]) for key in verdicts.scores}
    return sorted(means, key=lambda key: -means[key] if math.isfinite(means[key]) else math.inf)


def quality_table(verdicts: Verdicts, images: str) -> Summary:
    """Return scores by weighted tau, tau, regret and residual correlation.

    Args:
        verdicts: Judgement.
        images: Number of training images of the target.
    """
    lines = {}
    for key in ordered(verdicts, images):
        found = verdicts.qualities[images, key]
        lines[named(verdicts, key)] = _qualities(found)
    caption = (
        f"How well each score orders the networks, with {PHRASES[images]}: means over "
        f"{_count(verdicts, images)} targets with 95 % intervals (Student's t over targets). The "
        "truth is the held-out accuracy of a linear probe. Regret: best accuracy less that of the "
        "network put first, in percentage points. Residual: rank correlation that is left after "
        "parameters, source accuracy and results on other targets. NCTI is relative to all "
        "networks. With five images a class NLEEP's mixture has a component for every "
        "image, and says little."
    )
    title = f"All scores, {PHRASES[images]}"
    return Summary(caption, ["weighted tau", "tau", "regret", "residual"], lines, title)


def _qualities(found: ByTarget) -> list[str]:
    return [
        with_interval(over_targets(found), mean_quality(found)),
        number(mean_quality(found, "tau")),
        number(100 * mean_quality(found, "regret"), 1),
        with_interval(over_targets(found, "residual"), mean_quality(found, "residual")),
    ]


def tuned_table(verdicts: Verdicts) -> Summary:
    """Return scores by quality where fine-tuning is the truth.

    Args:
        verdicts: Judgement.
    """
    means = {key: mean_quality(found) for key, found in verdicts.tuned.items()}
    order = sorted(means, key=lambda key: -means[key] if math.isfinite(means[key]) else math.inf)
    lines = {named(verdicts, key): _qualities(verdicts.tuned[key]) for key in order}
    caption = (
        "The same with all training images, where the truth is the held-out accuracy after the "
        "whole network was fine-tuned, in a third of the cells; results on other "
        "targets are still those of the probe."
    )
    columns = ["weighted tau", "tau", "regret", "residual"]
    return Summary(caption, columns, lines, "All scores, fine-tuning as truth")


def conditions(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return the cells by condition, in the terms of `ncscope.transfer.advice`.

    Args:
        cells: Cells of the half.
    """
    whole = [cell for cell in cells if cell.images == ALL]
    few = [cell for cell in cells if cell.images == A_FEW]
    return {
        USUAL: whole,
        FEW: few,
        MANY: [cell for cell in whole if cell.value("classes") >= MANY_CLASSES],
        FEW_OF_MANY: [cell for cell in few if cell.value("classes") >= MANY_CLASSES],
        MORE_CLASSES: [cell for cell in whole if cell.value("classes") > cell.value("dim")],
    }


def by_condition(verdicts: Verdicts) -> dict[str, Mapping[str, ByTarget]]:
    """Return the qualities of every score by condition and key; empty conditions are left out.

    Args:
        verdicts: Judgement.
    """
    found: dict[str, Mapping[str, ByTarget]] = {
        name: by_score(cells, verdicts.scores)
        for name, cells in conditions(verdicts.cells).items()
        if grouped(cells)
    }
    if any(verdicts.tuned.values()):
        found[TUNED] = verdicts.tuned
    return found


def conditions_table(verdicts: Verdicts) -> Summary:
    """Return the weighted tau of each score by condition.

    Args:
        verdicts: Judgement.
    """
    parts = by_condition(verdicts)
    lines = {
        named(verdicts, key): [
            with_interval(over_targets(found[key]), mean_quality(found[key]))
            for found in parts.values()
        ]
        for key in ordered(verdicts)
    }
    columns = [
        f"{CONDITIONS[name]} ({_targets(len(found[INDEX]))})"
        if INDEX in found
        else CONDITIONS[name]
        for name, found in parts.items()
    ]
    caption = (
        "Which score to trust when: mean weighted tau over targets with 95 % intervals, by "
        "condition. More classes than features: only the networks with fewer features."
    )
    return Summary(caption, columns, lines, "By condition")


def architectures_table(verdicts: Verdicts, images: str) -> Summary:
    """Return the weighted tau by held-out architecture, and without each architecture.

    Args:
        verdicts: Judgement.
        images: Number of training images of the target.
    """
    config = verdicts.config
    cells = [cell for cell in verdicts.cells if cell.images == images]
    held_out = config.held_out_architectures
    alone = [[cell for cell in cells if cell.architecture == name] for name in held_out]
    groups = [*alone, [cell for group in alone for cell in group]]
    without = [
        [cell for cell in cells if cell.architecture != name] for name in config.architectures
    ]
    inside, outside = (
        [by_score(chosen, verdicts.scores) for chosen in parts] for parts in (groups, without)
    )
    lines = {}
    for key in ordered(verdicts, images):
        own = [number(mean_quality(found[key])) for found in inside]
        means = [mean_quality(found[key]) for found in outside]
        known = [value for value in means if math.isfinite(value)]
        span = f"{number(min(known))} to {number(max(known))}" if known else _NONE
        lines[named(verdicts, key)] = [*own, span]
    caption = (
        f"Mean weighted tau over targets, with {PHRASES[images]}: within each held-out "
        "architecture, among the three, and the range when one of the eight is left out."
    )
    columns = [*held_out, "the three", "one left out"]
    return Summary(caption, columns, lines, f"Held-out architectures, {PHRASES[images]}")


def ingredients_table(verdicts: Verdicts) -> Summary:
    """Return what our index gains by each ingredient.

    Args:
        verdicts: Judgement.
    """
    by_images = {images: verdicts.ingredients(images) for images in PHRASES}
    names = list(next(iter(by_images.values())))
    lines = {
        name: [
            with_interval(mean_interval(found[name]), _mean(found[name]), signed=True)
            for found in by_images.values()
        ]
        for name in names
    }
    caption = (
        "What explained entropy gains in weighted tau over itself without an ingredient, or with "
        "something added: means over targets with 95 % intervals. Positive: the index is better as "
        "it is."
    )
    return Summary(caption, list(PHRASES.values()), lines, "Ingredients of explained entropy")


def cost_table(verdicts: Verdicts, costs: Mapping[str, float]) -> Summary:
    """Return the time of each score.

    Args:
        verdicts: Judgement.
        costs: Seconds of each score for a cell, by key.
    """
    probe = costs.get("probe", math.nan)
    lines = {
        (named(verdicts, key) if key in verdicts.scores else key): [
            f"{1000 * seconds:.3g} ms",
            f"{probe / seconds:.3g}" if seconds > 0 else _NONE,
        ]
        for key, seconds in sorted(costs.items(), key=lambda pair: pair[1])
    }
    caption = (
        "Time of each score for a cell, from its features: median over cells. "
        "Beside it, how many times faster than the probe it is."
    )
    return Summary(caption, ["time", "times faster than the probe"], lines, "Cost")


def named(verdicts: Verdicts, key: str) -> str:
    """Return the name of a score; ours and the user's are marked.

    Args:
        verdicts: Judgement.
        key: Key of the score.
    """
    name = verdicts.scores[key].name
    if key == "h_score":
        return f"{name} (= VCI)"
    if key == INDEX:
        return f"{name} (ours)"
    return f"{name} (yours)" if key in verdicts.user_scores else name


def with_interval(interval: Interval | None, mean: float, *, signed: bool = False) -> str:
    """Return a mean with its interval.

    Args:
        interval: The interval; None if there is none.
        mean: The mean.
        signed: Write a plus before a positive mean if True.
    """
    told = number(mean, signed=signed)
    return told if interval is None else f"{told} [{number(interval.low)}, {number(interval.high)}]"


def number(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """Return a number with a true minus sign; a dash if it is unknown.

    Args:
        value: The number.
        digits: Digits after the point.
        signed: Write a plus before a positive number if True.
    """
    if not math.isfinite(value):
        return _NONE
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def _targets(count: int) -> str:
    return "1 target" if count == 1 else f"{count} targets"


def brief_table(verdicts: Verdicts) -> Summary:
    """Return the weighted tau of each score, for a terminal of 80 columns.

    Args:
        verdicts: Judgement.
    """
    lines = {
        named(verdicts, key): [
            with_interval(over_targets(found), mean_quality(found))
            for found in (verdicts.qualities[images, key] for images in PHRASES)
        ]
        for key in ordered(verdicts)
    }
    caption = (
        "Mean weighted Kendall tau over targets, with 95 % intervals. The page has all tables."
    )
    return Summary(caption, ["all images", "five a class"], lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _count(verdicts: Verdicts, images: str) -> int:
    return len(verdicts.qualities.get((images, INDEX), {}))
