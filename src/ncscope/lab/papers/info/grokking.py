"""Grokking: accuracy, MIR and HDR while a transformer learns addition modulo p.

Source: INFO section 5.5, figure 7. Command: ``ncscope reproduce info/grokking``.

The paper's scale is p = 113: a transformer of one layer without normalisation, width 128, 4 heads
and 512 hidden ReLU units, on the input ``a b =``. It is trained by AdamW with rate 1e-3 and decay 1
on all parameters; every step uses all training pairs, which are 30 % of all pairs. The paper states
neither the betas nor the number of steps nor the initialisation. Here the betas are 0.9 and 0.98 as
in Nanda et al., there are 20,000 steps, and weights have variance 1/width. Cost: 45 ms per step and
11 s per measurement of information on one core of a shared EPYC.

The small scale is p = 53, the larger of two primes at which both phases occurred, with half of all
pairs and 5,000 steps. With 30 % of the pairs, held-out accuracy was .02 at p = 47 by step 4,579 and
.04 at p = 59 by step 5,165. All other settings are the paper's.

The claims are judged on seeds 3 to 5, by batch: 4 of 9 held, 1 not held, 4 undecided. That MIR
has its minimum with the rule holds in batches and not on all pairs. Values at the small scale,
seeds 0 to 2: training accuracy is 1 at step 101. Held-out accuracy is .99 at steps 2,611, 1,956 and
1,466, and 1 at the end. In batches of 64 MIR is .69 at the start, .77 when training accuracy
reaches 1, and .44 to .51 at the end, its lowest value, as the paper says; HDR falls from .83 to .1.

Other than the paper says, on the same seeds:

* HDR rises just before generalisation in only one run of three, and rises again after
  generalisation in two.
* When training accuracy reaches 1, held-out accuracy is not at chance but .25 to .34. It is 0
  without the held-out pairs that are training pairs in the other order.
* On all pairs together MIR has its maximum, .33 to .40, near generalisation, and never returns to
  its initial value, .11.

At the paper's scale, seed 0, training accuracy is 1 at step 149, and held-out accuracy is 1 from
step 5,434 on. MIR is .80, .85 and .46 in batches, and .04, .10 and .30 on all held-out pairs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import Region, above, below, combined, judged
from ncscope.lab.observations import Observation
from ncscope.lab.papers.info.grokking_training import Grokking, grokking_events
from ncscope.lab.papers.info.runs import UNSEEN_SEEDS, with_exact
from ncscope.lab.papers.trained import ends, history, interpolation_epoch, on_runs, ratio, values
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.metrics.information import collapse_mir
from ncscope.report import panels
from ncscope.report.claims import Claim, Scale

NEAR_CHANCE = 0.05
"""Largest excess over 1/p of an accuracy that counts as chance; the paper only says "nearly"."""
LEARNT = 0.99
"""Accuracy from which on a split counts as learnt, for the comparison of steps."""
LONG_AFTER = 10
"""Multiple of the memorisation steps that counts as long after; the paper states no number."""
CHANGED = 0.05
"""A ratio counts as changed if it changes by more than this; the paper states no number."""
HALF = 0.5
"""HDR counts as declined if it halves; the paper states no number."""
SPLITS: Mapping[str, str] = {"train": "training pairs", "test": "held-out pairs"}
ESTIMATES: Mapping[str, str] = {"": "all {}", "_batch": "batches of {}"}
"""Samples from which the information is computed, by suffix of the keys."""
COLOURS: Mapping[str, str] = {"train": panels.ACCENT, "test": panels.SECOND}
NEW = panels.SERIES[2]
"""Key of the accuracy on held-out pairs that are not training pairs in the other order."""


class InfoGrokking(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    training: Grokking = Field(Grokking(), description="Settings of every run.")
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="Seeds of the runs.")


def _paper() -> InfoGrokking:
    return InfoGrokking(seeds=(0, 1, 2))


def _small() -> InfoGrokking:
    return InfoGrokking(
        training=Grokking(
            modulus=53, train_share=0.5, steps=5_000, measurements=24, accuracy_measurements=120
        ),
        seeds=UNSEEN_SEEDS,
    )


def _parts(config: InfoGrokking) -> list[Part]:
    """Return a part for each seed."""
    return [
        Part(name, config.training.steps, partial(grokking_events, config.training, seed), True)
        for name, seed in _runs(config).items()
    ]


def _runs(config: InfoGrokking) -> dict[str, int]:
    return {f"seed {seed}": seed for seed in config.seeds}


class Course(NamedTuple):
    """Information of a run over training, and the steps at which it memorised and generalised.

    Attributes:
        steps: Measured steps.
        mir: MIR at each step.
        hdr: HDR at each step.
        by_heart: First step of training accuracy 1; None if there is none.
        as_a_rule: First step of held-out accuracy 0.99; None if there is none.
    """

    steps: list[float]
    mir: list[float]
    hdr: list[float]
    by_heart: float | None
    as_a_rule: float | None

    def index_at(self, step: float | None) -> int | None:
        """Return the index of the first measurement at or after a step; None if there is none."""
        after = (index for index, at in enumerate(self.steps) if step is not None and at >= step)
        return next(after, None)


def course(rows: Sequence[Observation], run: str, split: str, estimate: str) -> Course:
    """Read one run from the rows.

    Args:
        rows: Rows of the recipe.
        run: Name of the part.
        split: ``"train"`` or ``"test"``.
        estimate: Suffix of the keys.
    """
    keys = [f"{name}{estimate}" for name in ("mir", "hdr")]
    path = [row for row in history(rows, run, split) if keys[0] in row]
    mir, hdr = (values(path, key) for key in keys)
    by_heart = interpolation_epoch(history(rows, run, "train"))
    as_a_rule = interpolation_epoch(history(rows, run, "test"), LEARNT)
    return Course(values(path, "step"), mir, hdr, by_heart, as_a_rule)


def _claims(config: InfoGrokking, rows: Sequence[Observation]) -> list[Claim]:
    """Test section 5.5 on the accuracies, and on MIR and HDR in the two phases."""
    runs = list(_runs(config))
    claims = [_guesses(rows, runs, 1 / config.training.modulus), _generalises(rows, runs)]
    claims.append(_late(rows, runs))
    courses = {
        pairs.format("pairs"): {
            of_split: [course(rows, run, split, estimate) for run in runs]
            for split, of_split in SPLITS.items()
        }
        for estimate, pairs in ESTIMATES.items()
    }
    for phase in _PHASES:
        exact, counted = (_phase(phase, pairs, by_split) for pairs, by_split in courses.items())
        claims.append(with_exact(counted, exact))
    return claims


def _guesses(rows: Sequence[Observation], runs: Sequence[str], chance: float) -> Claim:
    found, told = [], []
    for run in runs:
        train, test = (history(rows, run, split) for split in SPLITS)
        step = interpolation_epoch(train)
        then = [row for row in test if step is not None and row.step == step]
        found.append(ends(then, "accuracy")[0] - chance)
        when = "never known by heart" if step is None else f"at step {step:,.0f}"
        unmirrored = ends(then, "accuracy_unmirrored")[0]
        told.append(f"{found[-1] + chance:.3f} {when}, {unmirrored:.3f} without mirror images")
    return judged(
        "when all training pairs are known by heart, held-out accuracy exceeds chance by less "
        f"than {NEAR_CHANCE}",
        source="INFO, section 5.5 and figure 7",
        values=found,
        region=below(NEAR_CHANCE),
        evidence=f"accuracy {'; '.join(told)}; mirror images are training pairs in the other order",
    )


def _generalises(rows: Sequence[Observation], runs: Sequence[str]) -> Claim:
    verdicts: dict[str, tuple[bool | None, str]] = {}
    for run in runs:
        test = history(rows, run, "test")
        step, last = interpolation_epoch(test), ends(test, "accuracy")[1]
        when = "never 1" if step is None else f"1 at step {step:,.0f}"
        known = math.isfinite(last)
        verdicts[run] = last == 1 if known else None, f"{when}, {last:.4f} at the end"
    return on_runs(
        "held-out accuracy is 1 at the end, in every run",
        verdicts,
        source="INFO, section 5.5 and figure 7",
    )


def _late(rows: Sequence[Observation], runs: Sequence[str]) -> Claim:
    delays, told = [], []
    for run in runs:
        train, test = (interpolation_epoch(history(rows, run, split), LEARNT) for split in SPLITS)
        known = train is not None and test is not None
        delays.append(ratio(test or 0.0, train or 0.0) if known else math.nan)
        told.append(f"{test:,.0f} and {train:,.0f}" if known else "not both")
    return judged(
        f"learning the rule takes at least {LONG_AFTER} times as many steps as learning the "
        "training pairs by heart",
        source="INFO, section 5.5 and figure 7",
        values=delays,
        region=above(LONG_AFTER),
        scale="ratio",
        evidence=f"steps to an accuracy of {LEARNT} on held-out and on training pairs: "
        + ", ".join(told),
    )


def _until_by_heart(path: Sequence[float], known: int, rule: int | None) -> float:
    return path[known] - path[0]


def _until_the_rule(path: Sequence[float], known: int, rule: int | None) -> float:
    return math.nan if rule is None or rule == known else path[rule - 1] - path[known]


def _below_the_minimum(path: Sequence[float], known: int, rule: int | None) -> float:
    return math.nan if not rule else min(path[rule:]) - min(path[:rule])


def _share_left(path: Sequence[float], known: int, rule: int | None) -> float:
    return math.nan if not rule else ratio(path[-1], path[rule - 1])


@dataclass(frozen=True)
class _Phase:
    """A claim on the course of MIR or HDR: text, key, value of a course, claimed values."""

    text: str
    key: Literal["mir", "hdr"]
    value: Callable[[Sequence[float], int, int | None], float]
    region: Region
    scale: Scale = "plain"


_PHASES = (
    _Phase(
        f"until the training pairs are known by heart, MIR rises by more than {CHANGED}",
        "mir", _until_by_heart, above(CHANGED),
    ),
    _Phase(
        f"until the training pairs are known by heart, HDR falls by more than {CHANGED}",
        "hdr", _until_by_heart, below(-CHANGED),
    ),
    _Phase(
        f"then, until just before the rule is learnt, MIR falls by more than {CHANGED}",
        "mir", _until_the_rule, below(-CHANGED),
    ),
    _Phase(
        f"then, until just before the rule is learnt, HDR rises by more than {CHANGED}",
        "hdr", _until_the_rule, above(CHANGED),
    ),
    _Phase("with the rule MIR reaches its minimum", "mir", _below_the_minimum, below(0)),
    _Phase(
        "with the rule HDR falls to less than half of its value just before",
        "hdr", _share_left, below(HALF), "ratio",
    ),
)  # fmt: skip


def _phase(phase: _Phase, pairs: str, by_split: Mapping[str, Sequence[Course]]) -> Claim:
    """Judge a phase on both splits."""
    text = f"{pairs}: {phase.text}, on training and on held-out pairs"
    source = "INFO, section 5.5 and figure 7"
    claims = {}
    for split, courses in by_split.items():
        found = []
        for measured in courses:
            path: list[float] = getattr(measured, phase.key)
            known = measured.index_at(measured.by_heart)
            usable = known is not None and all(map(math.isfinite, path))
            rule = measured.index_at(measured.as_a_rule)
            found.append(phase.value(path, known or 0, rule) if usable else math.nan)
        claims[split] = judged(
            text, source=source, values=found, region=phase.region, scale=phase.scale
        )
    return combined(text, source=source, claims=claims, of="splits")


def _drawings(config: InfoGrokking, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figure 7 of the paper, from batches as in the paper, and from all pairs."""
    caption = (
        "INFO figure 7: accuracy, MIR and HDR over training{}; one curve per seed. Pairs held out "
        "both ways are not training pairs in either order. Dashed lines are the first measured "
        f"steps of training accuracy 1 and of held-out accuracy {LEARNT}; dotted, MIR at collapse "
        "to a simplex."
    )
    size = config.training.batch_size
    estimates = {
        "fig-7": ("_batch", f", MIR and HDR as means over batches of {size}, as in the paper"),
        "fig-7-exact": ("", ", MIR and HDR of all pairs of a split"),
    }
    return [
        Drawing(name, caption.format(how), _figure(config, rows, estimate))
        for name, (estimate, how) in estimates.items()
    ]


def _figure(config: InfoGrokking, rows: Sequence[Observation], estimate: str) -> Figure:
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(11, 3.1), layout="constrained")
        keys = {"accuracy": "Accuracy", f"mir{estimate}": "MIR", f"hdr{estimate}": "HDR"}
        axes = figure.subplots(1, len(keys))
        for panel, (key, title) in zip(axes, keys.items(), strict=True):
            for run in _runs(config):
                _curves(panel, rows, run, key)
            panel.set_xscale("symlog", linthresh=1, linscale=0.3)
            panel.set_xlim(0, config.training.steps)
            panel.set_xlabel("step")
            panel.set_title(title)
        level = collapse_mir(config.training.modulus)
        axes[1].axhline(level, color=panels.SOFT, linewidth=0.9, linestyle=":")
        handles, names = axes[0].get_legend_handles_labels()
        curves = dict(zip(names, handles, strict=True))
        axes[0].legend(curves.values(), curves.keys(), loc="upper left")
    return figure


def _curves(axes: Axes, rows: Sequence[Observation], run: str, key: str) -> None:
    """Draw both splits of one run, with the steps of memorisation and generalisation."""
    for split, name in SPLITS.items():
        path = [row for row in history(rows, run, split) if key in row]
        axes.plot(values(path, "step"), values(path, key), color=COLOURS[split], label=name)
    if key == "accuracy":
        path = history(rows, run, "test")
        new = values(path, "accuracy_unmirrored")
        axes.plot(values(path, "step"), new, color=NEW, linewidth=0.9, label="held out both ways")
    measured = course(rows, run, "train", "")
    for moment in (measured.by_heart, measured.as_a_rule):
        if moment is not None:
            axes.axvline(moment, color=panels.SOFT, linewidth=0.8, linestyle=panels.DASHED)


RECIPE: Recipe[InfoGrokking] = Recipe(
    id="info/grokking",
    title="Matrix information while a transformer groks addition modulo p",
    lead=(
        "A transformer of one layer memorises its training pairs, and generalises long after "
        "that. INFO says that MIR and HDR of representation and unembedding show both phases."
    ),
    source="INFO section 5.5, figure 7",
    config=InfoGrokking,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    unit="step",
    columns=("step", "accuracy", "loss", "mir", "hdr", "mir_batch", "hdr_batch"),
    scales={"paper": _paper(), "medium": _paper(), "small": _small()},
    cost={
        "paper": "72 minutes on one core",
        "medium": "as at the paper's scale",
        "small": "7 minutes on one core",
    },
)
