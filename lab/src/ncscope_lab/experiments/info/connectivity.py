r"""INFO section 5.2, figures 3-4: the networks between two runs from one initialisation.

Two networks start from the same weights and are trained with different data orders and
augmentations. The networks between them have weights $(1-\omega)\theta_1+\omega\theta_2$, once with
interpolated batch-norm statistics and once with re-estimated ones: averages over the training
images, without augmentation, in shuffled batches of the training's size. The paper does not say
which it measured. Held-out images are measured at 11 values of $\omega$ from 0 to 1.

The paper trains at rates 0.03, 0.003 and 0.0003 on CIFAR-10 and 0.03 on CIFAR-100, as in
`info/training`; three pairs each are ours. We have not run the paper's scale. The small scale
trains a wide residual network of 64 features on scikit-learn's digits (1,437 training images, 360
held out): Nesterov momentum 0.9, batches of 32, weight decay 5e-4, crops, the rate along a cosine
to 0. It has 700 steps instead of 2^20, so its rates are ten times higher: 0.3, 0.03 and 0.003. A
pair counts only if both runs are trained, and rates are compared only where the training accuracy
is the same, because networks that have learnt little are connected for want of a distance. So the
lowest rate has 64 epochs, the others 16. Seeds are 10 to 19, each of a pair.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from pydantic import Field
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from ncscope.data.draws import stream_seed
from ncscope.data.loaders import make_measurement_loader
from ncscope.data.order import epoch_order
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.report import panels
from ncscope_lab.claims import Claim, above, below
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.info.information_runs import (
    BY_BATCH,
    LINES,
    add_classes,
    count_seeds,
    draw_chance,
    draw_collapse,
    draw_metric,
    drop_metrics_of_means,
    name_runs,
    paper_training,
    small_training,
)
from ncscope_lab.figures import collect_points, draw_grid, draw_yardstick
from ncscope_lab.intervals import SHARE
from ncscope_lab.observations import Event, Heartbeat, Observation, Value
from ncscope_lab.quantities import Path, Quantity, Run, Runs, average, ends, quantity, values
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.resources import Resources
from ncscope_lab.runs.settings import Config
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Bench, bench_events, measure_images, prepare_bench

AS_THEY_ARE, REESTIMATED = "as they are", "re-estimated"


class InfoConnectivity(Config):
    """Settings of the experiment."""

    runs: dict[str, Training] = Field(description="First runs of the pairs, by name.")
    intervals: int = Field(10, ge=2, description="Steps in which omega goes from 0 to 1.")


PAPER = InfoConnectivity(
    runs=name_runs(
        (
            paper_training(data, seed, learning_rate=rate)
            for data, rate in (
                ("cifar10", 0.03),
                ("cifar10", 0.003),
                ("cifar10", 0.0003),
                ("cifar100", 0.03),
            )
            for seed in (0, 1, 2)
        ),
        "learning_rate",
    )
)
SMALL = InfoConnectivity(
    runs=name_runs(
        (
            small_training("digits", epochs, seed, learning_rate=rate, batch_size=32)
            for rate, epochs in ((0.3, 16), (0.03, 16), (0.003, 64))
            for seed in range(10, 20)  # settings and borders were chosen on seeds 0 to 5
        ),
        "learning_rate",
    )
)

# The paper states no borders.
CHANCE = 1.5  # largest multiple of chance that counts as random guessing
CONNECTED = 0.02  # largest fall of accuracy between connected runs (Frankle et al. 2020 take 2 %)
UNCHANGED = 0.05  # largest range of a ratio that counts as almost unchanged
TRAINED = 0.95  # least training accuracy of both runs of a pair that counts
MATCHED = 0.01  # largest difference of mean training accuracy at which rates are compared


def rate_of(run: Run) -> float:
    """Return the learning rate of a pair."""
    return run.settings.optimisation.learning_rate


def rates_beside(run: Run) -> list[float]:
    """Return all learning rates with the same data, in order."""
    return sorted(set(map(rate_of, run.alike("data"))))


def highest_rate(run: Run) -> float:
    """Return the highest learning rate with the same data."""
    return rates_beside(run)[-1]


def next_rate(run: Run) -> float:
    """Return the next higher learning rate with the same data."""
    return min(rate for rate in rates_beside(run) if rate > rate_of(run))


def at_rate(run: Run, rate: float) -> Run:
    """Return the pair with the same data and seed at a learning rate; without rows if none."""
    pairs = run.alike("data", "seed").where(learning_rate=rate)
    return pairs[0] if pairs else run.experiment.find("none")


def if_trained(own: Quantity, as_at: Callable[[Run], float] = rate_of) -> Quantity:
    """Return a quantity that is NaN if a run of the pair is not trained.

    Args:
        own: The quantity.
        as_at: Function that returns another rate, at which the pair must be trained equally well.
    """

    def compute(run: Run) -> float:
        accuracies = [
            [ends([r for r in pair.rows if r.split == f"train, {name} run"], "accuracy")[1]
             for name in ("first", "second")]
            for pair in (run, at_rate(run, as_at(run)))
        ]  # fmt: skip
        gap = average(accuracies[0]) - average(accuracies[1])
        trained = min(map(min, accuracies)) >= TRAINED and abs(gap) <= MATCHED
        return own(run) if trained else math.nan

    return Quantity(own.name, compute, own.parts)


def select_between(
    run: Run, statistics: str, low: float = -math.inf, high: float = math.inf
) -> Path:
    """Select the networks between the runs of a pair with omega from low to high, in order."""
    slack = 1e-9  # of rounding
    path = [row for row in run.rows if row.get("statistics") == statistics]
    return [row for row in path if low - slack <= float(row.get("omega", math.nan)) <= high + slack]


def most_over_chance(key: str, statistics: str) -> Quantity:
    """Return the largest accuracy for omega from 0.4 to 0.6, as a multiple of chance."""

    @quantity(f"largest {key} over chance")
    def most(run: Run) -> float:
        path = select_between(run, statistics, 0.4, 0.6)
        return float(np.max(values(path, key))) * int(path[0]["num_classes"]) if path else math.nan

    return if_trained(most)


def middle_rise(key: str, statistics: str) -> Quantity:
    """Return the mean for omega from 0.4 to 0.6, minus the higher mean of both sides of that."""

    def side(low: float, high: float) -> Callable[[Run], float]:
        return lambda run: average(values(select_between(run, statistics, low, high), key))

    left, right = side(0.05, 0.35), side(0.65, 0.95)
    higher = Quantity("that beside", lambda run: float(np.maximum(left(run), right(run))))
    return if_trained(Quantity(f"{key} in the middle", side(0.4, 0.6)) - higher)


def rise_near_ends(key: str, statistics: str) -> Quantity:
    """Return the larger change of a metric from either run to the nearest network between."""

    @quantity(f"change of {key} next to the runs")
    def rise(run: Run) -> float:
        course = values(select_between(run, statistics), key)
        if len(course) < 3:
            return math.nan
        return float(np.maximum(course[1] - course[0], course[-2] - course[-1]))

    return if_trained(rise)


def barrier(key: str, statistics: str) -> Quantity:
    """Return a metric's mean at the ends minus its least value on the path."""

    @quantity(f"fall of {key} with statistics {statistics}")
    def fall(run: Run) -> float:
        course = values(select_between(run, statistics), key) or [math.nan]
        return (course[0] + course[-1]) / 2 - float(np.min(course))

    return fall


def extent(key: str, statistics: str) -> Quantity:
    """Return a metric's largest minus its smallest value on the path."""

    @quantity(f"range of {key}")
    def largest_minus_smallest(run: Run) -> float:
        return float(np.ptp(values(select_between(run, statistics), key) or [math.nan]))

    return largest_minus_smallest


def extent_beyond_next_higher(key: str, statistics: str) -> Quantity:
    """Return a metric's range between the runs, minus that at the next higher rate."""
    own = extent(key, statistics)
    higher = own.of(lambda run: at_rate(run, next_rate(run)), "that at the next higher")
    return if_trained(own - higher, as_at=next_rate)


def claim_between(key: str, quantity: Callable[[str, str], Quantity], **fields: Any) -> Claim:
    """Make a claim on networks with re-estimated statistics, for a ratio by batch.

    Interpolated statistics fit no network between the runs, so the verdict on these is only told;
    so is that on a ratio's exact values.

    Args:
        key: Key of the accuracy, or of a ratio's exact value.
        quantity: Function of a key and of the kind of statistics that returns the quantity.
        fields: Further fields of `Claim`.
    """
    by_batch = key if key == "accuracy" else f"{key}_batch"
    others = {"statistics as they are": (by_batch, AS_THEY_ARE), "exact values": (key, REESTIMATED)}
    return Claim(
        quantity=quantity(by_batch, REESTIMATED),
        uncounted={
            name: Claim(quantity=quantity(*other), **fields)
            for name, other in others.items()
            if other != (by_batch, REESTIMATED)
        },
        **fields,
    )


NOT_CONNECTED: dict[str, Any] = {
    "where": lambda runs: Runs(
        r for r in runs if min(rates_beside(r)) < rate_of(r) == highest_rate(r)
    ),
    "per": lambda run: f"{run.settings.data}, rate {rate_of(run):g}",
    "source": "INFO, section 5.2 and figure 3",
    "over": "pairs",
}
BELOW_HIGHEST: dict[str, Any] = {
    "where": lambda runs: Runs(r for r in runs if rate_of(r) < highest_rate(r)),
    "per": "data",
    "groups": lambda run: f"{rate_of(run):g} against {next_rate(run):g}",
    "source": "INFO, section 5.2 and figure 4",
    "region": below(0),
    "unit": "steps",
    "over": "pairs",
}
CONNECTED_PAIRS: dict[str, Any] = {
    "where": lambda runs: Runs(r for r in runs if rate_of(r) == min(rates_beside(r))),
    "per": lambda run: f"{run.settings.data}, rate {rate_of(run):g}",
    "bounds": SHARE,
    "over": "pairs",
}
# A pair of runs gives one value, none if it is not trained. A claim holds of a data set and rate if
# the 95 % interval of the mean over the pairs lies in the region. Judged are networks with
# re-estimated statistics, and ratios over batches of 64; the other statistics and exact ratios are
# told beside, uncounted.
CLAIMS = [
    claim_between(
        "accuracy",
        most_over_chance,
        text="accuracy falls to random guessing for omega from 0.4 to 0.6: to less than "
        f"{CHANCE} times chance",
        region=below(CHANCE),
        bounds=(0.0, math.inf),
        **NOT_CONNECTED,
    ),
    claim_between(
        "mir",
        middle_rise,
        text=f"MIR {BY_BATCH} is higher in the middle of the line between the runs, for omega from "
        "0.4 to 0.6, than on both sides of the middle",
        region=above(0),
        **NOT_CONNECTED,
    ),
    claim_between(
        "hdr",
        rise_near_ends,
        text=f"HDR {BY_BATCH} is lower at the two networks next to the ends of the line than at "
        "the runs",
        region=below(0),
        **NOT_CONNECTED,
    ),
    *(
        claim_between(
            key,
            extent_beyond_next_higher,
            text=f"{name} varies less between the runs at every lower learning rate than at the "
            "next higher",
            **BELOW_HIGHEST,
        )
        for key, name in (
            ("accuracy", "accuracy"),
            ("mir", f"MIR {BY_BATCH}"),
            ("hdr", f"HDR {BY_BATCH}"),
        )
    ),
    Claim(
        text="accuracy falls less between the runs if the statistics of batch norms are "
        "re-estimated, at every learning rate but the lowest",
        source="ours",
        quantity=if_trained(barrier("accuracy", AS_THEY_ARE) - barrier("accuracy", REESTIMATED)),
        region=above(0),
        where=lambda runs: Runs(r for r in runs if rate_of(r) > min(rates_beside(r))),
        per="data",
        groups=lambda run: f"rate {rate_of(run):g}",
        unit="rates",
        over="pairs",
    ),
    claim_between(
        "accuracy",
        lambda key, statistics: if_trained(barrier(key, statistics), as_at=highest_rate),
        text=f"accuracy falls by less than {CONNECTED} between the runs",
        source="INFO, section 5.2 and figure 4",
        region=below(CONNECTED),
        **CONNECTED_PAIRS,
    ),
    *(
        claim_between(
            key,
            lambda key, statistics: if_trained(extent(key, statistics), as_at=highest_rate),
            text=f"{key.upper()} {BY_BATCH} remains almost unchanged between the runs, within "
            f"{UNCHANGED}",
            source="INFO, section 5.2 and figure 3",
            region=below(UNCHANGED),
            **CONNECTED_PAIRS,
        )
        for key in ("mir", "hdr")
    ),
]


def draw_figures(settings: InfoConnectivity, runs: Runs) -> list[Drawing]:
    """Draw figures 3 and 4: a row for each metric, a column for each rate, the highest first."""
    pairs = "; ".join(
        f"{count_seeds(own, 'pairs')} at rate {rate}"
        for rate, own in runs.group(lambda run: f"{rate_of(run):g}").items()
    )
    caption = (
        "INFO figures 3 and 4: held-out accuracy, MIR and HDR of the networks at ω between two "
        f"runs. {LINES.format(f'pairs ({pairs})')} Batch-norm statistics are re-estimated, as the "
        f"claims judge them, or {AS_THEY_ARE}, interpolated like the weights. Ochre, what claims "
        f"on re-estimated statistics allow: at the highest rate, guesses, below {CHANCE:g} times "
        f"chance for ω from 0.4 to 0.6; at the lowest, no change, an accuracy at most {CONNECTED:g}"
        f" below the mean of both runs and a range of {UNCHANGED:g} of MIR and HDR. Dash-dotted: "
        "chance. Dotted: MIR at collapse to a simplex."
    )
    ordered = Runs(sorted(runs, key=lambda run: -rate_of(run)))
    sets = ordered.group("data")
    columns = {
        f"{data}, rate {rate}" if len(sets) > 1 else f"rate {rate}": own
        for data, of_data in sets.items()
        for rate, own in of_data.group(lambda run: f"{rate_of(run):g}").items()
    }
    grid = [
        [
            partial(
                draw_panel, key, own,
                title="" if row else title, label="" if column else METRICS[key],
            )
            for column, (title, own) in enumerate(columns.items())
        ]
        for row, key in enumerate(METRICS)
    ]  # fmt: skip
    figure = draw_grid(grid, cell=(1.9, 1.9), legend="below", share_x=True, share_y="row")
    return [Drawing("fig-3-4", caption, figure)]


METRICS = {"accuracy": "Accuracy", "mir": "MIR", "hdr": "HDR"}
STYLES = {AS_THEY_ARE: (panels.SECOND, "s"), REESTIMATED: (panels.ACCENT, "o")}
"""Colour and marker of each kind of statistics, in the order in which they are drawn."""


def draw_panel(key: str, pairs: Runs, axes: Axes, title: str, label: str) -> None:
    """Draw a metric of the networks between the runs, with both kinds of statistics."""
    judged = key if key == "accuracy" else f"{key}_batch"
    allowed = "what the claims allow"
    rate, (lowest, *higher) = rate_of(pairs[0]), rates_beside(pairs[0])
    for statistics, (colour, marker) in STYLES.items():
        rows = [
            row.with_values({"ω": row["omega"]})
            for run in pairs
            for row in select_between(run, statistics)
        ]
        draw_metric(axes, rows, "ω", key, statistics, colour, marker)
        means = [average(numbers) for numbers in collect_points(rows, "ω", judged).values()]
        if statistics == REESTIMATED and means and rate == lowest:
            if key == "accuracy":
                middle = average([means[0], means[-1]]) - CONNECTED / 2
                draw_yardstick(axes, [middle], CONNECTED, allowed)
            else:
                draw_yardstick(axes, means, UNCHANGED, allowed)
    if key == "accuracy":
        draw_chance(axes, pairs, "chance", "-.")
        classes = [float(run.rows[-1]["num_classes"]) for run in pairs if run.rows]
        if classes and rate in higher[-1:]:
            axes.fill_between([0.4, 0.6], 0, CHANCE / classes[0], color=panels.SERIES[4],
                              alpha=0.2, linewidth=0, label=allowed)  # fmt: skip
        axes.set_ylim(bottom=0)
    if key == "mir":
        draw_collapse(axes, pairs)
    axes.set_xticks([0, 0.5, 1])
    axes.set_title(title)
    axes.set_ylabel(label)


# Two runs of one initialisation, and the networks between them.


def train_pairs(settings: InfoConnectivity) -> list[Part]:
    """Return a part for each pair: both runs, then the networks between them."""
    train = partial(train_pair, settings.intervals)
    return [
        Part(name, 2 * training.optimisation.epochs, partial(train, training), trains=True)
        for name, training in settings.runs.items()
    ]


def train_pair(intervals: int, training: Training, resources: Resources) -> Iterator[Event]:
    """Yield the events of both runs, distinguished by split, and of the networks between."""
    order_seed = stream_seed(training.steps_seed, 1)
    second = training.model_copy(update={"order_seed": order_seed})
    benches: list[Bench] = []
    for name, settings in {"first": training, "second": second}.items():
        inside = resources.checkpoints and resources.checkpoints / name
        run_resources = replace(resources, checkpoints=inside)
        bench = prepare_bench(settings, run_resources)
        for event in add_classes(bench, bench_events(bench, run_resources)):
            if isinstance(event, Heartbeat):
                yield event
            else:
                yield replace(event, split=f"{event.split}, {name} run")
        benches.append(bench)
    yield from add_classes(benches[0], measure_between(benches, intervals))


def measure_between(benches: Sequence[Bench], intervals: int) -> Iterator[Observation]:
    """Yield measurements on held-out images of the networks from one run to the other."""
    first, second = benches
    optimisation = first.settings.optimisation
    # Every process reads all images, so that all compute the same statistics. The images are in
    # an order of training, because a set may be stored class by class.
    order = epoch_order(len(first.data.train), first.settings.seed, 0)
    images = make_measurement_loader(
        first.data.train.subset(order), optimisation.batch_size, workers=first.workers
    )
    for step in range(intervals + 1):
        omega = step / intervals
        plain = interpolate(first.learner.evaluated, second.learner.evaluated, omega)
        networks = {AS_THEY_ARE: plain, REESTIMATED: reestimate_statistics(plain, images)}
        for statistics, network in networks.items():
            last = measure_images(first, network, first.data.test).record.last
            where: dict[str, Value] = {"omega": omega, "statistics": statistics}
            yield Observation(
                first.learner.step,
                optimisation.epochs,
                "between",
                last.layer,
                values={**where, **drop_metrics_of_means(last.metrics)},
            )


def interpolate(first: nn.Module, second: nn.Module, omega: float) -> nn.Module:
    r"""Return the network with weights $(1-\omega)\theta_1+\omega\theta_2$, real buffers likewise.

    Running means and variances are thus interpolated too; see `reestimate_statistics` for the
    alternative. Integer buffers, such as counts, are taken from the first network. The values 0 and
    1 return the two networks themselves. Source: INFO section 5.2, after Frankle et al. 2020.

    Args:
        first: The network at 0.
        second: The network at 1, of the same kind.
        omega: Position between the networks, from 0 to 1.

    Example:
        >>> ends = [nn.Linear(1, 1, bias=False) for _ in range(2)]
        >>> for end, value in zip(ends, (1.0, 3.0)):
        ...     _ = nn.init.constant_(end.weight, value)
        >>> interpolate(*ends, 0.25).weight.item()
        1.5
    """

    def mix(one: Tensor, other: Tensor) -> Tensor:
        return (1 - omega) * one + omega * other if one.is_floating_point() else one

    between, other = copy.deepcopy(first), second.state_dict()
    state = {name: mix(value, other[name]) for name, value in first.state_dict().items()}
    between.load_state_dict(state)
    return between


def reestimate_statistics(network: nn.Module, loader: Iterable[Any]) -> nn.Module:
    """Return the network with re-estimated batch-norm statistics, by torch's `update_bn`.

    Running means and variances become averages over the batches, with the network in training
    mode. Random layers draw from torch's global generators, whose states are restored.

    Args:
        network: The network, which is not changed.
        loader: Batches of images, or of tuples with the images first.

    Example:
        >>> import torch
        >>> data = [torch.tensor([[1.0], [3.0]])]
        >>> reestimate_statistics(nn.BatchNorm1d(1), data).running_mean.item()
        2.0
    """
    copied = copy.deepcopy(network)
    parameter = next(copied.parameters(), None)
    with evaluation_mode(copied):  # restores the random states; `update_bn` sets the modes itself
        update_bn(loader, copied, None if parameter is None else parameter.device)
    return copied


EXPERIMENT = Experiment(
    id="info/connectivity",
    title="Matrix information between two runs from one initialisation",
    question=(
        "Two networks that start from the same weights, and the networks between them. INFO says "
        "that the lower the learning rate, the less accuracy, MIR and HDR vary on the way."
    ),
    source="INFO section 5.2, figures 3-4",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "210 GPU-hours (estimated)", "small": "30 minutes on one core"},
    parts=train_pairs,
    claims=CLAIMS,
    figures=draw_figures,
    columns=("omega", "statistics", "accuracy", "mir", "mir_batch", "hdr", "hdr_batch"),
)
