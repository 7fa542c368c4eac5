"""NC1-NC4 while networks train under the MSE loss, and the gain of training past zero error.

Source: MSE appendix A, figures 3-8, table 1. Command: ``ncscope reproduce mse/collapse``. Settings
of all scales: `ncscope.lab.papers.mse.training`.

Results at the small scale for VGG, ResNet and DenseNet (geometric mean of the value at the end over
that at zero error, three seeds): NC1 fell to 0.079, 0.058 and 0.26, the deviation of the class
means' norms to 0.36, 0.36 and 0.61, that of their angles to 0.66, 0.63 and 0.88, the distance to
self-duality to 0.29, 0.49 and 0.82: held. The deviations of the classifier's norms and angles fell
in one of the three networks each: undecided. Held-out accuracy rose by 1.1 points [-0.7, 2.8]:
undecided.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from ncscope.lab.evidence.judging import SHARE, above, below, combined, judged
from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.figures import curves, grid
from ncscope.lab.papers.mse.printed import ACCURACIES, MEAN_GAIN, MEDIAN_GAIN, Accuracy
from ncscope.lab.papers.mse.rates import at_best_rates, rate_tables, swept_runs
from ncscope.lab.papers.mse.terminal import (
    COLLAPSE,
    FACTOR,
    changes,
    in_words,
    kept,
    last,
    over_networks,
    zero_error,
)
from ncscope.lab.papers.mse.training import (
    EXCEPTIONS,
    MSETraining,
    by_network,
    medium_runs,
    network_of,
    paper_runs,
    small_runs,
    typical,
)
from ncscope.lab.papers.trained import average, geometric_mean, middle, ratio, training_parts
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.report import panels
from ncscope.report.claims import Claim
from ncscope.report.labels import find_label
from ncscope.report.tables import Summary

GROUPS = ("nc1", "nc2", "nc3", "nc4")
CLASSIFIER = panels.SERIES[2]
ONE_SAMPLE = 1 / 1437
"""Share of one image in the smallest training set: the spacing of shares of disagreement."""
DISAGREEMENT = 1e-3
"""Largest share of training samples that two equal rules decide differently: the share of errors
that counts as zero."""


class Shown(NamedTuple):
    """A figure of the paper.

    Attributes:
        quantity: Name of the quantity.
        tendency: Tendency of the quantity according to the paper.
        curves: Metrics of the quantity, each with the name and the colour of its curve.
        factor: Least factor by which the metrics fall past zero error; None for a share of
            samples, which ends below `DISAGREEMENT`.
    """

    quantity: str
    tendency: str
    curves: Mapping[str, tuple[str, str]]
    factor: float | None = FACTOR


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
        COLLAPSE,
    ),
    "fig-8": Shown(
        "share of samples decided otherwise",
        "increasingly decide by the nearest class mean",
        _of_one("nc4_disagreement", "classifier against nearest class mean"),
        None,
    ),
}
"""The figures of the paper by name; all of their metrics fall to zero at collapse."""


def _parts(config: MSETraining) -> list[Part]:
    """Return a part for each network and seed."""
    return training_parts(swept_runs(config))


def _claims(config: MSETraining, rows: Sequence[Observation]) -> list[Claim]:
    """Test that every metric falls past zero error, and that held-out accuracy rises."""
    rows = at_best_rates(config, rows)
    claims = [zero_error(rows, typical(config))]
    for name, shown in SHOWN.items():
        source = f"MSE, figure {name.removeprefix('fig-')}"
        claims += [_falls(config, rows, key, shown.factor, source) for key in shown.curves]
    claims.append(_generalises(config, rows))
    if set(map(network_of, config.runs.values())) & set(EXCEPTIONS):
        claims.append(_exceptions(config, rows))
    return claims


def _falls(
    config: MSETraining, rows: Sequence[Observation], key: str, factor: float | None, source: str
) -> Claim:
    title, names = find_label(key).title, typical(config)
    if factor is None:
        return over_networks(
            f"at the end {title} is below {DISAGREEMENT:.1%}, in most networks",
            config,
            last(rows, names, key, "train"),
            source=source,
            region=below(DISAGREEMENT),
            step=ONE_SAMPLE,
            bounds=SHARE,
        )
    found = changes(rows, names, key)
    return over_networks(
        f"{title} falls at least by a factor of {factor:g} from zero training error to the end, in "
        "most networks",
        config,
        {name: kept(change) for name, change in found.items()},
        source=source,
        region=below(1 / factor),
        scale="ratio",
        told={name: in_words(change) for name, change in found.items()},
    )


def _generalises(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    """Test the mean gain in accuracy over the networks, one value for each seed."""
    gains: dict[int, list[float]] = {}
    for name, change in changes(rows, list(config.runs), "accuracy", "test").items():
        gain = float("nan") if change is None else 100 * (change[1] - change[0])
        gains.setdefault(config.runs[name].seed, []).append(gain)
    return judged(
        "the accuracy on held-out images rises from zero training error to the end, in the mean of "
        "the networks",
        source="MSE, table 1",
        values=[average(of_seed) for of_seed in gains.values()],
        region=above(0),
        evidence="points",
    )


def _exceptions(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    """Test that variability of the exceptions falls less than that of the other networks."""
    falls = {n: kept(one) for n, one in changes(rows, list(config.runs), "nc1").items()}
    others: dict[int, list[float]] = {}
    for name in typical(config):
        others.setdefault(config.runs[name].seed, []).append(falls[name])
    text = (
        "on STL-10 the ResNet and the DenseNet collapse more slowly than the other networks: from "
        f"zero training error to the end NC1 falls less, by a factor of at least {FACTOR:g}"
    )
    source = "MSE, appendix A.7"
    odd = {name: falls[name] for name in config.runs if name not in typical(config)}
    values = {
        name: ratio(fall, geometric_mean(others.get(config.runs[name].seed, [])))
        for name, fall in odd.items()
    }
    claims = {
        network: judged(text, source=source, values=one, region=above(FACTOR), scale="ratio")
        for network, one in by_network(config, values).items()
    }
    return combined(text, source=source, claims=claims)


def _drawings(config: MSETraining, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figures 3-8 of the paper."""
    rows = at_best_rates(config, rows)
    return [_drawing(config, rows, name, shown) for name, shown in SHOWN.items()]


def _drawing(config: MSETraining, rows: Sequence[Observation], name: str, shown: Shown) -> Drawing:
    def draw(panel: Axes, names: Sequence[str]) -> None:
        for run in names:
            curves(panel, rows, run, shown.curves)

    caption = (
        f"MSE figure {name.removeprefix('fig-')}: networks {shown.tendency}, on the training set; "
        "one curve for each seed, and dashed its first epoch of zero training error."
    )
    return Drawing(name, caption, grid(config, list(config.runs), shown.quantity, draw))


def _tables(config: MSETraining, rows: Sequence[Observation]) -> list[Summary]:
    """Return table 1 with the printed accuracies, and the sweep of rates if there is one."""
    return [table_1(config, at_best_rates(config, rows)), *rate_tables(config, rows)]


def table_1(config: MSETraining, rows: Sequence[Observation]) -> Summary:
    """Return held-out accuracies at zero training error and at the end, and those of the paper.

    Args:
        config: Settings of the recipe.
        rows: Rows of the study.
    """
    found = by_network(config, changes(rows, list(config.runs), "accuracy", "test"))
    ours = {network: _mean([one for one in seeds if one]) for network, seeds in found.items()}
    lines = {
        network: [*_cells(ours.get(network)), *_cells(ACCURACIES.get(network))]
        for network in dict.fromkeys([*ours, *ACCURACIES])
    }
    gains = [one.gain for one in ours.values() if one]
    lines["median gain"] = ["", "", _points(middle(gains)), "", "", f"{MEDIAN_GAIN:+.3f}"]
    lines["mean gain"] = ["", "", _points(average(gains)), "", "", f"{MEAN_GAIN:+.3f}"]
    caption = (
        "MSE table 1: held-out accuracy in per cent at the first epoch of zero training error, at "
        "the last epoch, and the gain in points, mean over the seeds; then the printed values"
    )
    heads = ["0-error", "final", "gain"]
    columns = [*heads, *(f"printed: {head}" for head in heads)]
    return Summary(caption, columns, lines, title="Table 1")


def _mean(pairs: Sequence[tuple[float, float]]) -> Accuracy | None:
    if not pairs:
        return None
    zero, final = (100 * average([pair[index] for pair in pairs]) for index in (0, 1))
    return Accuracy(zero, final)


def _cells(accuracy: Accuracy | None) -> list[str]:
    if accuracy is None:
        return ["", "", ""]
    return [f"{accuracy.zero:.2f}", f"{accuracy.final:.2f}", f"{accuracy.gain:+.2f}"]


def _points(gain: float) -> str:
    return f"{gain:+.3f}" if gain == gain else ""


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
    tables=_tables,
    columns=("epoch", "accuracy", "nc1", "nc2_equinorm_means", "nc3_self_duality"),
    scales={
        "paper": MSETraining(runs=paper_runs(("mse",), GROUPS)),
        "medium": MSETraining(runs=medium_runs(("mse",), GROUPS)),
        "small": MSETraining(runs=small_runs(("mse",), GROUPS)),
    },
    cost={
        "paper": "75 GPU-hours (estimated)",
        "medium": "20 minutes of one GPU (estimated)",
        "small": "7 minutes on one core",
    },
)
