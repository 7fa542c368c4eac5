"""MSE appendix A, figures 3-8 and table 1: NC1-NC4 under the MSE loss, far past zero error.

The paper trains VGG, ResNet and DenseNet on five data sets for 350 epochs. The small scale trains
a small network of each kind on handwritten digits for 150; `ncscope.lab.experiments.mse.networks`
holds the settings of both, with the reasons.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ncscope.lab.claims import Claim, above, below
from ncscope.lab.experiment import Experiment
from ncscope.lab.experiments.mse.learning_rates import (
    select_best_rates,
    tabulate_rates,
    train_sweep,
)
from ncscope.lab.experiments.mse.networks import (
    EXCEPTIONS,
    MSETrainings,
    name_network,
    paper_runs,
    select_typical,
    small_runs,
)
from ncscope.lab.experiments.mse.terminal_phase import (
    COLLAPSE,
    FACTOR,
    claim_by_network,
    claim_zero_error,
    draw_curves,
    draw_networks,
    end_over_zero_error,
    phase_ends,
    write_change,
)
from ncscope.lab.figures import Curve
from ncscope.lab.intervals import SHARE
from ncscope.lab.observations import Results
from ncscope.lab.quantities import Run, Runs, average, geometric_mean, last, ratio
from ncscope.lab.report.drawing import Drawing
from ncscope.report import panels
from ncscope.report.labels import find_label
from ncscope.report.tables import Summary

GROUPS = ("nc1", "nc2", "nc3", "nc4")
PAPER = MSETrainings(runs=paper_runs(("mse",), GROUPS))
SMALL = MSETrainings(runs=small_runs(("mse",), GROUPS))

DISAGREEMENT = 1e-3  # two equal rules differ on at most this share: that which counts as zero error
ONE_SAMPLE = 1 / 1437  # share of one image in the smallest training set


class Figure(NamedTuple):
    """A figure of the paper.

    Attributes:
        quantity: Name of the quantity.
        tendency: Tendency of the quantity according to the paper.
        curves: Metrics that the figure shows; all fall to zero at collapse.
    """

    quantity: str
    tendency: str
    curves: Sequence[Curve]


def curve_pair(key: str) -> list[Curve]:
    """Return a metric of the class means and the same metric of the classifier."""
    classifier = Curve(f"{key}_weights", "classifier", panels.SERIES[2])
    return [Curve(f"{key}_means", "class means"), classifier]


FIGURES: Mapping[int, Figure] = {
    3: Figure(
        "deviation of norms / mean norm",
        "approach class means and classifiers of equal norms",
        curve_pair("nc2_equinorm"),
    ),
    4: Figure(
        "deviation of cosines",
        "approach equal angles between all pairs of classes",
        curve_pair("nc2_equiangular"),
    ),
    5: Figure(
        "mean of |cosine + 1/(K-1)|",
        "approach the largest angles that all pairs can have",
        curve_pair("nc2_maxangle"),
    ),
    6: Figure(
        "squared distance, both of norm one",
        "approach a classifier that points along the centred class means",
        [Curve("nc3_self_duality", "classifier to class means")],
    ),
    7: Figure(
        "Tr(within / between) / K",
        "approach features without variability within classes",
        [Curve("nc1", "last-layer features")],
    ),
    8: Figure(
        "share of samples decided otherwise",
        "increasingly decide by the nearest class mean",
        [Curve("nc4_disagreement", "classifier against nearest class mean")],
    ),
}

ACCURACIES: Mapping[str, tuple[float, float]] = {
    "mnist, VGG": (99.23, 99.59),
    "mnist, ResNet": (99.16, 99.70),
    "mnist, DenseNet": (99.62, 99.70),
    "fashion-mnist, VGG": (92.76, 92.95),
    "fashion-mnist, ResNet": (93.55, 93.76),
    "fashion-mnist, DenseNet": (90.56, 92.95),
    "svhn, VGG": (89.35, 93.91),
    "svhn, ResNet": (85.18, 92.65),
    "svhn, DenseNet": (95.61, 95.23),
    "cifar10, VGG": (83.13, 84.54),
    "cifar10, ResNet": (75.43, 76.39),
    "cifar10, DenseNet": (91.77, 91.78),
    "stl10, VGG": (60.43, 67.24),
    "stl10, ResNet": (59.35, 60.56),
    "stl10, DenseNet": (58.74, 60.41),
}
"""MSE table 1: held-out accuracy in per cent at zero training error, and at the end."""
MEDIAN_GAIN, MEAN_GAIN = 0.962, 1.833
"""Improvements that the caption of table 1 states, in points; more digits than the cells have."""


def list_claims(settings: MSETrainings) -> list[Claim]:
    """Return the claims of appendix A."""
    claims = [claim_zero_error()]
    for number, figure in FIGURES.items():
        claims += [claim_fall(f"MSE, figure {number}", curve.key) for curve in figure.curves]
    claims.append(
        Claim(
            text="the accuracy on held-out images rises from zero training error to the end, in "
            "the mean of the networks",
            source="MSE, table 1",
            quantity=gain_in_points,
            region=above(0),
            average="seed",
            tell=lambda runs: "points",
        )
    )
    if any(map(is_exception, Runs.of(settings.runs, Results()))):
        claims.append(
            Claim(
                text="on STL-10 the ResNet and the DenseNet collapse more slowly than the other "
                "networks: from zero training error to the end NC1 falls less, by a factor of at "
                f"least {FACTOR:g}",
                source="MSE, appendix A.7",
                quantity=fall_beside_typical,
                region=above(FACTOR),
                scale="ratio",
                where=lambda runs: Runs(filter(is_exception, runs)),
                groups=name_network,
            )
        )
    return claims


def claim_fall(source: str, key: str) -> Claim:
    """Make the claim that a metric falls past zero error, or that a share ends near 0."""
    title = find_label(key).title
    if key == "nc4_disagreement":
        return claim_by_network(
            f"at the end {title} is below {DISAGREEMENT:.1%}, in most networks",
            last(key),
            source=source,
            region=below(DISAGREEMENT),
            scale="plain",
            step=ONE_SAMPLE,
            bounds=SHARE,
        )
    factor = COLLAPSE if key == "nc1" else FACTOR
    return claim_by_network(
        f"{title} falls at least by a factor of {factor:g} from zero training error to the end, in "
        "most networks",
        end_over_zero_error(key),
        source=source,
        region=below(1 / factor),
        write=write_change(key),
    )


def draw_figures(settings: MSETrainings, runs: Runs) -> list[Drawing]:
    """Draw figures 3-8 of the paper."""
    return [
        Drawing(
            f"fig-{number}",
            f"MSE figure {number}: networks {figure.tendency}, on the training set; one curve for "
            "each seed, and dashed its first epoch of zero training error.",
            draw_networks(runs, figure.quantity, partial(draw_curves, curves=figure.curves)),
        )
        for number, figure in FIGURES.items()
    ]


def make_tables(settings: MSETrainings, runs: Runs) -> list[Summary]:
    """Return table 1 with the printed accuracies, and the sweep of rates if there is one."""
    return [make_table_1(runs), *tabulate_rates(settings, runs)]


def make_table_1(runs: Runs) -> Summary:
    """Return held-out accuracies at zero training error and at the end, and those of the paper."""
    ours: dict[str, tuple[float, float]] = {}
    networks = runs.group(name_network)
    for network, seeds in networks.items():
        pairs = [pair for run in seeds if (pair := phase_ends(run, "accuracy", "test"))]
        if pairs:
            zero, end = (100 * average([pair[index] for pair in pairs]) for index in (0, 1))
            ours[network] = zero, end

    def write(accuracies: Mapping[str, tuple[float, float]], network: str) -> list[str]:
        if network not in accuracies:
            return ["", "", ""]
        zero, end = accuracies[network]
        return [f"{zero:.2f}", f"{end:.2f}", f"{end - zero:+.2f}"]

    lines = {
        network: [*write(ours, network), *write(ACCURACIES, network)]
        for network in dict.fromkeys([*networks, *ACCURACIES])
    }
    gains = [end - zero for zero, end in ours.values()]
    for name, mean, printed in (
        ("median gain", np.median, MEDIAN_GAIN),
        ("mean gain", np.mean, MEAN_GAIN),
    ):
        own = f"{float(mean(gains)):+.3f}" if gains and all(map(math.isfinite, gains)) else ""
        lines[name] = ["", "", own, "", "", f"{printed:+.3f}"]
    caption = (
        "MSE table 1: held-out accuracy in per cent at the first epoch of zero training error, at "
        "the last epoch, and the gain in points, mean over the seeds; then the printed values"
    )
    heads = ["0-error", "final", "gain"]
    columns = [*heads, *(f"printed: {head}" for head in heads)]
    return Summary(caption, columns, lines, title="Table 1")


def gain_in_points(run: Run) -> float:
    """Return the gain in held-out accuracy past zero error, in points of per cent."""
    change = phase_ends(run, "accuracy", "test")
    return math.nan if change is None else 100 * (change[1] - change[0])


def is_exception(run: Run) -> bool:
    """Return whether the paper calls a run's network an outlier."""
    return name_network(run) in EXCEPTIONS


def fall_beside_typical(run: Run) -> float:
    """Return what remains of NC1 past zero error, over the mean of the typical networks."""
    remaining = end_over_zero_error("nc1")
    others = select_typical(run.experiment, seed=run.settings.seed)
    return ratio(remaining(run), geometric_mean([remaining(other) for other in others]))


EXPERIMENT = Experiment(
    id="mse/collapse",
    title="Neural collapse under the MSE loss",
    question=(
        "VGG, ResNet and DenseNet train under the MSE loss, far beyond zero training error. The "
        "paper says that features, class means and classifier collapse as under cross-entropy, "
        "and that held-out accuracy rises."
    ),
    source="MSE appendix A, figures 3-8, table 1",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "75 GPU-hours (estimated)", "small": "7 minutes on one core"},
    parts=train_sweep,
    select=select_best_rates,
    claims=list_claims,
    figures=draw_figures,
    tables=make_tables,
    columns=("epoch", "accuracy", "nc1", "nc2_equinorm_means", "nc3_self_duality"),
)
