r"""Supervised training with the information losses: cross-entropy, plus MI, plus ED.

Source: INFO sections 6.2 and 6.3, table 2. Command: ``ncscope reproduce info/supervised``.

The loss is cross-entropy, alone or plus $-\lambda_{mi}\operatorname{MI}(G(f),G(V))$ or
$+\lambda_{id}|H(G(f))-H(G(V))|$ of each batch. The paper prints neither weight; here both are 0.1,
and `InfoSupervised.weights` adds runs with other weights.

The paper's scale trains WRN-28-2 on CIFAR-10 and WRN-28-8 on CIFAR-100 with `paper_training`, from
three seeds.

The small scale trains a wide residual network of 64 features on warped digits, in 12 epochs of
batches of 64 at rate 0.1. Each information loss also runs with weights 0.01 and 1. Runs of one seed
share images, initial weights and order. Seeds are 3 to 5, as seeds 0 to 2 were used to choose the
settings. Cost: 5 minutes on one core.

Results (held-out accuracy, mean and standard deviation of three seeds): .911 ± .010 with CE, .919 ±
.010 with MI, .912 ± .007 with ED. Neither gain can be told from 0, nor from one point: the 95 %
intervals of the paired gains are -.002 to .018 and -.021 to .022. The terms have the intended
effects: MI raises MIR from 0.479 to 0.566 (by batch 0.574 to 0.664), and ED lowers HDR from 0.187
to 0.025 (0.193 to 0.036). ED also lowers MIR.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import Region, above, judged
from ncscope.lab.observations import Observation
from ncscope.lab.papers.info.few_labels import deviation, shown
from ncscope.lab.papers.info.printed import ACCURACIES
from ncscope.lab.papers.info.runs import (
    ESTIMATES,
    PAPER_NETWORKS,
    SEEDS,
    UNSEEN_SEEDS,
    by_batch,
    collapse_line,
    data_sets,
    information_parts,
    legend_beside,
    medium_training,
    paper_training,
    reweighted,
    small_training,
)
from ncscope.lab.papers.trained import average, ends, history
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.training.settings import Training
from ncscope.report import panels
from ncscope.report.claims import Claim
from ncscope.report.tables import Summary

WEIGHT = 0.1

LOSSES: Mapping[str, Mapping[str, float]] = {
    "CE": {},
    "CE + MI": {"mutual_information": WEIGHT},
    "CE + ED": {"entropy_difference": WEIGHT},
}
"""The losses by name, as fields of `Training`."""

MODEST = 0.01
"""An improvement below this, one point of accuracy, counts as slight."""


class InfoSupervised(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")
    weights: tuple[float, ...] = Field(
        (),
        description="Further weights to run each information loss with; the paper prints none.",
    )

    @property
    def swept(self) -> dict[str, Training]:
        """Return the runs with further weights: each run with an information loss, reweighted."""
        return reweighted(self.runs, self.weights)


def _paper() -> InfoSupervised:
    return InfoSupervised(
        runs={
            f"{data}, {loss}, seed {seed}": paper_training(data, seed, **terms)
            for data in PAPER_NETWORKS
            for loss, terms in LOSSES.items()
            for seed in SEEDS
        }
    )


def _medium() -> InfoSupervised:
    return InfoSupervised(
        runs={
            f"{data}, {loss}, seed {seed}": medium_training(data, 60, seed, **terms)
            for data in PAPER_NETWORKS
            for loss, terms in LOSSES.items()
            for seed in SEEDS
        }
    )


def _small() -> InfoSupervised:
    return InfoSupervised(
        runs={
            f"warped-digits, {loss}, seed {seed}": small_training(
                "warped-digits", 12, seed, **terms
            )
            for loss, terms in LOSSES.items()
            for seed in UNSEEN_SEEDS
        },
        weights=(0.01, 1.0),
    )


def _parts(config: InfoSupervised) -> list[Part]:
    """Return a part for each run, those with further weights last."""
    return information_parts(config.runs | config.swept)


def loss_of(training: Training) -> str:
    """Return the name of a run's loss among `LOSSES`."""
    if training.mutual_information:
        return "CE + MI"
    return "CE + ED" if training.entropy_difference else "CE"


def ended(
    config: InfoSupervised, rows: Sequence[Observation], data: str, key: str
) -> dict[str, list[float]]:
    """Return each run's last value of a metric on held-out images, by loss, in order of seeds.

    Args:
        config: Settings of the study.
        rows: Rows of the study.
        data: Name of the set.
        key: Key of the metric.
    """
    by_loss: dict[str, list[float]] = {loss: [] for loss in LOSSES}
    for name, training in config.runs.items():
        path = history(rows, name, "test")
        if training.data == data and path:
            by_loss[loss_of(training)].append(ends(path, key)[1])
    return by_loss


def _tables(config: InfoSupervised, rows: Sequence[Observation]) -> list[Summary]:
    """Return table 2 of the paper with its printed values, and, if swept, accuracies by weight."""
    sets = data_sets(config.runs)
    printed = [data for data in ACCURACIES["CE"] if data in sets] or list(ACCURACIES["CE"])
    ours = {data: ended(config, rows, data, "accuracy") for data in sets}
    lines = {
        loss: [
            *(_percent(ours[data][loss]) for data in sets),
            *(f"{ACCURACIES[loss][data]:.2f}" for data in printed),
        ]
        for loss in LOSSES
    }
    caption = (
        "INFO table 2: accuracy on held-out images in per cent, mean over the seeds ± standard "
        "deviation; then the values that the paper prints, without spreads"
    )
    heads = [*sets, *(f"printed: {data}" for data in printed)]
    found = [Summary(caption, heads, lines, title="Table 2")]
    return [*found, _by_weight(config, rows)] if config.weights else found


def _by_weight(config: InfoSupervised, rows: Sequence[Observation]) -> Summary:
    """Return the accuracies by weight of each information loss; weight 0 is CE."""
    sets = data_sets(config.runs)
    ended_at: dict[str, dict[str, list[float]]] = {}
    for name, training in (config.runs | config.swept).items():
        weight = training.mutual_information or training.entropy_difference
        line = f"{loss_of(training)}, weight {weight:g}" if weight else "CE"
        path = history(rows, name, "test")
        if path:
            cells = ended_at.setdefault(line, {})
            cells.setdefault(training.data, []).append(ends(path, "accuracy")[1])
    lines = {
        line: [_percent(cells.get(data, [])) for data in sets]
        for line, cells in sorted(ended_at.items())
    }
    caption = (
        "Accuracy in per cent by weight of the information loss, which the paper does not print: "
        "mean over the seeds ± standard deviation"
    )
    return Summary(caption, sets, lines, title="Weights of the losses")


def _percent(accuracies: Sequence[float]) -> str:
    return shown(deviation([100 * accuracy for accuracy in accuracies]))


def _claims(config: InfoSupervised, rows: Sequence[Observation]) -> list[Claim]:
    """Test section 6.3 on paired seeds, and the intended effect of each term, of section 6.2."""
    claims = []
    for data in data_sets(config.runs):
        accuracy = ended(config, rows, data, "accuracy")
        claims += [_slight(accuracy, data, loss) for loss in LOSSES if loss != "CE"]
        claims += [
            by_batch(partial(_moves, config, rows, data, loss, sign), key)
            for loss, key, sign in (("CE + MI", "mir", 1), ("CE + ED", "hdr", -1))
        ]
    return claims


def _told(numbers: Sequence[float]) -> str:
    """Write mean and standard deviation as text."""
    spread = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else float("nan")
    return f"{average(numbers):.4f} ± {spread:.4f}"


def _gains(by_loss: Mapping[str, Sequence[float]], loss: str, sign: int = 1) -> list[float]:
    """Return what a term adds to a value of CE, seed by seed; less counts as more if negative."""
    return [sign * (b - a) for a, b in zip(by_loss["CE"], by_loss[loss], strict=False)]


def _slight(accuracy: Mapping[str, Sequence[float]], data: str, loss: str) -> Claim:
    return judged(
        f"{data}: {loss} raises the held-out accuracy of CE slightly, by more than 0 and less "
        f"than {MODEST}",
        source="INFO, section 6.3",
        values=_gains(accuracy, loss),
        region=Region(0.0, MODEST),
        evidence=f"accuracy {_told(accuracy[loss])} and {_told(accuracy['CE'])}",
    )


def _moves(
    config: InfoSupervised,
    rows: Sequence[Observation],
    data: str,
    loss: str,
    sign: int,
    key: str,
    estimate: str,
) -> Claim:
    """Test whether a term changes its ratio on held-out images as intended."""
    by_loss = ended(config, rows, data, key)
    name = f"{'higher' if sign > 0 else 'lower'} {key[:3].upper()}{estimate}"
    return judged(
        f"{data}: {loss} ends at a {name} than CE",
        source="INFO, section 6.2",
        values=_gains(by_loss, loss, sign),
        region=above(0),
        evidence=f"{_told(by_loss[loss])} and {_told(by_loss['CE'])}",
    )


def _drawings(config: InfoSupervised, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw table 2 of the paper as a figure, with the effects of the terms on the ratios."""
    caption = (
        "INFO table 2: error, MIR and HDR on held-out images at the end of training with three "
        "losses. Points are seeds, bars means and standard deviations. Filled: exact values of the "
        "whole set; open: means over batches of 64."
    )
    return [Drawing("table-2", caption, _figure(config, rows))]


def _figure(config: InfoSupervised, rows: Sequence[Observation]) -> Figure:
    sets = data_sets(config.runs)
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(10.5, 3.0 * len(sets)), layout="constrained")
        grid = figure.subplots(len(sets), 3, squeeze=False).tolist()
        for line, data in zip(grid, sets, strict=True):
            accuracy = ended(config, rows, data, "accuracy")
            error = {loss: [100 - 100 * a for a in by_seed] for loss, by_seed in accuracy.items()}
            _points(line[0], error, 0.0)
            for axes, key in zip(line[1:], ("mir", "hdr"), strict=True):
                for at, ending in zip((-0.12, 0.12), ESTIMATES.values(), strict=True):
                    _points(axes, ended(config, rows, data, key + ending), at, filled=not ending)
            collapse_line(line[1], rows, "at collapse")
            for estimate, face in zip(ESTIMATES, (panels.SOFT, "white"), strict=True):
                line[1].plot(
                    [], [], "o", color=panels.SOFT, markerfacecolor=face, markersize=4,
                    label=estimate,
                )  # fmt: skip
            for axes, title in zip(line, ("error, %", "MIR", "HDR"), strict=True):
                axes.set_title(f"{title}, {data}")
                axes.set_xticks(range(len(LOSSES)), list(LOSSES))
                axes.set_xlim(-0.5, len(LOSSES) - 0.5)
        legend_beside(figure, grid[0][1])
    return figure


def _points(
    axes: Axes, by_loss: Mapping[str, Sequence[float]], shift: float, filled: bool = True
) -> None:
    """Draw, for each loss, seeds as points, and their mean and standard deviation as a bar."""
    for index, (by_seed, colour) in enumerate(zip(by_loss.values(), panels.SERIES, strict=False)):
        if not by_seed:
            continue
        face = colour if filled else "white"
        beside = [index + shift + 0.07] * len(by_seed)
        axes.plot(beside, by_seed, "o", color=colour, markerfacecolor=face, markersize=4)
        spread = float(np.std(by_seed, ddof=1)) if len(by_seed) > 1 else 0.0
        axes.errorbar(
            index + shift - 0.05, average(by_seed), spread, color=colour, fmt="_", capsize=3
        )


RECIPE: Recipe[InfoSupervised] = Recipe(
    id="info/supervised",
    title="Supervised training with information losses",
    lead=(
        "Cross-entropy, plus the mutual information of features and heads, plus their entropy "
        "difference. INFO says that either term lowers the error slightly."
    ),
    source="INFO sections 6.2-6.3, table 2",
    config=InfoSupervised,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    tables=_tables,
    columns=("epoch", "accuracy", "mir", "mir_batch", "hdr", "hdr_batch"),
    scales={"paper": _paper(), "medium": _medium(), "small": _small()},
    cost={
        "paper": "230 GPU-hours (estimated)",
        "medium": "45 minutes of one GPU (estimated)",
        "small": "5 minutes on one core",
    },
)
