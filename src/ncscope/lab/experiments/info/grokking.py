"""INFO section 5.5, figure 7: a transformer learns addition modulo p by heart, then by the rule.

The paper has p = 113: a transformer of one layer without normalisation on the input ``a b =``,
trained by AdamW on all training pairs at every step. It states neither the betas nor the number of
steps nor the initialisation. Here the betas are those of Nanda et al., there are 20,000 steps, and
weights have variance 1/width. The small scale is the paper's, stopped after 7,000 steps.

The transformer and its training stand in `modular_addition`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.claims import Claim, above, below
from ncscope.lab.experiment import Experiment, Part
from ncscope.lab.experiments.info.information_runs import claim_by_batch
from ncscope.lab.experiments.info.modular_addition import Grokking, grokking_events
from ncscope.lab.figures import draw_grid
from ncscope.lab.quantities import AnyQuantity, Run, Runs, ends, ratio, values, zero_error_row
from ncscope.lab.report.drawing import Drawing
from ncscope.metrics.information import collapse_mir
from ncscope.report import panels


class InfoGrokking(BaseModel):
    """Settings of the experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    training: Grokking = Field(Grokking(), description="Settings of every run.")
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="Seeds of the runs.")


PAPER = InfoGrokking(
    training=Grokking(
        modulus=113,
        train_share=0.3,
        width=128,
        heads=4,
        hidden=512,
        steps=20_000,
        learning_rate=1e-3,
        betas=(0.9, 0.98),
        weight_decay=1.0,
        measurements=40,
        accuracy_measurements=200,
    ),
    seeds=(0, 1, 2),
)
SMALL = InfoGrokking(
    training=Grokking(
        modulus=113,
        train_share=0.3,
        steps=7_000,
        measurements=32,  # eight or more between the two phases, a step being a factor of 1.34
        accuracy_measurements=120,
    ),
    seeds=(3, 4, 5),  # borders were chosen on seeds 0 to 2
)

# The paper states no borders.
NEAR_CHANCE = 0.05  # largest excess over 1/p that counts as "nearly" guessing
LEARNT = 0.99  # accuracy from which on a split counts as learnt
ALL = 1 - 1e-9  # an accuracy above this is 1
LONG_AFTER = 10  # least multiple of the memorisation steps that counts as long after
CHANGED = 0.05  # least change of a ratio that counts
HALF = 0.5  # HDR counts as declined if it halves

SPLITS: Mapping[str, str] = {"train": "training pairs", "test": "held-out pairs"}
COLOURS: Mapping[str, str] = {"train": panels.ACCENT, "test": panels.SECOND}


def list_claims(settings: InfoGrokking) -> Sequence[Claim]:
    """Return the claims of section 5.5 on the accuracies, and on MIR and HDR in the two phases."""
    source = "INFO, section 5.5 and figure 7"
    chance = 1 / settings.training.modulus
    phase = partial(claim_by_batch, source=source, unit="splits")
    by_heart = "batches of pairs: until the training pairs are known by heart,"
    then = "batches of pairs: then, until just before the rule is learnt,"
    rule = "batches of pairs: with the rule"
    both = "on training and on held-out pairs"
    return [
        Claim(
            text="when all training pairs are known by heart, held-out accuracy exceeds chance by "
            f"less than {NEAR_CHANCE}",
            source=source,
            quantity=lambda run: accuracy_by_heart(run) - chance,
            region=below(NEAR_CHANCE),
            tell=tell_accuracy_by_heart,
        ),
        Claim(
            text="held-out accuracy is 1 at the end, in every run",
            source=source,
            quantity=lambda run: ends(run.path("test"), "accuracy")[1],
            region=above(ALL),
            rule="each",
            over="runs",
            tell=tell_end,
        ),
        Claim(
            text=f"learning the rule takes at least {LONG_AFTER} times as many steps as learning "
            "the training pairs by heart",
            source=source,
            quantity=delay,
            region=above(LONG_AFTER),
            scale="ratio",
            tell=tell_delays,
        ),
        phase(
            "mir",
            partial(of_phases, until_by_heart),
            text=f"{by_heart} MIR rises by more than {CHANGED}, {both}",
            region=above(CHANGED),
        ),
        phase(
            "hdr",
            partial(of_phases, until_by_heart),
            text=f"{by_heart} HDR falls by more than {CHANGED}, {both}",
            region=below(-CHANGED),
        ),
        phase(
            "mir",
            partial(of_phases, until_the_rule),
            text=f"{then} MIR falls by more than {CHANGED}, {both}",
            region=below(-CHANGED),
        ),
        phase(
            "hdr",
            partial(of_phases, until_the_rule),
            text=f"{then} HDR rises by more than {CHANGED}, {both}",
            region=above(CHANGED),
        ),
        phase(
            "mir",
            partial(of_phases, below_the_minimum),
            text=f"{rule} MIR reaches its minimum, {both}",
            region=below(0),
        ),
        phase(
            "hdr",
            partial(of_phases, share_left),
            text=f"{rule} HDR falls to less than half of its value just before, {both}",
            region=below(HALF),
            scale="ratio",
        ),
    ]


def draw_figures(settings: InfoGrokking, runs: Runs) -> list[Drawing]:
    """Draw figure 7, from batches as in the paper, and from all pairs."""
    caption = (
        "INFO figure 7: accuracy, MIR and HDR over training{}; one curve per seed. Pairs held out "
        "both ways are not training pairs in either order. Dashed lines are the first measured "
        f"steps of training accuracy 1 and of held-out accuracy {LEARNT}; dotted, MIR at collapse "
        "to a simplex."
    )
    size = settings.training.batch_size
    batches = f", MIR and HDR as means over batches of {size}, as in the paper"
    return [
        Drawing(
            name,
            caption.format(how),
            draw_grid(
                [[partial(draw_panel, settings, runs, key) for key in keys]],
                cell=(3.6, 3.1),
                legend="first",
            ),
        )
        for name, keys, how in (
            ("fig-7", ("accuracy", "mir_batch", "hdr_batch"), batches),
            ("fig-7-exact", ("accuracy", "mir", "hdr"), ", MIR and HDR of all pairs of a split"),
        )
    ]


def draw_panel(settings: InfoGrokking, runs: Runs, key: str, axes: Axes) -> None:
    """Draw a metric of both splits of every run, with the steps of memorising and generalising."""
    for run in runs:
        for split, name in SPLITS.items():
            path = [row for row in run.path(split) if key in row]
            axes.plot(values(path, "step"), values(path, key), color=COLOURS[split], label=name)
        if key == "accuracy":
            rows = run.path("test")
            new = values(rows, "accuracy_unmirrored")
            axes.plot(values(rows, "step"), new, color=panels.SERIES[2], linewidth=0.9,
                      label="held out both ways")  # fmt: skip
        for step in (step_at(run, "train"), step_at(run, "test", LEARNT)):
            if step is not None:
                axes.axvline(step, color=panels.SOFT, linewidth=0.8, linestyle=panels.DASHED)
    if key.startswith("mir"):
        level = collapse_mir(settings.training.modulus)
        axes.axhline(level, color=panels.SOFT, linewidth=0.9, linestyle=":")
    axes.set_title("Accuracy" if key == "accuracy" else key[:3].upper())
    axes.set_xscale("symlog", linthresh=1, linscale=0.3)
    axes.set_xlim(0, settings.training.steps)
    axes.set_xlabel("step")


def step_at(run: Run, split: str, accuracy: float = 1.0) -> int | None:
    """Return the first measured step with this accuracy or more; None without one."""
    row = zero_error_row(run.path(split), accuracy)
    return None if row is None else row.epoch


def accuracy_by_heart(run: Run, key: str = "accuracy") -> float:
    """Return the held-out accuracy at the first step of training accuracy 1."""
    step = step_at(run, "train")
    return ends([row for row in run.path("test") if row.step == step], key)[0]


def tell_accuracy_by_heart(runs: Runs) -> str:
    """Write when the training pairs are known, and the accuracies without mirror images."""
    told = []
    for run in runs:
        step = step_at(run, "train")
        when = "never known by heart" if step is None else f"at step {step:,.0f}"
        new = accuracy_by_heart(run, "accuracy_unmirrored")
        told.append(f"{accuracy_by_heart(run):.3f} {when}, {new:.3f} without mirror images")
    return f"accuracy {'; '.join(told)}; mirror images are training pairs in the other order"


def tell_end(runs: Runs) -> str:
    """Write the step of held-out accuracy 1, and the accuracy at the end."""
    (run,) = runs
    step = step_at(run, "test")
    when = "never 1" if step is None else f"1 at step {step:,.0f}"
    return f"{when}, {ends(run.path('test'), 'accuracy')[1]:.4f} at the end"


def delay(run: Run) -> float:
    """Return the steps to learn the held-out pairs, over those to learn the training pairs."""
    train, test = (step_at(run, split, LEARNT) for split in SPLITS)
    return math.nan if train is None or test is None else ratio(test, train)


def tell_delays(runs: Runs) -> str:
    """Write the steps at which the splits are learnt."""
    told = []
    for run in runs:
        train, test = (step_at(run, split, LEARNT) for split in SPLITS)
        known = train is not None and test is not None
        told.append(f"{test:,.0f} and {train:,.0f}" if known else "not both")
    return f"steps to an accuracy of {LEARNT} on held-out and on training pairs: {', '.join(told)}"


Phase = Callable[[Sequence[float], int, int | None], float]
"""Function of a ratio's values over training, and of the indices of the first ones at or after
the steps of training accuracy 1 and of the rule; the rule's is None if it is not learnt."""


def of_phases(phase: Phase, key: str) -> Mapping[str, AnyQuantity]:
    """Return the quantity of a phase on each split.

    A quantity is NaN while the training pairs are not known by heart.
    """

    def quantity(run: Run, split: str) -> float:
        path = [row for row in run.path(split) if key in row]
        numbers = values(path, key)
        known, rule = (
            next((at for at, row in enumerate(path) if step is not None and row.step >= step), None)
            for step in (step_at(run, "train"), step_at(run, "test", LEARNT))
        )
        if known is None or not all(map(math.isfinite, numbers)):
            return math.nan
        return phase(numbers, known, rule)

    return {name: partial(quantity, split=split) for split, name in SPLITS.items()}


def until_by_heart(path: Sequence[float], known: int, rule: int | None) -> float:
    """Return the change until the training pairs are known by heart."""
    return path[known] - path[0]


def until_the_rule(path: Sequence[float], known: int, rule: int | None) -> float:
    """Return the change from then until just before the rule is learnt."""
    return math.nan if rule is None or rule == known else path[rule - 1] - path[known]


def below_the_minimum(path: Sequence[float], known: int, rule: int | None) -> float:
    """Return the least value with the rule, minus the least before."""
    return math.nan if not rule else min(path[rule:]) - min(path[:rule])


def share_left(path: Sequence[float], known: int, rule: int | None) -> float:
    """Return the last value over that just before the rule is learnt."""
    return math.nan if not rule else ratio(path[-1], path[rule - 1])


def train_seeds(settings: InfoGrokking) -> list[Part]:
    """Return a part for each seed."""
    return [
        Part(
            f"seed {seed}",
            settings.training.steps,
            partial(grokking_events, settings.training, seed),
            trains=True,
        )
        for seed in settings.seeds
    ]


EXPERIMENT = Experiment(
    id="info/grokking",
    title="Matrix information while a transformer groks addition modulo p",
    question=(
        "A transformer of one layer memorises its training pairs, and generalises long after "
        "that. INFO says that MIR and HDR of representation and unembedding show both phases."
    ),
    source="INFO section 5.5, figure 7",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "72 minutes on one core", "small": "45 minutes on one core"},
    parts=train_seeds,
    claims=list_claims,
    figures=draw_figures,
    unit="step",
    columns=("step", "accuracy", "loss", "mir", "hdr", "mir_batch", "hdr_batch"),
)
