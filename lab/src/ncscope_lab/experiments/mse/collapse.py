"""MSE appendix A, figures 3-8 and table 1: NC1-NC4 under the MSE loss, far past zero error.

Recipe of the small scale: a small VGG and a small ResNet train for 1,500 epochs, and a small
DenseNet for 750, on scikit-learn's digits (1,437 training images, 360 held out); another small VGG
for 300 on 4,000 digits of MNIST, 1,000 held out. The loss is the MSE; SGD has momentum 0.9, batches
of 128, weight decay 5e-4 and rate 0.0679, divided by 10 after 1/3 and 2/3 of the epochs; no
augmentation. Seeds are 11 to 18; others served to choose the settings. All training and held-out
images are measured at about 24 log-spaced epochs, the first before training.

At the paper's scale, which we have not run, VGG, ResNet and DenseNet of the depths of A.2 train so
on five data sets for 350 epochs, from seeds 1 to 3, and are measured at about 40 epochs.
`ncscope_lab.experiments.mse.networks` holds the settings of both scales, and why they are so. The
networks are those of `mse/decomposition`, whose run holds all that this one measures.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.report import panels
from ncscope.report.labels import find_label
from ncscope.report.tables import Summary
from ncscope_lab.claims import Claim, above, below
from ncscope_lab.experiment import Experiment
from ncscope_lab.experiments.mse.networks import (
    EXCEPTIONS,
    MSETrainings,
    name_network,
    paper_runs,
    select_best_rates,
    select_typical,
    small_runs,
    tabulate_rates,
    train_sweep,
)
from ncscope_lab.experiments.mse.terminal_phase import (
    COLLAPSE,
    FACTOR,
    ZERO_ERROR_CLAIM,
    at_zero_error,
    claim_of_most,
    draw_courses,
    draw_curves,
    draw_networks,
    end_over_zero_error,
    list_values,
    select_phase,
)
from ncscope_lab.figures import Curve, draw_grid
from ncscope_lab.intervals import SHARE
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Run, Runs, average, geometric_mean, last, quantity, ratio
from ncscope_lab.report.drawing import Drawing

GROUPS = ("nc1", "nc2", "nc3", "nc4", "mse")  # those of mse/decomposition
PAPER = MSETrainings(runs=paper_runs(("mse",), GROUPS))
SMALL = MSETrainings(runs=small_runs(("mse",), GROUPS))

DISAGREEMENT = 1e-3  # two equal rules differ on at most this share: that which counts as zero error
ONE_SAMPLE = 1 / 1437  # share of one image in the smallest training set


def curve_pair(key: str) -> list[Curve]:
    """Return a metric of the class means and the same metric of the classifier."""
    classifier = Curve(f"{key}_weights", "classifier", panels.SERIES[2], panels.DASHED)
    return [Curve(f"{key}_means", "class means"), classifier]


FIGURES: Mapping[int, tuple[str, str, Sequence[Curve]]] = {
    3: (
        "deviation of norms / mean norm",
        "approach class means and classifiers of equal norms",
        curve_pair("nc2_equinorm"),
    ),
    4: (
        "deviation of cosines",
        "approach equal angles between all pairs of classes",
        curve_pair("nc2_equiangular"),
    ),
    5: (
        "mean of |cosine + 1/(K-1)|",
        "approach the largest angles that all pairs can have",
        curve_pair("nc2_maxangle"),
    ),
    6: (
        "squared distance, both of norm one",
        "approach a classifier that points along the centred class means",
        [Curve("nc3_self_duality", "classifier to class means")],
    ),
    7: (
        "Tr(within / between) / K",
        "approach features without variability within classes",
        [Curve("nc1", "last-layer features")],
    ),
    8: (
        "share of samples decided otherwise",
        "increasingly decide by the nearest class mean",
        [Curve("nc4_disagreement", "classifier against nearest class mean")],
    ),
}
"""Label, tendency according to the paper, and metrics of each figure; all fall to 0 at collapse."""
FALLS: Mapping[str, tuple[int, float]] = {
    curve.key: (number, COLLAPSE if curve.key == "nc1" else FACTOR)
    for number, (_, _, curves) in FIGURES.items()
    for curve in curves
    if curve.key != "nc4_disagreement"  # a share, which is 0 long before the end
}
"""Figure of each metric that falls past zero error, and the least factor by which it falls."""

PARTS: Mapping[str, Sequence[Curve]] = {
    "NC1: variability": [Curve("nc1", "")],
    "NC2: class means": [
        Curve("nc2_equinorm_means", "NC2: norms"),
        Curve("nc2_equiangular_means", "NC2: angles", panels.SERIES[2], panels.DASHED),
    ],
    "NC3: classifier": [Curve("nc3_self_duality", "")],
    "NC4: decisions": [Curve("nc4_disagreement", "")],
}
"""Metrics of the four parts of collapse, all of which fall to 0."""

# The rule of `claim_of_most`: every run, of one network and seed, gives one ratio. For each data
# set and kind of network the claim holds if the 95 % interval of the geometric mean over the seeds
# lies in the region; it must hold of two thirds of these, the ResNet and the DenseNet on STL-10
# apart, which the paper calls outliers (A.7). Zero training error is an accuracy of 99.9 %, at the
# first measured epoch; NC1 must fall by a factor of 2 from there to the end, the other metrics by
# 1.1.
CLAIMS = [
    ZERO_ERROR_CLAIM,
    *(
        claim_of_most(
            text=f"{find_label(key).title} falls at least by a factor of {factor:g} from zero "
            "training error to the end, in most networks",
            source=f"MSE, figure {number}",
            quantity=end_over_zero_error(key),
            region=below(1 / factor),
        )
        for key, (number, factor) in FALLS.items()
    ),
    claim_of_most(
        text=f"at the end {find_label('nc4_disagreement').title} is below {DISAGREEMENT:.1%}, in "
        "most networks",
        source="MSE, figure 8",
        quantity=last("nc4_disagreement"),
        region=below(DISAGREEMENT),
        scale="plain",
        step=ONE_SAMPLE,
        bounds=SHARE,
    ),
    Claim(
        text="the accuracy on held-out images rises from zero training error to the end, in the "
        "mean of the networks",
        source="MSE, table 1",
        quantity=last("accuracy", "test") - at_zero_error("accuracy", "test"),
        region=above(0),
        average="seed",
    ),
]


@quantity("NC1 that remains past zero error, over that of the typical networks")
def fall_beside_typical(run: Run) -> float:
    """Return what remains of NC1 past zero error, over the mean of the typical networks."""
    remaining = end_over_zero_error("nc1")
    others = select_typical(run.experiment, seed=run.settings.seed)
    return ratio(remaining(run), geometric_mean([remaining(other) for other in others]))


EXCEPTIONS_ARE_SLOWER = Claim(
    text="on STL-10 the ResNet and the DenseNet collapse more slowly than the other networks: from "
    f"zero training error to the end NC1 falls less, by a factor of at least {FACTOR:g}",
    source="MSE, appendix A.7",
    quantity=fall_beside_typical,
    region=above(FACTOR),
    scale="ratio",
    where=lambda runs: Runs(run for run in runs if name_network(run) in EXCEPTIONS),
    groups=name_network,
)

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
    """Return the claims of appendix A, and that on STL-10 if its networks are trained."""
    runs = Runs.of(settings.runs, Results())
    return CLAIMS if len(select_typical(runs)) == len(runs) else [*CLAIMS, EXCEPTIONS_ARE_SLOWER]


def draw_figures(settings: MSETrainings, runs: Runs) -> list[Drawing]:
    """Draw figures 3-8 of the paper, and the four parts of collapse in one figure."""
    return [
        Drawing(
            "parts",
            "The four parts of neural collapse by network, on the training set: NC1, variability "
            "within classes over that between; NC2, deviations of the class means from equal norms "
            "(solid) and equal angles (dashed); NC3, squared distance of the classifier from the "
            "class means, both of norm one; NC4, share of images that the nearest class mean "
            "decides otherwise. One curve for each seed; the dots are the first measured epochs of "
            "zero training error, and a grey strip holds values of 0.",
            draw_parts(runs),
        ),
        *(
            Drawing(
                f"fig-{number}",
                f"MSE figure {number}: networks {tendency}, on the training set; one curve for "
                "each seed, with a dot at its first measured epoch of zero training error.",
                draw_networks(runs, label, partial(draw_curves, curves=curves)),
            )
            for number, (label, tendency, curves) in FIGURES.items()
        ),
    ]


def draw_parts(runs: Runs) -> Figure:
    """Draw a row of four panels for each network, with one scale for each of the parts."""

    def draw_part(network: str, own: Runs, part: str, axes: Axes) -> None:
        scale = list_values([(run, curve) for run in runs for curve in PARTS[part]])
        draw_courses(axes, [(run, curve) for run in own for curve in PARTS[part]], scale=scale)
        if own[0] is runs[0]:
            axes.set_title(part)
        if part == next(iter(PARTS)):
            axes.set_ylabel(network, fontweight="bold")

    networks = runs.group(name_network)
    return draw_grid(
        [[partial(draw_part, *each, part) for part in PARTS] for each in networks.items()],
        cell=(1.9, 1.7),
        legend="below",
        share_x="col",
        share_y="col",
    )


def make_tables(settings: MSETrainings, runs: Runs) -> list[Summary]:
    """Return table 1, of held-out accuracies, ours and printed, and the sweep of rates if any."""
    zero_error, end = at_zero_error("accuracy", "test"), last("accuracy", "test")
    ours: dict[str, tuple[float, float]] = {}
    networks = runs.group(name_network)
    for network, seeds in networks.items():
        pairs = [(zero_error(run), end(run)) for run in seeds if select_phase(run, "test")]
        if pairs:
            zero, final = (100 * average(course) for course in zip(*pairs, strict=True))
            ours[network] = zero, final

    def write(accuracies: Mapping[str, tuple[float, float]], network: str) -> list[str]:
        if network not in accuracies:
            return ["", "", ""]
        zero, final = accuracies[network]
        return [f"{zero:.2f}", f"{final:.2f}", f"{final - zero:+.2f}"]

    lines = {
        network: [*write(ours, network), *write(ACCURACIES, network)]
        for network in dict.fromkeys([*networks, *ACCURACIES])
    }
    gains = [final - zero for zero, final in ours.values()]
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
    return [Summary(caption, columns, lines, title="Table 1"), *tabulate_rates(settings, runs)]


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
    cost={"paper": "75 GPU-hours (estimated)", "small": "160 minutes on one core"},
    parts=train_sweep,
    select=select_best_rates,
    claims=list_claims,
    figures=draw_figures,
    tables=make_tables,
    columns=("epoch", "accuracy", "nc1", "nc2_equinorm_means", "nc3_self_duality"),
)
