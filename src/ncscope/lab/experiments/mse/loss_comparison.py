"""MSE figures 10 and 12, section 1.2: NC1 under the MSE loss and under cross-entropy.

The paper trains the networks of `ncscope.lab.experiments.mse.networks` on five data sets under both
losses. The small scale has two kinds of network on handwritten digits, and one of them on warped
digits too: the difficulty of two data sets shows a difference and no trend, so there that claim is
ours.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from ncscope.lab.claims import Claim, above, below, two_thirds, within
from ncscope.lab.experiment import Experiment
from ncscope.lab.experiments.mse.learning_rates import (
    select_best_rates,
    tabulate_rates,
    train_sweep,
)
from ncscope.lab.experiments.mse.networks import (
    BOTH,
    LOSSES,
    Loss,
    MSETrainings,
    list_pair,
    name_kind,
    paper_runs,
    select_pairs,
    select_typical,
    small_runs,
)
from ncscope.lab.experiments.mse.terminal_phase import (
    COLLAPSE,
    FACTOR,
    claim_by_network,
    claim_zero_error,
    draw_losses,
    draw_networks,
    end_over_zero_error,
    phase_ends,
    write_change,
)
from ncscope.lab.observations import Results
from ncscope.lab.quantities import Path, Run, Runs, average, decades, ends, last, ratio, values
from ncscope.lab.report.drawing import Drawing

GROUPS = ("nc1", "nc4")
PAPER = MSETrainings(runs=paper_runs(BOTH, GROUPS))
SMALL = MSETrainings(runs=small_runs(BOTH, GROUPS))

COMPARABLE = 0.01  # difference of comparable accuracies, as a share of what training gains
SLOW = 0.5  # share of the decades on the training set, if NC1 falls far more slowly held out
SEVERAL = 2  # networks in which a collapse is visible if it is so in several


def list_claims(settings: MSETrainings) -> list[Claim]:
    """Return which loss collapses the training set faster, and the collapse on held-out images."""
    claims = [
        claim_zero_error(),
        claim_by_network(
            "networks collapse faster under MSE than under cross-entropy: NC1 on the training set "
            "reaches the least value that both losses reach in fewer epochs, by a factor of at "
            f"least {FACTOR:g}, in most networks",
            lambda run: ratio(*epochs_to_common_value(run)),
            source="MSE, figure 10",
            region=below(1 / FACTOR),
            where=select_pairs,
            write=lambda run: "epoch {:.3g} against {:.3g}".format(*epochs_to_common_value(run)),
        ),
        claim_by_network(
            "NC1 on the training set falls at a higher rate under MSE than under cross-entropy: in "
            "decades for each decade of epochs, fitted from the first epoch on, by a factor of at "
            f"least {FACTOR:g}, in most networks",
            lambda run: ratio(*exponents(run)) if min(exponents(run)) > 0 else math.nan,
            source="MSE, figure 10",
            region=above(FACTOR),
            where=select_pairs,
            write=lambda run: "rate {:.3g} against {:.3g}".format(*exponents(run)),
        ),
        Claim(
            text="networks trained under MSE are as accurate on held-out images as those trained "
            f"under cross-entropy, within {COMPARABLE:.0%} of what training gains, in the mean of "
            "networks",
            source="MSE, section 1.2",
            quantity=gap_of_gain,
            region=within(COMPARABLE),
            where=select_pairs,
            average="seed",
            tell=tell_gaps,
        ),
    ]
    for loss, name in LOSSES.items():
        under = partial(select_typical, loss=loss)
        claims += [
            claim_by_network(
                f"under {name} NC1 at the end is larger on held-out images than on the training "
                f"set: training raises their ratio by a factor of at least {FACTOR:g}, in most "
                "networks",
                lambda run: ratio(*reversed(test_over_train(run))),
                source="MSE, figure 12",
                region=above(FACTOR),
                where=under,
                write=lambda run: "test over train {:.3g} to {:.3g}".format(*test_over_train(run)),
            ),
            claim_by_network(
                f"under {name} NC1 falls on held-out images too from zero training error to the "
                f"end, at least by a factor of {FACTOR:g}, in several networks",
                end_over_zero_error("nc1", "test"),
                source="MSE, figure 12",
                region=below(1 / FACTOR),
                where=under,
                enough=lambda count: SEVERAL,
                write=write_change("nc1", "test"),
            ),
            claim_by_network(
                f"under {name} NC1 falls on held-out images by less than {SLOW:.0%} of the decades "
                "by which it falls on the training set, from zero training error to the end, in "
                "most networks",
                share_of_decades,
                source="MSE, figure 12",
                region=below(SLOW),
                scale="plain",
                where=under,
                write=lambda run: "{:.3g} of {:.3g} decades".format(*late_decades(run)),
            ),
            claim_difficulty(settings, loss),
        ]
    return claims


def claim_difficulty(settings: MSETrainings, loss: Loss) -> Claim:
    """Make the claim that training leaves more of the held-out NC1 on harder data.

    The difficulty of a data set is the held-out error of the same kind of network. NC1 is a share
    of the untrained network's value, which is itself larger for harder data. A kind of network with
    fewer than two data sets is left out. With two data sets in all there is no trend: then the
    claim is ours, that more remains on the second set of the settings than on the first.
    """
    kinds = select_ranked(Runs.of(settings.runs, Results()), loss).group(name_kind)
    pairs = {tuple(kind.group("data")) for kind in kinds.values()}
    text = (
        f"under {LOSSES[loss]} the share of the untrained network's NC1 that remains at the end on "
        "held-out images "
    )
    if len(pairs) == 1 and len(min(pairs)) == 2:
        easy, hard = min(pairs)
        text += f"is larger on {hard} than on {easy}, by a factor of at least {FACTOR:g}"
        source = "ours"
    else:
        text += (
            f"grows with the difficulty of the data set, by a factor of at least {FACTOR:g} from "
            "one to the next harder, in most kinds of network"
        )
        source = "MSE, figure 12"
    return Claim(
        text=text,
        source=source,
        quantity=growth_with_difficulty,
        region=above(FACTOR),
        scale="ratio",
        where=partial(select_ranked, loss=loss),
        groups=name_kind,
        enough=two_thirds,
        unit="kinds of network",
        average="seed",  # the runs of a seed share one value
        tell=lambda runs: ", ".join(
            f"{data} errs {error:.2%}" for data, error in measure_errors(runs).items()
        ),
    )


def draw_figures(settings: MSETrainings, runs: Runs) -> list[Drawing]:
    """Draw figures 10 and 12 of the paper."""
    what = "NC1 under MSE and under cross-entropy, on"
    zero = "one curve for each seed; the dashed lines are the first epochs of zero training error"
    return [
        Drawing(
            f"fig-{number}",
            f"MSE figure {number}: {what} {images}; {zero}.",
            draw_networks(runs, "NC1", partial(draw_losses, key="nc1", split=split)),
        )
        for number, split, images in (
            (10, "train", "the training set"),
            (12, "test", "held-out images, around their own class means"),
        )
    ]


def epochs_to_common_value(run: Run) -> list[float]:
    """Return the epochs at which both losses reach the least NC1 that both reach.

    The values at the end are no measure of speed: they also depend on how far a network collapses
    at all.
    """
    paths = [one.path() for one in list_pair(run)]
    least = [min(filter(math.isfinite, values(path, "nc1")), default=math.nan) for path in paths]
    return [epochs_to(path, max(least)) for path in paths]


def epochs_to(path: Path, level: float) -> float:
    """Return the epoch at which NC1 falls to a level, between measurements on a log scale of NC1.

    Args:
        path: Rows of one layer over training.
        level: Value of NC1.

    Returns:
        The epoch; NaN if NC1 is not measured above and then at or below the level.
    """
    points = list(zip([row.epoch for row in path], values(path, "nc1"), strict=True))
    for (before, high), (after, low) in pairwise(points):
        if low <= level < high:
            share = ratio(decades(high, level), decades(high, low)) if level > 0 else 1.0
            return before + share * (after - before)
    return math.nan


def exponents(run: Run) -> list[float]:
    """Return the exponents of NC1 under both losses."""
    return [fit_exponent(one.path()) for one in list_pair(run)]


def fit_exponent(path: Path) -> float:
    """Return the decades by which NC1 falls for each decade of epochs: a fit from epoch 1 on.

    Args:
        path: Rows of one layer over training.

    Returns:
        The least-squares slope; NaN for fewer than two epochs, or an NC1 that is not positive.
    """
    points = list(zip([row.epoch for row in path], values(path, "nc1"), strict=True))
    after = [(epoch, nc1) for epoch, nc1 in points if epoch >= 1]
    if len(after) < 2 or not all(0 < nc1 < math.inf for _, nc1 in after):
        return math.nan
    epochs, numbers = np.log10(np.array(after, dtype=float)).T
    return -float(np.polyfit(epochs, numbers, 1)[0])


def measure_gap(run: Run) -> tuple[float, float]:
    """Return MSE's lead in held-out accuracy at the end, and the mean gain of both losses."""
    courses = [ends(one.path("test"), "accuracy") for one in list_pair(run)]
    mse, entropy = (end for _, end in courses)
    return mse - entropy, average([end - start for start, end in courses])


def gap_of_gain(run: Run) -> float:
    """Return MSE's lead in accuracy in units of what training gains, the mean of the seed's pairs.

    In these units untrained networks differ.
    """
    pairs = select_pairs(run.experiment.where(seed=run.settings.seed))
    return ratio(measure_gap(run)[0], average([measure_gap(pair)[1] for pair in pairs]))


def tell_gaps(runs: Runs) -> str:
    """Write the mean lead and gain of each seed."""
    seeds = [[measure_gap(run) for run in seed] for seed in runs.group("seed").values()]
    means = [[average([pair[at] for pair in seed]) for at in (0, 1)] for seed in seeds]
    return ", ".join(f"{gap:+.2%} of {gain:.1%}" for gap, gain in means)


def test_over_train(run: Run) -> tuple[float, float]:
    """Return NC1 on held-out images over that on the training set, before training and after.

    In the untrained network the number of the samples alone makes a difference.
    """
    test, train = (ends(run.path(split), "nc1") for split in ("test", "train"))
    return ratio(test[0], train[0]), ratio(test[1], train[1])


def late_decades(run: Run) -> list[float]:
    """Return the decades by which NC1 falls past zero error, on held-out images and in training."""
    changes = [phase_ends(run, "nc1", split) for split in ("test", "train")]
    return [math.nan if change is None else decades(*change) for change in changes]


def share_of_decades(run: Run) -> float:
    """Return the decades on held-out images over those on the training set.

    NaN if NC1 on the training set hardly falls after zero error.
    """
    test, train = late_decades(run)
    return ratio(test, train) if train > math.log10(COLLAPSE) else math.nan


def select_ranked(runs: Runs, loss: Loss) -> Runs:
    """Select the runs under one loss of the kinds of network that have several data sets."""
    kinds = runs.where(loss=loss).group(name_kind).values()
    return Runs(run for kind in kinds if len(kind.group("data")) > 1 for run in kind)


def measure_errors(runs: Runs) -> dict[str, float]:
    """Return the held-out error at the end by data set, in the mean of the seeds."""
    accuracy = last("accuracy", "test")
    return {
        data: 1 - average([accuracy(run) for run in own])
        for data, own in runs.group("data").items()
    }


def growth_with_difficulty(run: Run) -> float:
    """Return the growth of what remains of the held-out NC1 from a data set to the next harder.

    It is fitted to the runs of one kind of network, loss and seed.
    """
    same_loss = run.experiment.where(loss=run.settings.loss)
    kind = same_loss.group(name_kind)[name_kind(run)]
    errors = measure_errors(kind)
    if not all(map(math.isfinite, errors.values())):
        return math.nan
    # Two data sets are compared in the order of the settings, in which the harder one is second.
    order = sorted(errors, key=errors.__getitem__) if len(errors) > 2 else list(errors)
    points = []
    for one in kind.where(seed=run.settings.seed):
        first, final = ends(one.path("test"), "nc1")
        points.append((order.index(one.settings.data), ratio(final, first)))
    return fit_growth(points)


def fit_growth(points: Sequence[tuple[int, float]]) -> float:
    """Return the factor by which a positive value grows with each rank: an exponential fit.

    Args:
        points: Ranks and values, at least two.

    Example:
        >>> round(fit_growth([(0, 1.0), (1, 2.0), (2, 4.0)]), 12), fit_growth([(0, 0.0), (1, 1.0)])
        (2.0, nan)
    """
    if len(points) < 2 or not all(0 < value < math.inf for _, value in points):
        return math.nan
    ranks, numbers = np.array(points, dtype=float).T
    return float(np.exp(np.polyfit(ranks, np.log(numbers), 1)[0]))


EXPERIMENT = Experiment(
    id="mse/loss-comparison",
    title="Variability collapse under MSE and under cross-entropy",
    question=(
        "The same networks train under the MSE loss and under cross-entropy. The paper says that "
        "variability within classes vanishes faster under MSE, and that it also falls on held-out "
        "images, but far more slowly."
    ),
    source="MSE figures 10 and 12",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "150 GPU-hours (estimated)", "small": "7 minutes on one core"},
    parts=train_sweep,
    select=select_best_rates,
    claims=list_claims,
    figures=draw_figures,
    tables=tabulate_rates,
    columns=("epoch", "accuracy", "nc1", "nc1_quotient", "vci"),
)
