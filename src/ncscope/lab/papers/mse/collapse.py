"""NC1-NC4 while networks train under the MSE loss, and the gain of training past zero error.

Source: MSE appendix A, figures 3-8, table 1. Command: ``ncscope reproduce mse/collapse``. Settings
of both scales: `ncscope.lab.papers.mse.training`.

Results at the small scale (seed 0; zero error at epochs 6 to 33 of 80): 8 of 11 claims held. From
zero error to the end NC1 fell in all five networks, by factors of 1.9 to 22. So did the deviations
of the class means' norms and angles, the distance to self-duality (in the VGGs only to 0.50), and
the disagreement with the nearest class mean, to 0. The deviation of the classifier's norms fell in
3 of 5 networks, that of its angles in 4: networks on warped digits reach zero error late, and
weight decay then has too few steps to remove the initial values. Held-out accuracy rose in all
networks, by 0.3 to 1.9 points with a median of 1.1 (in the paper 0.96).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.training import (
    MSETraining,
    changes,
    curves,
    falls,
    grid,
    in_words,
    paper_runs,
    small_runs,
    zero_error,
)
from ncscope.lab.papers.trained import average, middle, training_parts
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.report import panels
from ncscope.report.claims import Claim
from ncscope.report.labels import label_of

GROUPS = ("nc1", "nc2", "nc3", "nc4")
CLASSIFIER = panels.SERIES[2]


class Shown(NamedTuple):
    """A figure of the paper.

    Attributes:
        quantity: Name of the quantity.
        tendency: Tendency of the quantity according to the paper.
        curves: Metrics of the quantity, each with the name and the colour of its curve.
    """

    quantity: str
    tendency: str
    curves: Mapping[str, tuple[str, str]]


def _of_both(key: str) -> dict[str, tuple[str, str]]:
    """Pair a metric of the class means with the same metric of the classifier."""
    return {
        f"{key}_means": ("class means", panels.ACCENT),
        f"{key}_weights": ("classifier", CLASSIFIER),
    }


def _of_one(key: str, name: str) -> dict[str, tuple[str, str]]:
    return {key: (name, panels.ACCENT)}


SHOWN: Mapping[str, Shown] = {
    "fig-3": Shown(
        "deviation of norms / mean norm",
        "approach class means and classifiers of equal norms",
        _of_both("nc2_equinorm"),
    ),
    "fig-4": Shown(
        "deviation of cosines",
        "approach equal angles between all pairs of classes",
        _of_both("nc2_equiangular"),
    ),
    "fig-5": Shown(
        "mean of |cosine + 1/(K-1)|",
        "approach the largest angles that all pairs can have",
        _of_both("nc2_maxangle"),
    ),
    "fig-6": Shown(
        "squared distance, both of norm one",
        "approach a classifier that points along the centred class means",
        _of_one("nc3_self_duality", "classifier to class means"),
    ),
    "fig-7": Shown(
        "Tr(within / between) / K",
        "approach features without variability within classes",
        _of_one("nc1", "last-layer features"),
    ),
    "fig-8": Shown(
        "share of samples decided otherwise",
        "increasingly decide by the nearest class mean",
        _of_one("nc4_disagreement", "classifier against nearest class mean"),
    ),
}
"""The figures of the paper by name; all of their metrics fall to zero at collapse."""


def _parts(config: MSETraining) -> list[Part]:
    """Return a part for each network."""
    return training_parts(config.runs)


def _claims(config: MSETraining, rows: Sequence[Observation]) -> list[Claim]:
    """Test that every metric falls past zero error, and that held-out accuracy rises."""
    claims = [zero_error(rows, list(config.runs))]
    for name, shown in SHOWN.items():
        for key in shown.curves:
            change = f"{label_of(key).title} falls from zero training error to the end"
            claim = f"{change} in every network (figure {name.removeprefix('fig-')})"
            claims.append(falls(claim, changes(rows, list(config.runs), key)))
    return [*claims, _generalises(config, rows)]


def _generalises(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    accuracies = changes(rows, list(config.runs), "accuracy", "test")
    gains = [100 * (end - start) for start, end in filter(None, accuracies.values())]
    by_run = "; ".join(f"{name}: {in_words(one, '.2%')}" for name, one in accuracies.items())
    return decided(
        "The accuracy on held-out images rises from zero training error to the end, in "
        "the median of the networks (table 1)",
        source="MSE",
        held=middle(gains) > 0,
        evidence=f"median {middle(gains):+.2f} points, mean {average(gains):+.2f}; {by_run}",
    )


def _drawings(config: MSETraining, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figures 3-8 of the paper, and table 1 as a figure."""
    drawings = [_drawing(config, rows, name, shown) for name, shown in SHOWN.items()]
    caption = (
        "MSE table 1: accuracy on held-out images, at the first epoch of zero training error "
        "(open) and at the last (filled)."
    )
    return [*drawings, Drawing("table-1", caption, _table(config, rows))]


def _drawing(config: MSETraining, rows: Sequence[Observation], name: str, shown: Shown) -> Drawing:
    def draw(panel: Axes, names: Sequence[str]) -> None:
        for run in names:
            curves(panel, rows, run, shown.curves)

    caption = (
        f"MSE figure {name.removeprefix('fig-')}: networks {shown.tendency}, on the training set; "
        "the dashed line is the first epoch of zero training error."
    )
    return Drawing(name, caption, grid(config, list(config.runs), shown.quantity, draw))


def _table(config: MSETraining, rows: Sequence[Observation]) -> Figure:
    accuracies = changes(rows, list(config.runs), "accuracy", "test")
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(7, 0.9 + 0.32 * len(accuracies)), layout="constrained")
        axes = figure.subplots()
        for index, pair in enumerate(accuracies.values()):
            if pair is not None:
                start, end = (100 * value for value in pair)
                axes.plot([start, end], [index, index], color=panels.SOFT, zorder=1)
                axes.plot(start, index, "o", color=panels.ACCENT, markerfacecolor="white")
                axes.plot(end, index, "o", color=panels.ACCENT)
                axes.annotate(
                    f"{end - start:+.2f}", (max(start, end), index),
                    (7, 0), textcoords="offset points", va="center", fontsize=8,
                )  # fmt: skip
        names = [f"{config.runs[name].data}, {config.runs[name].network}" for name in accuracies]
        axes.set_yticks(range(len(accuracies)), names)
        axes.set_ylim(len(accuracies) - 0.5, -0.5)
        axes.margins(x=0.12)
        axes.set_xlabel("accuracy on held-out images, %")
    return figure


RECIPE: Recipe[MSETraining] = Recipe(
    id="mse/collapse",
    title="Neural collapse under the MSE loss",
    lead=(
        "VGG, ResNet and DenseNet train under the MSE loss, far beyond zero training error. The "
        "paper says that features, class means and classifier collapse as under cross-entropy, "
        "and that held-out accuracy rises."
    ),
    source="MSE appendix A, figures 3-8, table 1",
    config=MSETraining,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    columns=("epoch", "accuracy", "nc1", "nc2_equinorm_means", "nc3_self_duality"),
    scales={
        "paper": MSETraining(runs=paper_runs(("mse",), GROUPS)),
        "small": MSETraining(runs=small_runs(("mse",), GROUPS)),
    },
    cost={"paper": "25 GPU-hours (estimated)", "small": "5 minutes on one core"},
)
