"""PFC figures 2-3, section IV-A: PFC1-3 layer by layer while residual networks train.

The paper trains the residual networks of its table I on MNIST, FashionMNIST, CIFAR-10, STL-10 and
CIFAR-100: cross-entropy, SGD with momentum 0.9, weight decay 5e-4, batches of 128, 350 epochs,
learning rate 0.005 (MNIST) or 0.01, divided by 10 at epochs 117 and 233. We have not run the
paper's scale.

The small scale has the same loss, momentum, decay and shape of the schedule, and no augmentation.
It trains three networks: table I's for MNIST (fully connected, width 1000, 10 blocks) on 4,000
digits of MNIST for the paper's 350 epochs, from seeds 3 to 5; a fully connected net of width 128
with 8 blocks on scikit-learn's digits (1,437 images, 2,800 epochs); and a convolutional net with
batch norms, whose stages have 8, 8 and 10 channels and the last one 7 blocks, on 2,000 generated
patterns (480 epochs), both from seeds 3 to 10. Batches are of 128, on patterns of 64. All are
measured at 12 to 16 log-spaced epochs, the first before training. There are 10,850, 30,800 and
14,880 steps, where the paper has 164,000 on MNIST, so the rates are higher: 0.05, 0.1 and 0.1.
Gradients of networks without batch norms are clipped to norm 1: unclipped, a pilot on digits
diverged. The last two networks have three controls each, from seeds 3 to 5, without weight decay,
because PFC's geodesic curve assumption is about decay.

At every measured epoch the paths of 500 training images are compared with optimal transport (PFC
proposition 1), and the energy of the blocks with their weights (III-C), see `paths`. The layers of
one dimension are the stem (or the entry of the last stage), the paper's layer 0, and the blocks.
Straightness is chord over path length, in sums over all training images. Zero training error means
that all training images are classified correctly; the effective depth is the first layer whose
nearest class mean, too, is right for all of them. The paper chose networks of which this is the
last layer; ours may have few layers before it, and PFC3 then ends at 1. Everything is judged on one
value for each seed. A metric counts as going from layer to layer if its rank correlation with depth
is beyond 0.8 or -0.8; a table counts the steps that break the strict order.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from statistics import correlation
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from ncscope.metrics.layerwise import effective_depth, order_breaks
from ncscope.report import panels
from ncscope.report.curves import geodesic_curves
from ncscope.report.labels import find_label
from ncscope.report.tables import Summary
from ncscope.report.wording import format_figure_text
from ncscope_lab.claims import Claim, Region, above, below
from ncscope_lab.experiment import Experiment, Trainings, repeat_with_seeds, train_runs
from ncscope_lab.experiments.pfc.paths import SAMPLE, WHOLE, path_observations
from ncscope_lab.figures import (
    Curve,
    collect_points,
    draw_band,
    draw_grid,
    draw_over_epochs,
    draw_reference,
    logarithmic_values,
    make_depth_colours,
    scale_epochs,
)
from ncscope_lab.intervals import SHARE, mean_interval
from ncscope_lab.quantities import (
    Path,
    Quantity,
    Run,
    Runs,
    average,
    ends,
    last,
    quantity,
    ratio,
    replace_fields,
    values,
    zero_error_row,
)
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training


class PFCTraining(Trainings):
    """Settings of the experiment."""

    samples: int = Field(
        500, ge=2, description="Training images whose paths are compared with optimal transport."
    )


def network_training(
    data: str, network: str, rate: float, layers: tuple[str, ...], measurements: int, **given: Any
) -> Training:
    """Return settings with PFC's loss, optimiser and schedule."""
    optimisation = Optimisation(
        learning_rate=rate, schedule="steps", milestones=(117 / 350, 233 / 350), **given
    )
    return Training(
        data=data,
        network=network,
        layers=layers,
        optimisation=optimisation,
        measurements=measurements,
    )


FULLY_CONNECTED = ("stem", "blocks.*")


def last_stage(stage: int) -> tuple[str, ...]:
    """Name the layers of one dimension at the end of a convolutional network."""
    return (f"stages.{stage}.entry", f"stages.{stage}.blocks.*")


large = partial(network_training, epochs=350, batch_size=128, weight_decay=5e-4, measurements=40)
PAPER = PFCTraining(
    runs=repeat_with_seeds(
        {
            "mnist": large("mnist", "pfc-mnist", 0.005, FULLY_CONNECTED),
            "fashion-mnist": large("fashion-mnist", "pfc-fashion-mnist", 0.01, last_stage(1)),
            "cifar10": large("cifar10", "pfc-cifar10", 0.01, last_stage(2)),
            "stl10": large("stl10", "pfc-stl10", 0.01, last_stage(3)),
            "cifar100": large("cifar100", "pfc-cifar100", 0.01, last_stage(3)),
        },
        seeds=(0, 1, 2),
    )
)

# Decay acts through its product with rate and steps. The sum of rate x decay / (1 - momentum) over
# the steps is 1.0, 5.7 and 2.8; at the paper's scale it is 1.5 on MNIST, 2.5 on CIFAR and 0.3 on
# STL-10. Rates and lengths were chosen on seed 0.
small = partial(network_training, weight_decay=5e-4)
TABLE_I = {
    "mnist-5k": small(
        "mnist-5k", "pfc-mnist", 0.05, FULLY_CONNECTED,
        epochs=350, batch_size=128, clip=1.0, measurements=12,
    )
}  # fmt: skip
NETWORKS = {
    "digits": small(
        "digits", "small-residual", 0.1, FULLY_CONNECTED,
        epochs=2800, batch_size=128, clip=1.0, measurements=16,
    ),
    "patterns": small(
        "patterns", "small-resnet-long", 0.1, last_stage(2),
        epochs=480, batch_size=64, measurements=14,
    ),
}  # fmt: skip
CONTROLS = {
    f"{name}, no decay": replace_fields(run, weight_decay=0.0) for name, run in NETWORKS.items()
}
SMALL = PFCTraining(
    runs=repeat_with_seeds(NETWORKS, seeds=range(3, 11))
    | repeat_with_seeds(TABLE_I | CONTROLS, seeds=(3, 4, 5))
)

KEYS = {"pfc1": True, "pfc2": True, "pfc3": False}
"""PFC1-3, with True for metrics that fall at collapse."""
# The paper states no number for any of these.
BEND_LEFT = 0.5  # largest share that is left of a deviation which training removes
STRAIGHT = 0.95  # least straightness of a path that counts as a straight line
COLLAPSED = 0.1  # largest PFC1 of collapsed features, as a share of PFC1 of the first layer
CONSTANT = 2.0  # largest factor between the blocks' ratios of energy to weights that are constant
FACTOR = 1.1  # least factor by which a metric falls
ORDER = 0.8  # least rank correlation with depth of a metric that goes from layer to layer
RESOLUTION = {"pfc1": 0.01, "pfc2": 0.01, "pfc3": 0.001}  # least change; of PFC3, over one image
LEAST_LAYERS = 4  # fewer layers often have an order by chance
SPACING = 0.06  # of rank correlations with the depth of six layers: no smaller spread is believed
Course = Callable[[Run], Sequence[float]]
"""Function of a run that lists a metric from layer to layer, or along the straight line."""


def name_network(run: Run) -> str:
    """Name the network of a run, without its seed."""
    return run.name.split(", seed ")[0]


def with_decay(runs: Runs) -> Runs:
    """Select the runs with weight decay, which PFC's conjecture is about."""
    return Runs(run for run in runs if run.settings.optimisation.weight_decay > 0)


def with_control(runs: Runs) -> Runs:
    """Select the runs with weight decay that have a partner without."""
    return Runs(run for run in with_decay(runs) if run.partner(weight_decay=0.0))


def list_layers(run: Run, epoch: int | None = None) -> Path:
    """List the layers of one dimension in forward order, by default at the last epoch."""
    return [row for row in run.layers(epoch) if "relative_position" in row]


def last_layer(run: Run) -> Path:
    """Return the rows of the last layer of one dimension over training."""
    layers = list_layers(run)
    return run.path(layer=layers[-1].layer) if layers else []


def at_start(key: str) -> Quantity:
    """Return the quantity of the last layer's metric before training."""
    return Quantity(f"{key} before training", lambda run: ends(last_layer(run), key)[0])


def at_end(key: str) -> Quantity:
    """Return the quantity of the last layer's metric at the end."""
    return Quantity(f"{key} at the end", lambda run: ends(last_layer(run), key)[1])


def at_zero_error(key: str) -> Quantity:
    """Return the quantity of the last layer's metric at the first epoch of zero training error."""

    def compute(run: Run) -> float:
        reached = zero_error_row(run.path())
        then = [row for row in last_layer(run) if reached and row.epoch == reached.epoch]
        return ends(then, key)[0]

    return Quantity(f"{key} at zero training error", compute)


def bend(straightness: Quantity) -> Quantity:
    """Return the quantity of the distance from a straight line, 1 minus straightness."""
    return Quantity(f"1 - {straightness.name}", lambda run: 1 - straightness(run))


@quantity("least cosine")
def least_cosine(run: Run) -> float:
    """Return the least cosine of the first and last layer's centred class means over training."""
    return float(np.min(values(run.path(SAMPLE, WHOLE), "alignment_cosine") or math.nan))


def block_constant(name: str, select: Callable[[Sequence[float]], float]) -> Quantity:
    """Return the quantity of the least or largest ratio of a block's energy to squared weights."""

    def compute(run: Run) -> float:
        blocks = [row for row in run.layers(split=SAMPLE) if row.layer != WHOLE]
        return select(values(blocks, "energy_constant") or [math.nan])

    return Quantity(f"{name} ratio", compute)


def layer_course(key: str, run: Run, epoch: int | None = None) -> Sequence[float]:
    """Return a metric in the layers up to the effective depth, by default of the last epoch.

    The effective depth is that of the first layer whose PFC3 is 1, which belongs to them.
    """
    layers = list_layers(run, epoch)
    depth = effective_depth(values(layers, "pfc3"))
    return values(layers if depth is None else layers[: depth + 1], key)


def line_course(key: str, run: Run) -> Sequence[float]:
    """Return a metric at the end along the straight line of the features.

    The accuracy ends where it is 1, since it can rise no more, but has enough points for an order.
    """
    line = run.geodesic()
    curve = [] if line is None else geodesic_curves(line)[key]
    depth = effective_depth(curve) if key == "pfc3" else None
    return curve if depth is None else curve[: max(depth + 1, LEAST_LAYERS)]


def rank_correlation(course: Sequence[float]) -> float:
    """Return the rank correlation with depth; NaN for few or equal values, or if one is NaN."""
    if len(course) < LEAST_LAYERS or len(set(course)) == 1 or not all(map(math.isfinite, course)):
        return math.nan
    # Of a few layers. SciPy's function takes most of the time of a judgement, and of a perfect
    # order it may return a value just below 1.
    ranks = [sum(other < each for other in course) + course.count(each) / 2 for each in course]
    return correlation(range(len(course)), ranks)


def order(name: str, course: Course) -> Quantity:
    """Return the quantity of the rank correlation of a course with depth."""
    return Quantity(f"rank correlation {name}", lambda run: rank_correlation(course(run)))


def list_late_orders(key: str, run: Run) -> dict[int, float]:
    """Return the rank correlation with depth at each epoch from zero training error on.

    Epochs of which few layers come before the effective depth are left out.
    """
    reached = zero_error_row(run.path())
    late = [row.epoch for row in run.path() if reached and row.epoch >= reached.epoch]
    courses = {epoch: layer_course(key, run, epoch) for epoch in late}
    return {
        epoch: rank_correlation(course)
        for epoch, course in courses.items()
        if len(course) >= LEAST_LAYERS or not all(map(math.isfinite, course))
    }


def order_past_zero_error(key: str) -> Quantity:
    """Return the quantity of the mean rank correlation with depth past zero training error."""
    return Quantity(
        "rank correlation past zero error",
        lambda run: average(list(list_late_orders(key, run).values())),
    )


def find_best_order(key: str, run: Run) -> tuple[int | None, float]:
    """Return the first epoch past zero error with the strongest order, and its correlation."""
    sign = -1 if KEYS[key] else 1
    known = {at: x for at, x in list_late_orders(key, run).items() if math.isfinite(x)}
    return max(known.items(), key=lambda each: sign * each[1], default=(None, math.nan))


def best_order(key: str) -> Quantity:
    """Return the quantity of the strongest order past zero error, of all measured epochs."""
    return Quantity(
        "strongest rank correlation past zero error", lambda run: find_best_order(key, run)[1]
    )


def order_before(key: str) -> Quantity:
    """Return the quantity of the rank correlation with depth before training."""
    return order("before training", lambda run: layer_course(key, run, 0))


def change(course: Course) -> Quantity:
    """Return the quantity of the last value of a course minus the first."""

    def compute(run: Run) -> float:
        found = course(run) or [math.nan]
        return found[-1] - found[0]

    return Quantity("last minus first", compute)


def towards_collapse(key: str, border: float) -> Region:
    """Return the region of a change, or a trend, towards collapse by more than a border."""
    return below(-border) if KEYS[key] else above(border)


def goes(key: str) -> str:
    """Write which way a metric goes at collapse."""
    return f"{key.upper()} {'falls' if KEYS[key] else 'rises'}"


def errors_between(key: str, run: Run) -> tuple[float, float]:
    """Compute errors of two predictions of a metric between the first and the last layer.

    Args:
        key: Key of a positive metric.
        run: The run.

    Returns:
        Root mean square errors in the logarithm at the last epoch: of the straight line of the
        features at the layers' relative positions, and of the geometric interpolation of the
        metric; NaN without layers between, or if a value is not positive.
    """
    layers, line = list_layers(run), run.geodesic()
    measured, positions = values(layers, key), values(layers, "relative_position")
    curve = [] if line is None else geodesic_curves(line)[key]
    known = all(map(math.isfinite, [*positions, *measured, *curve]))
    if line is None or len(layers) < 3 or not known or min([*measured, *curve]) <= 0:
        return math.nan, math.nan
    course = np.log(measured)
    predicted = np.interp(positions, line.t, np.log(curve))
    between = course[0] + np.array(positions) * (course[-1] - course[0])
    first, second = (
        float(np.sqrt(np.mean((each - course)[1:-1] ** 2))) for each in (predicted, between)
    )
    return first, second


def line_error(key: str) -> Quantity:
    """Return the quantity of the straight line's error."""
    return Quantity("error of the line", lambda run: errors_between(key, run)[0])


def interpolation_error(key: str) -> Quantity:
    """Return the quantity of the interpolation's error."""
    return Quantity("of the interpolation", lambda run: errors_between(key, run)[1])


def list_claims(settings: PFCTraining) -> list[Claim]:
    """Return the geodesic curve assumption and the PFC conjecture on each network with decay."""
    # A seed gives one value. A claim holds of a network if the 95 % interval of the mean over the
    # seeds lies in the region (of a ratio, the geometric mean); it is not held if the interval lies
    # outside, and undecided otherwise. Several conditions must all hold. A run that never reaches
    # zero training error leaves a claim past zero error undecided, and one with fewer than four
    # layers up to the effective depth a claim on their order.
    claim = partial(Claim, where=with_decay, per=name_network)
    return [
        claim(
            text="training makes paths straighter: it at least halves the difference between "
            "their straightness and 1, the straightness of a straight line",
            source="PFC, assumption 1",
            quantity=bend(at_end("straightness")) / bend(at_start("straightness")),
            region=below(BEND_LEFT),
            scale="ratio",
        ),
        claim(
            text=f"at the end paths are straight lines: straightness is above {STRAIGHT}",
            source="PFC, assumption 1",
            quantity=at_end("straightness"),
            region=above(STRAIGHT),
            bounds=SHARE,
        ),
        claim(
            text="paths are straighter with weight decay than without",
            source="PFC, assumption 1",
            quantity=at_end("straightness") - at_end("straightness").of_partner(weight_decay=0.0),
            region=above(0),
            where=with_control,
            over="pairs of runs",
        ),
        # Both premises, because class means agree in an untrained residual network too. The cosine,
        # of the matrices of centred class means, must exceed 0 in every run.
        claim(
            text="the premises of theorem 1 are met: class means of the first and the last layer "
            "have a cosine of at least 0 at every measured epoch, and the last layer ends with "
            "less than a tenth of the first layer's PFC1",
            source="PFC, theorem 1",
            quantity={
                "class means": Claim(
                    text="class means agree",
                    source="PFC, theorem 1",
                    quantity=least_cosine,
                    region=above(0),
                    rule="each",
                    over="runs",
                ),
                "collapse": last("remaining_pfc1", SAMPLE, WHOLE),
            },
            unit="premises",
            region=below(COLLAPSED),
            scale="ratio",
        ),
        claim(
            text="at the end the ratio of a block's energy to its squared weights is the same in "
            f"all blocks, up to a factor of {CONSTANT:g}",
            source="ours",  # section III-C derives it for symmetric isotropic inputs of mean zero
            quantity=block_constant("largest", max) / block_constant("least", min),
            region=below(CONSTANT),
            scale="ratio",
        ),
        *(
            claim_order(
                claim,
                key,
                text=f"at the end {goes(key)} from layer to layer before the effective depth",
                source="PFC, conjecture 1 and figure 3",
                course=partial(layer_course, key),
                beside={
                    "untrained networks": order_before(key),
                    "the strongest order past zero error": best_order(key),
                },
                tells={"the strongest order past zero error": partial(tell_best_orders, key)},
            )
            for key in KEYS
        ),
        *(
            claim(
                text=f"past zero training error {goes(key)} from layer to layer more steadily "
                "than before training: the mean of its rank correlation with depth is "
                f"{'lower' if KEYS[key] else 'higher'}",
                source="PFC, conjecture 1 and figure 2",
                quantity=order_past_zero_error(key) - order_before(key),
                region=towards_collapse(key, 0),
                step=SPACING,
                bounds=(-2.0, 2.0),
            )
            for key in KEYS
        ),
        *(
            claim_order(
                claim,
                key,
                text=f"at the end {goes(key)} along the straight line from the first layer's "
                "features to the last layer's",
                source="PFC, figure 3",
                course=partial(line_course, key),
            )
            for key in ("pfc2", "pfc3")
        ),
        # Beside an interpolation, which is as good as the line where layers hardly differ.
        *(
            claim(
                text=f"at the end the straight line of the features predicts {key.upper()} "
                "between the first and the last layer better than the geometric interpolation of "
                f"their {key.upper()} does",
                source="PFC, figure 3",
                quantity=line_error(key) / interpolation_error(key),
                region=below(1),
                scale="ratio",
            )
            for key in ("pfc1", "pfc2")
        ),
        *(
            claim(
                text=f"past zero training error {key.upper()} of the last layer falls by a "
                f"factor of {FACTOR}",
                source="PFC, conjecture 1",
                quantity=at_end(key) / at_zero_error(key),
                region=below(1 / FACTOR),
                scale="ratio",
            )
            for key in ("pfc1", "pfc2")
        ),
    ]


def claim_order(
    claim: Callable[..., Claim],
    key: str,
    text: str,
    source: str,
    course: Course,
    beside: Mapping[str, Quantity] = {},
    tells: Mapping[str, Callable[[Runs], str]] = {},
) -> Claim:
    """Return the claim that a metric goes towards collapse along a course of values.

    The change must exceed the metric's resolution too: differences that mean nothing also have an
    order.
    """
    trend = partial(
        Claim,
        text="order",
        source=source,
        region=towards_collapse(key, ORDER),
        scale="correlation",
        step=SPACING,
    )
    size = Claim(
        text="change",
        source=source,
        quantity=change(course),
        region=towards_collapse(key, RESOLUTION[key]),
        step=RESOLUTION[key],
    )
    return claim(
        text=f"{text}: its rank correlation with the place is "
        f"{'below -' if KEYS[key] else 'above '}{ORDER}, and its change more than "
        f"{RESOLUTION[key]}",
        source=source,
        quantity={"order": trend(quantity=order("with the place", course)), "change": size},
        region=towards_collapse(key, ORDER),
        unit="conditions",
        uncounted={
            name: trend(quantity=each, tell=tells.get(name)) for name, each in beside.items()
        },
    )


def tell_best_orders(key: str, runs: Runs) -> str:
    """Write the epochs of the strongest order past zero error."""
    epochs = [epoch for run in runs if (epoch := find_best_order(key, run)[0]) is not None]
    return f"first reached at epochs {min(epochs)} to {max(epochs)}" if epochs else ""


SHARES = {
    "path_straight": "chord² / path²",
    "pairing_efficiency": "W2² / chord²",
    "path_even": "length² / energy",
    "path_optimality": "W2² / energy",
}
PREMISES = {
    "alignment_cosine": "cosine of class means (theorem 1: at least 0)",
    "remaining_pfc1": "PFC1, last / first (theorem 1: 0)",
    "relative_cost": "relative cost (theorem 2: small)",
}


def draw_figures(settings: PFCTraining, runs: Runs) -> list[Drawing]:
    """Draw figures 2 and 3, and for all claims on networks with decay what they are about."""
    networks = with_decay(runs).group(name_network)
    seeds = ", ".join(f"{name} {len(own)}" for name, own in networks.items())
    controls = ", ".join(
        f"{name} {len(find_controls(own)) or 'no control'}" for name, own in networks.items()
    )

    def draw_columns(*draws: Callable[..., None], **layout: Any) -> Figure:
        """Draw a column for each network and a row for each function of name, runs and axes."""
        return draw_grid(
            [[partial(draw, *each) for each in networks.items()] for draw in draws],
            cell=(2.5, 2.2),
            **layout,
        )

    def draw_metrics(
        draw: Callable[..., None], list_values: Callable[[str, Run], list[float]]
    ) -> Figure:
        """Draw a row for each network and a column for each metric, each panel with its scale."""
        return draw_grid(
            [
                [
                    partial(draw, name, own, key, [x for run in own for x in list_values(key, run)])
                    for key in KEYS
                ]
                for name, own in networks.items()
            ],
            cell=(2.5, 2.1),
            legend="below",
        )

    return [
        Drawing(
            "fig-2",
            "PFC figure 2: PFC1-3 of the layers of one dimension over training, on the training "
            "set, of each network with decay; light to dark from the first layer to the last. "
            f"Means over the seeds ({seeds}). The vertical lines are each seed's first measured "
            "epoch of zero training error.",
            draw_metrics(draw_layers, list_course),
        ),
        Drawing(
            "fig-3",
            "PFC figure 3: PFC1-3 at the last epoch against relative position, of each network "
            "with decay: the layers of one dimension (points on solid lines), and the prediction "
            "by the straight line from the first layer's features to the last's (dashed). One "
            f"curve of each for each seed ({seeds}). Claims are about the layers up to the "
            "effective depth; hollow points are the layers after it.",
            draw_metrics(draw_line, list_end),
        ),
        Drawing(
            "last-layer",
            "PFC1 and PFC2 of the last layer of one dimension from the first measured epoch of "
            "zero training error on, over their values at this epoch; one curve for each seed that "
            f"reaches it ({seeds}). Diamonds: geometric means at the end, with 95 % intervals. "
            f"Lines: no change, and the fall by a factor of {FACTOR} that is claimed.",
            draw_columns(
                partial(draw_last_layer, "pfc1"),
                partial(draw_last_layer, "pfc2"),
                legend="below",
                share_y="row",
                quantity="metric over its value at zero error",
            ),
        ),
        Drawing(
            "order",
            "Rank correlation of PFC1-3 with depth, up to the effective depth of each epoch, of "
            "networks with decay. PFC collapses from layer to layer if it is near -1 for PFC1 and "
            "PFC2 and near +1 for PFC3. The means that the claims judge, of Fisher's z over the "
            f"seeds ({seeds}), with 95 % intervals; a correlation of exactly 1 or -1 counts as "
            f"{SPACING / 2} less, so that seeds which all have -1 are drawn at "
            f"{SPACING / 2 - 1}. Without the seeds of which fewer than {LEAST_LAYERS} layers come "
            "before the effective depth at this epoch. Horizontal lines: no order, and "
            f"{ORDER} and -{ORDER}, beyond which a metric counts as going from layer to layer.",
            draw_columns(draw_order, legend="below", share_y=True, quantity="rank correlation"),
        ),
        Drawing(
            "straightness",
            "Straightness of the paths through the layers of one dimension, chord over length of "
            f"path, over training: with weight decay ({seeds} seeds) and without ({controls}); "
            "means over the seeds and their range. Horizontal "
            f"lines: 1, a straight line, and {STRAIGHT}, above which a path counts as straight.",
            draw_columns(draw_straightness, legend="below", share_y=True, quantity="chord / path"),
        ),
        Drawing(
            "premises",
            "Above: premises over training, networks with decay: for theorem 1 the cosine of the "
            "first and the last layer's class means must be at least 0 and the ratio of their PFC1 "
            "0, for theorem 2 the relative cost must be small. Below: energy "
            "of a block over the sum of its squared weights, which the bound of PFC III-C says is "
            "at most C, for the first block and the last, and the C that the proof gives for "
            f"blocks of one layer. Means over the seeds ({seeds}) and their range.",
            draw_columns(draw_premises, draw_constants, legend="below", share_x="col"),
        ),
    ]


def find_controls(runs: Runs) -> Runs:
    """Return the runs' partners without weight decay."""
    return Runs(filter(None, (run.partner(weight_decay=0.0) for run in runs)))


def list_course(key: str, run: Run) -> list[float]:
    """List a metric of all layers of one dimension over training."""
    return [x for row in list_layers(run) for x in values(run.path(layer=row.layer), key)]


def list_end(key: str, run: Run) -> list[float]:
    """List a metric of all layers of one dimension at the end, and of the straight line."""
    line = run.geodesic()
    return values(list_layers(run), key) + ([] if line is None else geodesic_curves(line)[key])


def place(key: str, numbers: Sequence[float], scale: Sequence[float]) -> Sequence[float]:
    """Return values as they stand on the metric's axis."""
    return panels.place_on_log_axis(numbers, scale) if has_log_axis(key, scale) else numbers


def has_log_axis(key: str, scale: Sequence[float]) -> bool:
    """Return whether the metric's axis is logarithmic."""
    return find_label(key).log_scale and any(0 < value < math.inf for value in scale)


def draw_layers(name: str, runs: Runs, key: str, scale: Sequence[float], axes: Axes) -> None:
    """Draw a metric of every layer over training, in the mean of the seeds."""
    layers = [row.layer for row in list_layers(runs[0])]
    for layer, colour in zip(layers, make_depth_colours(len(layers)), strict=True):
        rows = (row for run in runs for row in run.path(layer=layer))
        points = {at: average(each) for at, each in collect_points(rows, "epoch", key).items()}
        axes.plot(list(points), place(key, list(points.values()), scale), color=colour)
    reached = {row.epoch for run in runs if (row := zero_error_row(run.path()))}
    for epoch in sorted(reached):
        axes.axvline(epoch, color=panels.SOFT, linewidth=0.8, linestyle=panels.DASHED)
    if has_log_axis(key, scale):
        panels.make_logarithmic(axes, "y", scale)
    axes.set_title(f"{key.upper()}, {format_figure_text(name)}")
    scale_epochs(axes)


def draw_line(name: str, runs: Runs, key: str, scale: Sequence[float], axes: Axes) -> None:
    """Draw a metric at the end against the relative position, and the straight line's."""
    for run in runs:
        layers, line = list_layers(run), run.geodesic()
        if line is not None:
            curve = place(key, geodesic_curves(line)[key], scale)
            look: dict[str, Any] = {"color": panels.SECOND, "linestyle": panels.DASHED}
            axes.plot(line.t, curve, label="straight line", linewidth=0.9, **look)
        numbers = place(key, values(layers, key), scale)
        at = values(layers, "relative_position")
        axes.plot(at, numbers, "o-", color=panels.ACCENT, ms=2.5, linewidth=0.9, label="layers")
        depth = effective_depth(values(layers, "pfc3"))
        if depth is not None and depth + 1 < len(layers):
            hollow: dict[str, Any] = {"color": panels.ACCENT, "mfc": "white", "ms": 2.5}
            behind = slice(depth + 1, None)
            axes.plot(at[behind], numbers[behind], "o", label="after effective depth", **hollow)
    if has_log_axis(key, scale):
        panels.make_logarithmic(axes, "y", scale)
    axes.set_title(f"{key.upper()}, {format_figure_text(name)}")
    axes.set_xlabel("relative position")


def draw_last_layer(key: str, name: str, runs: Runs, axes: Axes) -> None:
    """Draw a metric of the last layer past zero error over its value there, by seed."""
    ends: list[float] = []
    epochs: list[int] = []
    for run in runs:
        start, reached = at_zero_error(key)(run), zero_error_row(run.path())
        late = [row for row in last_layer(run) if reached and row.epoch >= reached.epoch]
        shares = [ratio(value, start) for value in values(late, key)]
        axes.plot([row.epoch for row in late], shares, color=panels.ACCENT, linewidth=0.9)
        epochs += [row.epoch for row in late]
        ends += shares[-1:]
    interval = mean_interval(ends, scale="ratio")
    if interval is not None:
        at, label = 1.3 * max(epochs), "mean at the end"
        axes.plot([at] * 2, [interval.low, interval.high], color=panels.SECOND, linewidth=2)
        axes.plot([at], [interval.estimate], "D", color=panels.SECOND, markersize=4, label=label)
    draw_reference(axes, 1, "no change", "-")
    draw_reference(axes, 1 / FACTOR, f"fall by a factor of {FACTOR}", "-.")
    axes.set_title(f"{key.upper()}, {format_figure_text(name)}")
    panels.make_logarithmic(axes, "x", epochs)
    axes.set_xlabel("epoch")


LOOKS = ((panels.ACCENT, "-"), (panels.SECOND, panels.DASHED), (panels.SERIES[2], ":"))
"""Colours and styles of the curves of a panel."""


def draw_order(name: str, runs: Runs, axes: Axes) -> None:
    """Draw the rank correlations with depth over training."""
    for key, look in zip(KEYS, LOOKS, strict=True):
        points: dict[float, list[float]] = {}
        for run in runs:
            for row in run.path():
                found = rank_correlation(layer_course(key, run, row.epoch))
                if math.isfinite(found):
                    points.setdefault(row.epoch, []).append(found)
        draw_intervals(axes, dict(sorted(points.items())), key.upper(), *look)
    draw_reference(axes, 0, style="-")
    for border in (-ORDER, ORDER):
        draw_reference(axes, border, style="-.")
    axes.set_ylim(-1.05, 1.05)
    axes.set_title(format_figure_text(name))
    scale_epochs(axes)


def draw_intervals(
    axes: Axes, points: Mapping[float, Sequence[float]], label: str, colour: Any, style: Any
) -> None:
    """Draw the mean of rank correlations as claims judge it, and its interval as a band."""
    intervals = {
        epoch: interval
        for epoch, numbers in points.items()
        if (interval := mean_interval(numbers, scale="correlation", step=SPACING)) is not None
    }
    at, found = list(intervals), list(intervals.values())
    means = [each.estimate for each in found]
    axes.plot(at, means, "o", linestyle=style, color=colour, markersize=2.6, label=label)
    ends = [each.low for each in found], [each.high for each in found]
    axes.fill_between(at, *ends, color=colour, alpha=0.15, linewidth=0)


def draw_straightness(name: str, runs: Runs, axes: Axes) -> None:
    """Draw the straightness of the paths over training, with and without weight decay."""
    groups = {"weight decay": runs, "no weight decay": find_controls(runs)}
    for (label, own), look in zip(groups.items(), LOOKS, strict=False):
        rows = chain.from_iterable(map(last_layer, own))
        points = collect_points(rows, "epoch", "straightness")
        if points:
            draw_band(axes, points, label, *look)
        else:
            axes.text(0.5, 0.08, f"no run with {label}", ha="center", transform=axes.transAxes)
    draw_reference(axes, 1, "straight line", "-")
    draw_reference(axes, STRAIGHT, f"{STRAIGHT}", "-.")
    axes.set_ylim(0, 1.05)
    axes.set_title(format_figure_text(name))
    scale_epochs(axes)


def draw_premises(name: str, runs: Runs, axes: Axes) -> None:
    """Draw the premises of theorems 1 and 2 over training."""
    curves = [
        Curve(key, label.split(" (")[0], *look)
        for (key, label), look in zip(PREMISES.items(), LOOKS, strict=True)
    ]
    draw_over_epochs(axes, runs, curves, split=SAMPLE)
    axes.set_title(f"premises, {format_figure_text(name)}")
    scale_epochs(axes)


def draw_constants(name: str, runs: Runs, axes: Axes) -> None:
    """Draw energy over weights of the first and of the last block, and the proof's constant."""
    blocks = [[row for row in run.layers(split=SAMPLE) if row.layer != WHOLE] for run in runs]
    for index, label, colour, style, dash in (
        (0, "first block", panels.ACCENT, "-", "-."),
        (-1, "last block", panels.SECOND, panels.DASHED, ":"),
    ):
        own = [
            run.path(SAMPLE, of_run[index].layer)
            for run, of_run in zip(runs, blocks, strict=True)
            if of_run
        ]
        for key, text, look in (
            ("energy_constant", f"energy / weights, {label}", style),
            ("energy_bound", f"proof's C, {label}", dash),
        ):
            points = collect_points(chain.from_iterable(own), "epoch", key)
            if points:
                draw_band(axes, points, text, colour, look)
    logarithmic_values(axes)
    axes.set_title(f"energy, {format_figure_text(name)}")
    scale_epochs(axes)


def make_tables(settings: PFCTraining, runs: Runs) -> list[Summary]:
    """Summarise for each run the strict order, the last layer's collapse, and the paths."""
    rows = [run for own in runs.group(name_network).values() for run in own]
    ways: dict[str, Callable[[str, Run], Sequence[float]]]
    ways = {"layers": layer_course, "line": line_course}
    courses = [(where, course, key) for where, course in ways.items() for key in KEYS]
    paths = [at_start("straightness"), at_end("straightness")]
    paths += [last(key, SAMPLE, WHOLE) for key in (*SHARES, *PREMISES)]
    late = [when(key) for key in KEYS for when in (at_zero_error, at_end)]
    return [
        Summary(
            "Steps in the wrong direction at the end, of all steps, and the largest of them: from "
            "layer to layer up to the effective depth, and along the straight line.",
            [f"{key.upper()}, {where}" for where, _, key in courses],
            {
                run.name: [count_breaks(key, course(key, run)) for _, course, key in courses]
                for run in rows
            },
            title="Strict order",
        ),
        Summary(
            "Last layer of one dimension: PFC1-3 at the first measured epoch of zero training "
            "error, and at the end.",
            [f"{key.upper()}, {when}" for key in KEYS for when in ("zero error", "end")],
            {run.name: [f"{number(run):.3g}" for number in late] for run in rows},
            title="Collapse of the last layer",
        ),
        Summary(
            "Paths of the samples at the last epoch, and straightness before training too.",
            ["straightness, epoch 0", "straightness", *SHARES.values(), *PREMISES.values()],
            {run.name: [f"{number(run):.3g}" for number in paths] for run in rows},
            title="Paths",
        ),
    ]


def count_breaks(key: str, course: Sequence[float]) -> str:
    """Count the steps in the wrong direction, and write the largest of them."""
    breaks = [size for _, size in order_breaks(course, KEYS[key])]
    return f"{len(breaks)} of {max(0, len(course) - 1)}" + (
        f", {max(breaks):.2g}" if breaks else ""
    )


EXPERIMENT = Experiment(
    id="pfc/training",
    title="Progressive feedforward collapse while residual networks train",
    question=(
        "Residual networks with blocks of one dimension train past zero error. PFC says that "
        "collapse proceeds from layer to layer, as a straight line of the features predicts."
    ),
    source="PFC section IV-A, figures 2-3, table I",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "15 GPU-hours (estimated)", "small": "170 minutes on one core"},
    parts=lambda settings: train_runs(
        settings, partial(path_observations, samples=settings.samples)
    ),
    claims=list_claims,
    figures=draw_figures,
    tables=make_tables,
    columns=(
        "epoch", "pfc1", "pfc2", "pfc3", "accuracy", "relative_position", "displacement",
    ),
)  # fmt: skip
