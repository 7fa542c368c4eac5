"""Judgement of every score on half of a zoo, and the claims about our index."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from ncscope.lab.claims import above, judge_mean
from ncscope.lab.findings import Finding, Verdict
from ncscope.lab.intervals import mean_interval
from ncscope.lab.zoo.cells import A_FEW, ALL, TUNED_ACCURACY
from ncscope.lab.zoo.design import TransferZoo
from ncscope.lab.zoo.ingredients import ADDED, ADDED_SHARE, INDEX, PREFIX, VARIANTS
from ncscope.lab.zoo.judgement import (
    ByTarget,
    bootstrap_gain,
    by_score,
    by_target,
    gains,
    grouped,
    mean_quality,
    signed,
)
from ncscope.lab.zoo.results import JUDGED, Cell
from ncscope.transfer.records import FIELD_SCORES, SCORES, VARIABILITY_SCORES, Score

MARGIN = 0.05
"""Gain in weighted tau that counts."""

PUBLISHED = tuple(key for key in (*FIELD_SCORES, *VARIABILITY_SCORES) if key != "vci")
"""Published scores on downstream samples. VCI orders as the H-score, and is counted once."""

PHRASES = {ALL: "all training images", A_FEW: "five training images a class"}


Half = Literal["report", "design"]


@dataclass(frozen=True)
class Verdicts:
    """Judgement of all scores on half of a zoo.

    Attributes:
        config: Settings of the zoo.
        cells: Cells of the half.
        user_scores: Scores of the user, by key.
        seed: Seed of the bootstrap.
        half: Half of the zoo; nothing is claimed on the design half.
    """

    config: TransferZoo
    cells: Sequence[Cell]
    user_scores: Mapping[str, Score] = field(default_factory=dict)
    seed: int = 0
    half: Half = "report"

    @cached_property
    def claims(self) -> list[Finding]:
        """Claims, which take seconds: each is computed once."""
        return claims_on(self) if self.half == "report" else []

    @cached_property
    def scores(self) -> dict[str, Score]:
        """All scores that some cell has, by key: the user's, ours, published, facts."""
        known = {key for cell in self.cells for key in cell.values}
        wanted = {**self.user_scores, INDEX: SCORES[INDEX], **JUDGED}
        return {key: score for key, score in wanted.items() if key in known and key != "vci"}

    def _having(self, images: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.images == images]

    @cached_property
    def qualities(self) -> dict[tuple[str, str], ByTarget]:
        """Qualities of every score by target; by number of images and key."""
        return {
            (images, key): judged_by_target
            for images in PHRASES
            for key, judged_by_target in by_score(self._having(images), self.scores).items()
        }

    @cached_property
    def tuned(self) -> Mapping[str, ByTarget]:
        """Qualities of every score by target, where fine-tuning is the truth."""
        return by_score(self._having(ALL), self.scores, TUNED_ACCURACY)

    def best_published(self, found: Callable[[str], ByTarget]) -> str | None:
        """Return the key of the published score with the highest mean weighted tau.

        Args:
            found: Function of a score's key that returns its qualities by target.
        """
        means = {key: mean_quality(found(key)) for key in PUBLISHED if key in self.scores}
        known = {key: mean for key, mean in means.items() if not math.isnan(mean)}
        return max(known, key=known.__getitem__, default=None)

    def ingredients(self, images: str) -> dict[str, list[float]]:
        """Return what our index gains on each target over itself without, or with, something.

        Args:
            images: Number of training images of the target.
        """
        cells = self._having(images)
        whole, *parts = by_score(cells, {INDEX: SCORES[INDEX], **VARIANTS}).values()
        names = (score.name for score in VARIANTS.values())
        found = {name: gains(whole, part) for name, part in zip(names, parts, strict=True)}
        for key, score in ADDED.items():
            together = with_added(cells, key, score)
            found[score.name] = gains(whole, by_target(together, _TOGETHER, Score("", 1)))
        return found


_TOGETHER = f"{PREFIX}together"


def with_added(cells: Sequence[Cell], key: str, score: Score) -> list[Cell]:
    """Return cells with the sum of our index and a share of a fact, both standardised by target.

    Args:
        cells: Cells of one number of images.
        key: Key of the fact.
        score: Its direction.
    """
    found = []
    for own in grouped(cells).values():
        parts = [signed(own, INDEX, SCORES[INDEX]), signed(own, key, score)]
        total = np.zeros(len(own))
        for part, share in zip(parts, (1.0, ADDED_SHARE), strict=True):
            defined = np.isfinite(part)
            known = np.where(defined, part, part[defined].min() if defined.any() else 0.0)
            spread = known.std()
            total += share * (known - known.mean()) / spread if spread > 0 else 0.0
        values = total.tolist()
        found += [
            cell.with_values({_TOGETHER: value}) for cell, value in zip(own, values, strict=True)
        ]
    return found


def claims_on(verdicts: Verdicts) -> list[Finding]:
    """Judge the claims about our index and about the static baselines.

    Args:
        verdicts: Judgement of the report half.
    """
    return [
        *(_better(verdicts, images) for images in PHRASES),
        _better_tuned(verdicts),
        *(_residual(verdicts, images) for images in PHRASES),
        _static(verdicts),
    ]


def _better(verdicts: Verdicts, images: str) -> Finding:
    """Judge that our index has a weighted tau above the best published score's by the margin."""
    best = verdicts.best_published(lambda key: verdicts.qualities[images, key])
    text = (
        f"With {PHRASES[images]}, explained entropy orders networks better than the best published "
        f"score, by {MARGIN} or more in weighted tau on average, with an interval that excludes 0"
    )
    if best is None or (images, INDEX) not in verdicts.qualities:
        return _unknown(text)
    values = _gains(verdicts.qualities[images, INDEX], verdicts.qualities[images, best])
    cells = [cell for cell in verdicts.cells if cell.images == images]
    pair = (INDEX, SCORES[INDEX]), (best, SCORES[best])
    low, high = bootstrap_gain(cells, *pair, seed=verdicts.seed)
    alone = []
    for name in verdicts.config.held_out_architectures:
        chosen = [cell for cell in cells if cell.architecture == name]
        ours, theirs = (mean_quality(by_target(chosen, *each)) for each in pair)
        if not math.isnan(ours - theirs):
            alone.append(f"{name} {ours - theirs:.3f}")
    told = f"over {SCORES[best].name}; bootstrap over networks {low:.3f} to {high:.3f}"
    if alone:
        told += f"; within {', '.join(alone)}"
    return _by_margin(text, values, told)


def _better_tuned(verdicts: Verdicts) -> Finding:
    best = verdicts.best_published(lambda key: verdicts.tuned[key])
    text = (
        "Where fine-tuning is the truth, explained entropy orders networks better than the best "
        f"published score, by {MARGIN} or more in weighted tau on average, with an interval that "
        "excludes 0"
    )
    if best is None or INDEX not in verdicts.tuned:
        return _unknown(text)
    values = _gains(verdicts.tuned[INDEX], verdicts.tuned[best])
    return _by_margin(text, values, f"over {SCORES[best].name}")


def _gains(ours: ByTarget, theirs: ByTarget) -> dict[str, float]:
    return dict(zip(ours, gains(ours, theirs), strict=True))


def _by_margin(text: str, by_name: Mapping[str, float], told: str) -> Finding:
    """Judge a gain: held if its mean reaches the margin and its interval excludes 0.

    A mean below the margin needs no interval: gains that are all 0 have none, and are no gain.
    """
    values = list(by_name.values())
    if not values:
        return _unknown(text)
    mean, interval = sum(values) / len(values), mean_interval(values)
    verdict: Verdict = "not held"
    if mean >= MARGIN:
        verdict = "undecided" if interval is None else "held" if interval.low > 0 else "not held"
    ends = "no interval" if interval is None else f"{interval.low:.3f}, {interval.high:.3f}"
    listed = ", ".join(f"{name} {value:.3f}" for name, value in by_name.items())
    count = len(values)
    evidence = f"mean gain {mean:.3f} [{ends}] over {count} targets, {told}; by target: {listed}"
    return Finding(text=text, source="ours", verdict=verdict, evidence=evidence, interval=interval)


def _unknown(text: str) -> Finding:
    return Finding(text=text, source="ours", verdict="undecided", evidence="none measured")


def _residual(verdicts: Verdicts, images: str) -> Finding:
    found = verdicts.qualities.get((images, INDEX), {})
    return judge_mean(
        f"With {PHRASES[images]}, explained entropy tells more than size, source accuracy and "
        "results on other targets: the rank correlation that is left is above 0",
        source="ours",
        values=[each.residual for each in found.values()],
        region=above(0),
        of="targets",
    )


def _static(verdicts: Verdicts) -> Finding:
    """Judge that past results alone order networks better than every published score."""
    best = verdicts.best_published(lambda key: verdicts.qualities[ALL, key])
    past = verdicts.qualities.get((ALL, "other_sets"), {})
    return judge_mean(
        "Results on the other targets order networks better than the best published score",
        source="ours",
        values=[] if best is None else gains(past, verdicts.qualities[ALL, best]),
        region=above(0),
        of="targets",
        more="" if best is None else f"over {SCORES[best].name}",
    )


def report_half(config: TransferZoo, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of the report half: all networks on the report targets.

    Args:
        config: Settings of the zoo.
        cells: All cells.
    """
    return [cell for cell in cells if cell.target in config.report_targets]


def design_half(config: TransferZoo, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of the design half.

    Args:
        config: Settings of the zoo.
        cells: All cells.
    """
    return [
        cell
        for cell in cells
        if cell.target in config.design_targets and cell.architecture in config.design_architectures
    ]
