"""Judgement of every score on half of the zoo, and the claims about our index."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from ncscope.transfer.correlations import Values, ranks
from ncscope.transfer.quality import row_qualities
from ncscope.transfer.records import (
    ALL_SCORES,
    BASELINES,
    FIELD_SCORES,
    SCORES,
    VARIABILITY_SCORES,
    Score,
)
from ncscope_lab.claims import above, decide, judge_mean
from ncscope_lab.experiments.transfer.cells import A_FEW, ACCURACY, ALL, TUNED_ACCURACY, Cell
from ncscope_lab.experiments.transfer.design import TransferZoo
from ncscope_lab.experiments.transfer.scores import INDEX, PREFIX, VARIANTS
from ncscope_lab.findings import Finding
from ncscope_lab.intervals import Interval, mean_interval

LEAST_NETWORKS = 3
"""Networks that a target needs at least."""

MARGIN = 0.05
"""Gain in weighted tau that counts."""

FACTS: Mapping[str, Score] = {
    "pretraining_vci": Score("with the source's VCI", 1),
    "pretraining_nc1_quotient": Score("with the source's NC1", -1),
    "mir": Score("with the source's MIR", 1),
    "within_off_signal": Score("with the source's off-signal variability", 1),
    "source_accuracy": Score("with source accuracy", 1),
}
"""Facts that were tried beside our index, by key, each with the better sign on the design half."""

FACT_SHARE = 0.15
"""Weight of an added fact, where index and fact each have standard deviation 1 over networks."""

MIR = Score("MIR, pretraining", 1)

ZOO_SCORES: Mapping[str, Score] = {
    **{key: score for key, score in ALL_SCORES.items() if key not in BASELINES},
    "mir": MIR,
    **BASELINES,
}
"""All scores that are judged on a zoo, besides the user's own and parts of the index."""

PUBLISHED = tuple(key for key in (*FIELD_SCORES, *VARIABILITY_SCORES) if key != "vci")
"""Published scores on downstream samples. VCI orders as the H-score, and is counted once."""

PHRASES = {ALL: "all training images", A_FEW: "five training images a class"}

_TOGETHER = f"{PREFIX}together"

_LEVEL = (2.5, 97.5)

_BLOCK = 50  # resamples at once: 128 networks take about 50 MB


class Quality(NamedTuple):
    """Quality of a score's order on one target.

    Attributes:
        weighted_tau: Weighted Kendall tau.
        tau: Kendall's tau b.
        regret: Best truth less the truth of the network that the score puts first.
        residual: Rank correlation that is left after the static baselines, see
            `residual_correlation`.
    """

    weighted_tau: float
    tau: float
    regret: float
    residual: float


ByTarget = Mapping[str, Quality]


def judge_score(cells: Sequence[Cell], key: str, score: Score, truth: str = ACCURACY) -> ByTarget:
    """Judge a score on every target; cells without the truth are left out.

    A coefficient that is undefined, as for equal scores, counts as 0: such a score orders nothing.

    Args:
        cells: Cells of the networks to order.
        key: Key of the score in the cells.
        score: Its direction.
        truth: Key of the truth.
    """
    return judge_scores(cells, {key: score}, truth)[key]


def judge_scores(
    cells: Sequence[Cell], scores: Mapping[str, Score], truth: str = ACCURACY
) -> Mapping[str, ByTarget]:
    """Judge several scores on every target; `judge_score` judges one score.

    Args:
        cells: Cells of the networks to order.
        scores: Direction of each score, by its key in the cells.
        truth: Key of the truth.

    Returns:
        Qualities by target, for each key.
    """
    found: dict[str, dict[str, Quality]] = {key: {} for key in scores}
    for target, own in group_cells(cells, truth).items() if scores else ():
        known = np.array([cell.value(truth) for cell in own])
        values = np.stack([orient(own, key, score) for key, score in scores.items()])
        qualities = np.nan_to_num(row_qualities(values, np.tile(known, (len(values), 1))))
        facts = {name: orient(own, name, fact) for name, fact in BASELINES.items()}
        for key, row, (weighted, tau, _, regret) in zip(scores, values, qualities, strict=True):
            others = [fact for name, fact in facts.items() if name != key]
            left = residual_correlation(row, known, others)
            found[key][target] = Quality(weighted, tau, regret, 0.0 if math.isnan(left) else left)
    return found


def group_cells(cells: Sequence[Cell], truth: str = ACCURACY) -> dict[str, list[Cell]]:
    """Return the cells with a known truth by target; targets with too few networks are left out.

    Args:
        cells: Cells of one number of images.
        truth: Key of the truth.
    """
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        if math.isfinite(cell.value(truth)):
            found.setdefault(cell.target, []).append(cell)
    return {target: own for target, own in found.items() if len(own) >= LEAST_NETWORKS}


def orient(cells: Sequence[Cell], key: str, score: Score) -> Values:
    """Return a score of cells, the greater the better; minus infinity where it is undefined.

    Args:
        cells: Cells.
        key: Key of the score.
        score: Its direction.
    """
    values = np.array([score.better * cell.value(key) for cell in cells], dtype=np.float64)
    return np.where(np.isnan(values), -np.inf, values)


def residual_correlation(scores: Values, truth: Values, facts: Sequence[Values]) -> float:
    """Return Spearman's partial correlation: of ranks, after a linear fit of the facts' ranks.

    Args:
        scores: Scores, one a network.
        truth: True values.
        facts: Static baselines, each with a value a network.

    Returns:
        The correlation; NaN if nothing of the score or of the truth is left.

    Example:
        >>> fact = np.array([1.0, 2.0, 3.0, 4.0])
        >>> residual_correlation(fact[::-1], fact, [np.array([1.0, 1.0, 2.0, 2.0])])
        -1.0
    """
    ranked = ranks(np.stack([scores, truth, *facts]))
    base = np.column_stack([np.ones(len(truth)), *ranked[2:]])
    kept = ranked[:2].T - base @ np.linalg.lstsq(base, ranked[:2].T, rcond=None)[0]
    sizes = np.linalg.norm(kept, axis=0)
    if sizes.min() < 1e-9 * len(truth) ** 1.5:
        return math.nan
    return float(kept[:, 0] @ kept[:, 1] / sizes.prod())


def mean_quality(found: ByTarget, quality: str = "weighted_tau") -> float:
    """Return the mean over targets of a quality; NaN if there is no target.

    Args:
        found: Qualities by target.
        quality: Field of `Quality`.
    """
    values = [getattr(each, quality) for each in found.values()]
    return sum(values) / len(values) if values else math.nan


def quality_interval(found: ByTarget, quality: str = "weighted_tau") -> Interval | None:
    """Return the mean over targets of a quality with its 95 % interval (Student's t).

    Args:
        found: Qualities by target.
        quality: Field of `Quality`.
    """
    bounds = (0.0, 1.0) if quality == "regret" else (-1.0, 1.0)
    return mean_interval([getattr(each, quality) for each in found.values()], bounds=bounds)


def gains(ours: ByTarget, theirs: ByTarget) -> list[float]:
    """Return the difference in weighted tau between two scores on each target.

    Args:
        ours: Qualities of the one.
        theirs: Qualities of the other.
    """
    return [ours[target].weighted_tau - theirs[target].weighted_tau for target in ours]


def bootstrap_gain(
    cells: Sequence[Cell],
    ours: tuple[str, Score],
    theirs: tuple[str, Score],
    *,
    seed: int,
    resamples: int = 1000,
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean gain in weighted tau, over networks.

    Networks are drawn with replacement within each architecture, the same for all targets. The
    interval says what another draw of networks could change, `quality_interval` what other
    targets could.

    Args:
        cells: Cells of one number of images.
        ours: Key and direction of the one score.
        theirs: Key and direction of the other.
        seed: Seed of the draws.
        resamples: Number of draws.
    """
    members: dict[str, list[str]] = {}
    for cell in cells:
        names = members.setdefault(cell.architecture, [])
        if cell.network not in names:
            names.append(cell.network)
    draws = np.random.default_rng(seed)
    counts = {name: np.zeros(resamples, np.int64) for names in members.values() for name in names}
    for at in range(resamples):
        for names in members.values():
            for place in draws.integers(0, len(names), len(names)):
                counts[names[place]][at] += 1
    columns = []  # gain by resample, for each target
    for own in group_cells(cells).values():
        known = np.array([cell.value(ACCURACY) for cell in own])
        pair = orient(own, *ours), orient(own, *theirs)
        times = np.column_stack([counts[cell.network] for cell in own])
        gained = np.full(resamples, np.nan)
        lengths = times.sum(1)
        # Resamples of one length are ranked together, in blocks that fit into memory.
        for length in np.unique(lengths[lengths > 0]):
            of_length = np.nonzero(lengths == length)[0]
            for start in range(0, len(of_length), _BLOCK):
                block = of_length[start : start + _BLOCK]
                places = np.stack([np.repeat(np.arange(len(known)), times[at]) for at in block])
                taus = [
                    np.nan_to_num(row_qualities(row[places], known[places])[:, 0]) for row in pair
                ]
                gained[block] = taus[0] - taus[1]
        columns.append(gained)
    # A resample may have none of the networks that are known on a target, or on any.
    table = np.column_stack(columns)
    means = [row[~np.isnan(row)].mean() for row in table if not np.isnan(row).all()]
    low, high = np.percentile(means, _LEVEL)
    return float(low), float(high)


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
        return judge_claims(self) if self.half == "report" else []

    @cached_property
    def scores(self) -> dict[str, Score]:
        """All scores that some cell has, by key: the user's, ours, published, facts."""
        known = {key for cell in self.cells for key in cell.values}
        wanted = {**self.user_scores, INDEX: SCORES[INDEX], **ZOO_SCORES}
        return {key: score for key, score in wanted.items() if key in known and key != "vci"}

    def _select(self, images: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.images == images]

    @cached_property
    def qualities(self) -> dict[str, Mapping[str, ByTarget]]:
        """Qualities of every score by target; by number of images, then by key."""
        return {images: judge_scores(self._select(images), self.scores) for images in PHRASES}

    @cached_property
    def fine_tuning(self) -> Mapping[str, ByTarget]:
        """Qualities of every score by target, where fine-tuning is the truth."""
        return judge_scores(self._select(ALL), self.scores, TUNED_ACCURACY)

    def best_published(self, found: Mapping[str, ByTarget]) -> str | None:
        """Return the key of the published score with the highest mean weighted tau.

        Args:
            found: Qualities of every score by target.
        """
        means = {key: mean_quality(found[key]) for key in PUBLISHED if key in self.scores}
        known = {key: mean for key, mean in means.items() if not math.isnan(mean)}
        return max(known, key=known.__getitem__, default=None)

    def ingredients(self, images: str) -> dict[str, list[float]]:
        """Return what our index gains on each target over itself without, or with, something.

        Args:
            images: Number of training images of the target.
        """
        cells = self._select(images)
        whole, *parts = judge_scores(cells, {INDEX: SCORES[INDEX], **VARIANTS}).values()
        names = (score.name for score in VARIANTS.values())
        found = {name: gains(whole, part) for name, part in zip(names, parts, strict=True)}
        for key, score in FACTS.items():
            together = add_fact(cells, key, score)
            found[score.name] = gains(whole, judge_score(together, _TOGETHER, Score("", 1)))
        return found


def add_fact(cells: Sequence[Cell], key: str, score: Score) -> list[Cell]:
    """Return cells with the sum of our index and a share of a fact, both standardised by target.

    Args:
        cells: Cells of one number of images.
        key: Key of the fact.
        score: Its direction.
    """
    found = []
    for own in group_cells(cells).values():
        parts = [orient(own, INDEX, SCORES[INDEX]), orient(own, key, score)]
        total = np.zeros(len(own))
        for part, share in zip(parts, (1.0, FACT_SHARE), strict=True):
            defined = np.isfinite(part)
            known = np.where(defined, part, part[defined].min() if defined.any() else 0.0)
            spread = known.std()
            total += share * (known - known.mean()) / spread if spread > 0 else 0.0
        values = total.tolist()
        found += [
            cell.with_values({_TOGETHER: value}) for cell, value in zip(own, values, strict=True)
        ]
    return found


def judge_claims(verdicts: Verdicts) -> list[Finding]:
    """Judge the claims about our index and about the static baselines.

    A gain is held if its mean over the targets reaches the margin and its interval excludes 0. A
    mean below the margin needs no interval: gains that are all 0 have none, and are no gain.

    Args:
        verdicts: Judgement of the report half.
    """

    def judge_gain(where: str, found: Mapping[str, ByTarget], images: str | None) -> Finding:
        """Judge our index against the best published score, on all cells of a kind."""
        text = (
            f"{where}, explained entropy orders networks better than the best published score, by "
            f"{MARGIN} or more in weighted tau on average, with an interval that excludes 0"
        )
        best = verdicts.best_published(found)
        values = [] if best is None or INDEX not in found else gains(found[INDEX], found[best])
        if best is None or not values:
            return decide(text, source="ours", held=None, evidence="none measured")
        told = f"over {SCORES[best].name}"
        if images is not None:
            cells = [cell for cell in verdicts.cells if cell.images == images]
            pair = (INDEX, SCORES[INDEX]), (best, SCORES[best])
            low, high = bootstrap_gain(cells, *pair, seed=verdicts.seed)
            alone = []
            for name in verdicts.config.held_out_architectures:
                own = [cell for cell in cells if cell.architecture == name]
                ours, theirs = (mean_quality(judge_score(own, *each)) for each in pair)
                if not math.isnan(ours - theirs):
                    alone.append(f"{name} {ours - theirs:.3f}")
            told += f"; bootstrap over networks {low:.3f} to {high:.3f}"
            told += f"; within {', '.join(alone)}" if alone else ""
        mean, interval = float(sum(values) / len(values)), mean_interval(values)
        held = mean >= MARGIN and (None if interval is None else interval.low > 0)
        ends = "no interval" if interval is None else f"{interval.low:.3f}, {interval.high:.3f}"
        pairs = zip(found[INDEX], values, strict=True)
        listed = ", ".join(f"{name} {value:.3f}" for name, value in pairs)
        evidence = (
            f"mean gain {mean:.3f} [{ends}] over {len(values)} targets, {told}; by target: {listed}"
        )
        return replace(decide(text, source="ours", held=held, evidence=evidence), interval=interval)

    by_images = verdicts.qualities
    whole = by_images[ALL]
    best = verdicts.best_published(whole)
    return [
        *(judge_gain(f"With {PHRASES[images]}", own, images) for images, own in by_images.items()),
        judge_gain("Where fine-tuning is the truth", verdicts.fine_tuning, None),
        *(
            judge_mean(
                f"With {PHRASES[images]}, explained entropy tells more than size, source accuracy "
                "and results on other targets: the rank correlation that is left is above 0",
                source="ours",
                values=[each.residual for each in own.get(INDEX, {}).values()],
                region=above(0),
                of="targets",
            )
            for images, own in by_images.items()
        ),
        judge_mean(
            "Results on the other targets order networks better than the best published score",
            source="ours",
            values=[] if best is None else gains(whole.get("other_sets", {}), whole[best]),
            region=above(0),
            of="targets",
            more="" if best is None else f"over {SCORES[best].name}",
        ),
    ]


def select_half(config: TransferZoo, cells: Sequence[Cell], half: Half) -> list[Cell]:
    """Return the cells of half of the zoo.

    Args:
        config: Settings of the zoo.
        cells: All cells.
        half: ``"report"``: all networks on the report targets; ``"design"``: the design
            architectures on the design targets.
    """
    if half == "report":
        return [cell for cell in cells if cell.target in config.report_targets]
    return [
        cell
        for cell in cells
        if cell.target in config.design_targets and cell.architecture in config.design_architectures
    ]
