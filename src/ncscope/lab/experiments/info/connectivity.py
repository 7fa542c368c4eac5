r"""INFO section 5.2, figures 3-4: the networks between two runs from one initialisation.

Two networks start from the same weights and are trained with different data orders and
augmentations. The networks between them have weights $(1-\omega)\theta_1+\omega\theta_2$, once with
interpolated batch-norm statistics and once with re-estimated ones: averages over the training
images, without augmentation, in shuffled batches of the training's size.

The paper trains at rates 0.03, 0.003 and 0.0003 on CIFAR-10 and 0.03 on CIFAR-100; three pairs each
are ours. The small scale has 700 steps on handwritten digits instead of 2^20, so its rates are ten
times higher. A pair counts only if both runs are trained, and rates are compared only where the
training accuracy is the same, because networks that have learnt little are connected for want of a
distance. So the lowest rate has four times as many epochs.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from ncscope.data.draws import stream_seed
from ncscope.data.loaders import make_measurement_loader
from ncscope.data.order import epoch_order
from ncscope.lab.claims import Claim, above, below
from ncscope.lab.experiment import Experiment, Part
from ncscope.lab.experiments.info.information_runs import (
    BY_BATCH,
    add_classes,
    claim_by_batch,
    claim_on_accuracy_and_ratios,
    draw_collapse,
    draw_ratio,
    drop_metrics_of_means,
    name_runs,
    paper_training,
    small_training,
)
from ncscope.lab.figures import collect_points, draw_band, draw_grid
from ncscope.lab.intervals import SHARE
from ncscope.lab.observations import Event, Heartbeat, Observation, Value
from ncscope.lab.quantities import AnyQuantity, Path, Run, Runs, average, ends, ratio, values
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Bench, bench_events, measure_images, prepare_bench
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.report import panels

AS_THEY_ARE, REESTIMATED = "as they are", "re-estimated"
COLOURS = {AS_THEY_ARE: panels.ACCENT, REESTIMATED: panels.SECOND}


class InfoConnectivity(BaseModel):
    """Settings of the experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
            for seed in (3, 4, 5)  # settings and borders were chosen on seeds 0 to 2
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


def list_claims(settings: InfoConnectivity) -> Sequence[Claim]:
    """Return the claims of section 5.2 on each data set."""
    claims = []
    for data in dict.fromkeys(run.data for run in settings.runs.values()):
        rates = {
            run.optimisation.learning_rate for run in settings.runs.values() if run.data == data
        }
        if len(rates) > 1:
            claims += list_claims_without_connection(data, max(rates))
            claims += list_claims_on_rates(data, max(rates), min(rates))
        claims += list_claims_with_connection(data, max(rates), min(rates))
    return claims


def list_claims_without_connection(data: str, rate: float) -> list[Claim]:
    """Return the paper's observations on runs at the highest rate, which are not connected."""
    pairs: dict[str, Any] = {"where": {"data": data, "learning_rate": rate}, "over": "pairs"}
    source, where = "INFO, section 5.2 and figure 3", f"{data}, rate {rate:g}"
    return [
        Claim(
            text=f"{where}: accuracy falls to random guessing for omega from 0.4 to 0.6: to less "
            f"than {CHANCE} times chance",
            source=source,
            quantity=if_trained(most_over_chance),
            region=below(CHANCE),
            bounds=(0.0, math.inf),
            tell=lambda runs: "largest accuracy over chance",
            **pairs,
        ),
        claim_by_batch(
            "mir",
            lambda key: if_trained(lambda run: middle_rise(select_between(run), key)),
            text=f"{where}: MIR {BY_BATCH} is higher in the middle of the line between the runs, "
            "for omega from 0.4 to 0.6, than on both sides of the middle",
            source=source,
            region=above(0),
            **pairs,
        ),
        claim_by_batch(
            "hdr",
            lambda key: if_trained(lambda run: rise_near_ends(select_between(run), key)),
            text=f"{where}: HDR {BY_BATCH} is lower at the two networks next to the ends of the "
            "line than at the runs",
            source=source,
            region=below(0),
            **pairs,
        ),
    ]


def list_claims_on_rates(data: str, highest: float, lowest: float) -> list[Claim]:
    """Return the claims that compare learning rates, and batch-norm statistics."""
    return [
        *claim_on_accuracy_and_ratios(
            f"{data}: {{}} varies less between the runs at every lower learning rate than at the "
            "next higher",
            range_over_next_higher,
            tell_ranges,
            source="INFO, section 5.2 and figure 4",
            region=below(1),
            scale="ratio",
            where=lambda runs: Runs(r for r in runs.where(data=data) if rate_of(r) < highest),
            groups=lambda run: f"{rate_of(run):g} against {next_rate(run):g}",
            unit="steps",
            over="pairs",
        ),
        Claim(
            text=f"{data}: accuracy falls less between the runs if the statistics of batch norms "
            "are re-estimated, at every learning rate but the lowest",
            source="ours",
            quantity=if_trained(
                lambda run: barrier(select_between(run)) - barrier(select_between(run, REESTIMATED))
            ),
            region=above(0),
            where=lambda runs: Runs(r for r in runs.where(data=data) if rate_of(r) > lowest),
            groups=lambda run: f"rate {rate_of(run):g}",
            unit="rates",
            over="pairs",
            tell=tell_falls,
        ),
    ]


def list_claims_with_connection(data: str, highest: float, lowest: float) -> list[Claim]:
    """Return the paper's observations on runs at the lowest rate, which are connected."""
    where = f"{data}, rate {lowest:g}"
    pairs: dict[str, Any] = {
        "bounds": SHARE,
        "where": {"data": data, "learning_rate": lowest},
        "over": "pairs",
    }
    return [
        Claim(
            text=f"{where}: accuracy falls by less than {CONNECTED} between the runs",
            source="INFO, section 5.2 and figure 4",
            quantity=if_matched(lambda run: barrier(select_between(run)), highest),
            region=below(CONNECTED),
            tell=tell_training,
            **pairs,
        ),
        *(
            claim_by_batch(
                key,
                lambda key: if_matched(lambda run: extent(select_between(run), key), highest),
                lambda key: tell_training,
                text=f"{where}: {key.upper()} {BY_BATCH} remains almost unchanged between the "
                f"runs, within {UNCHANGED}",
                source="INFO, section 5.2 and figure 3",
                region=below(UNCHANGED),
                **pairs,
            )
            for key in ("mir", "hdr")
        ),
    ]


def draw_figures(settings: InfoConnectivity, runs: Runs) -> list[Drawing]:
    """Draw figures 3 and 4, with a row for each data set and rate, the highest first."""
    caption = (
        "INFO figures 3 and 4: held-out accuracy, MIR and HDR of the networks between two runs; "
        "lines are means over pairs, bands show their range. Solid: exact values of the whole "
        "set; dashed: means over batches of 64. Batch-norm statistics are interpolated or "
        "re-estimated."
    )
    ordered = Runs(sorted(runs, key=lambda run: -rate_of(run)))
    grid = [
        [partial(draw_panel, key, f"{data}, rate {rate}", pairs) for key in COLUMNS]
        for data, own in ordered.group("data").items()
        for rate, pairs in own.group(lambda run: f"{rate_of(run):g}").items()
    ]
    figure = draw_grid(grid, cell=(3.1, 2.6), legend="beside", share_x=True, share_y="col")
    return [Drawing("fig-3-4", caption, figure)]


COLUMNS = {"accuracy": "accuracy", "mir": "MIR", "hdr": "HDR"}


def draw_panel(key: str, title: str, pairs: Runs, axes: Axes) -> None:
    """Draw a metric of the networks between the runs, with both kinds of statistics."""
    for statistics, colour in COLOURS.items():
        rows = [row for run in pairs for row in select_between(run, statistics)]
        if key == "accuracy":
            draw_band(axes, collect_points(rows, "omega", key), colour=colour)
        else:
            draw_ratio(axes, rows, "omega", key, statistics, colour)
    if key == "mir":
        draw_collapse(axes, pairs)
    axes.set_title(f"{COLUMNS[key]}, {title}")
    axes.set_xlabel("omega")


# Quantities: of the networks between the runs of a pair, and of the runs themselves.


def select_between(run: Run, statistics: str = AS_THEY_ARE) -> Path:
    """Select the networks between the runs of a pair, in order of omega."""
    return [row for row in run.rows if row.get("statistics") == statistics]


def most_over_chance(run: Run) -> float:
    """Return the largest accuracy for omega from 0.4 to 0.6, as a multiple of chance."""
    path = select_between(run)
    accuracies = values(select_omegas(path, 0.4, 0.6), "accuracy")
    if not accuracies or not all(map(math.isfinite, accuracies)):
        return math.nan
    return max(accuracies) * int(path[0]["num_classes"])


def select_omegas(path: Path, low: float, high: float) -> Path:
    """Select the networks with omega from low to high."""
    slack = 1e-9  # of rounding
    return [row for row in path if low - slack <= row.get("omega", math.nan) <= high + slack]


def middle_rise(path: Path, key: str) -> float:
    """Return the mean for omega from 0.4 to 0.6, minus the higher mean of both sides of that."""
    sides = ((0.05, 0.35), (0.4, 0.6), (0.65, 0.95))
    left, middle, right = (average(values(select_omegas(path, *side), key)) for side in sides)
    return middle - max(left, right) if math.isfinite(left + right) else math.nan


def rise_near_ends(path: Path, key: str) -> float:
    """Return the larger change of a metric from either run to the nearest network between."""
    course = values(path, key)
    if len(course) < 3 or not all(map(math.isfinite, course)):
        return math.nan
    return max(course[1] - course[0], course[-2] - course[-1])


def barrier(path: Path) -> float:
    """Return the mean accuracy at the ends minus the least accuracy on the path."""
    start, end = ends(path, "accuracy")
    return (start + end) / 2 - float(np.min(values(path, "accuracy") or [math.nan]))


def extent(path: Path, key: str) -> float:
    """Return the largest minus the smallest value on the path."""
    return float(np.ptp(values(path, key) or [math.nan]))


def rate_of(run: Run) -> float:
    """Return the learning rate of a pair."""
    return run.settings.optimisation.learning_rate


def at_rate(run: Run, rate: float) -> Run:
    """Return the pair with the same data and seed at a learning rate; without rows if none."""
    pairs = run.alike("data", "seed").where(learning_rate=rate)
    return pairs[0] if pairs else run.experiment.named("none")


def next_rate(run: Run) -> float:
    """Return the next higher learning rate with the same data."""
    return min(rate for rate in map(rate_of, run.alike("data")) if rate > rate_of(run))


def training_accuracies(run: Run) -> tuple[float, float]:
    """Return the training accuracy of both runs of a pair at the end; NaN if not measured."""
    first, second = (
        ends([row for row in run.rows if row.split == f"train, {name} run"], "accuracy")[1]
        for name in ("first", "second")
    )
    return first, second


def mean_training_accuracy(runs: Iterable[Run]) -> float:
    """Return the mean training accuracy of both runs of several pairs."""
    return average([accuracy for run in runs for accuracy in training_accuracies(run)])


def is_trained(run: Run) -> bool:
    """Return whether both runs of a pair are trained."""
    return min(training_accuracies(run)) >= TRAINED


def is_matched(run: Run, other: Run) -> bool:
    """Return whether two pairs are trained, and equally well."""
    gap = average(training_accuracies(run)) - average(training_accuracies(other))
    return is_trained(run) and is_trained(other) and abs(gap) <= MATCHED


def if_trained(quantity: AnyQuantity) -> AnyQuantity:
    """Return a quantity that is NaN for a pair that is not trained."""
    return lambda run: quantity(run) if is_trained(run) else math.nan


def if_matched(quantity: AnyQuantity, rate: float) -> AnyQuantity:
    """Return a quantity that is NaN for a pair not trained as well as that at another rate."""
    return lambda run: quantity(run) if is_matched(run, at_rate(run, rate)) else math.nan


def range_over_next_higher(key: str) -> AnyQuantity:
    """Return the quantity of a metric's range between the runs over that at the next higher rate.

    NaN for pairs that are not trained equally well.
    """

    def quantity(run: Run) -> float:
        higher = at_rate(run, next_rate(run))
        ranges = [extent(select_between(each), key) for each in (run, higher)]
        return ratio(*ranges) if is_matched(run, higher) else math.nan

    return quantity


def tell_ranges(key: str) -> Callable[[Runs], str]:
    """Return a function that writes mean ranges and training accuracies at two rates."""

    def tell(runs: Runs) -> str:
        both = runs, [at_rate(run, next_rate(run)) for run in runs]
        own, higher = (average([extent(select_between(run), key) for run in each]) for each in both)
        return (
            f"mean ranges {own:.4f} and {higher:.4f}, training accuracy "
            f"{mean_training_accuracy(both[0]):.3f} and {mean_training_accuracy(both[1]):.3f}"
        )

    return tell


def tell_falls(runs: Runs) -> str:
    """Write the mean falls of accuracy with both kinds of statistics."""
    plain, anew = (
        average([barrier(select_between(run, statistics)) for run in runs])
        for statistics in (AS_THEY_ARE, REESTIMATED)
    )
    return f"mean falls {plain:.4f} and {anew:.4f}"


def tell_training(runs: Runs) -> str:
    """Write the mean training accuracy at every rate."""
    pairs = Runs(sorted(runs[0].alike("data"), key=lambda run: -rate_of(run)))
    told = ", ".join(
        f"{mean_training_accuracy(own):.3f} at {rate}"
        for rate, own in pairs.group(lambda run: f"{rate_of(run):g}").items()
    )
    return f"training accuracy {told}"


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
            last = measure_images(first, network, first.data.test).record.layers[-1]
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
    cost={"paper": "210 GPU-hours (estimated)", "small": "7 minutes on one core"},
    parts=train_pairs,
    claims=list_claims,
    figures=draw_figures,
    columns=("omega", "statistics", "accuracy", "mir", "mir_batch", "hdr", "hdr_batch"),
)
