"""Variability collapse under the MSE loss and under cross-entropy, on training and test images.

Source: MSE figures 10 and 12, section 1.2. Command: ``ncscope reproduce mse/loss-comparison``.
Settings of both scales: `ncscope.lab.papers.mse.training`.

Results at the small scale (three seeds of three networks): 8 of 12 claims held, 4 undecided. Under
MSE NC1 reached the common value in a quarter to a third of the epochs, and fell at a rate 1.25 to
1.35 times that under cross-entropy. On held-out images it fell on digits under both losses, by
factors of 1.5 to 1.9, and on warped digits hardly at all. Held-out accuracies differ by 1.5 %
[-0.2, 3.1] of what training gains: undecided, as are slowness, and the difference between the data
sets under cross-entropy.
"""

import math
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes

from ncscope.lab.evidence.judging import above, below, judged, within
from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.difficulty import difficulty
from ncscope.lab.papers.mse.figures import compared, grid
from ncscope.lab.papers.mse.rates import at_best_rates, rate_tables, swept_runs
from ncscope.lab.papers.mse.speed import pairs_of, sooner, steeper
from ncscope.lab.papers.mse.terminal import (
    COLLAPSE,
    FACTOR,
    changes,
    in_words,
    kept,
    over_networks,
    zero_error,
)
from ncscope.lab.papers.mse.training import (
    BOTH,
    LOSSES,
    Loss,
    MSETraining,
    medium_runs,
    paper_runs,
    small_runs,
    typical,
    under,
)
from ncscope.lab.papers.trained import average, decades, ends, history, ratio, training_parts
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.report.claims import Claim

GROUPS = ("nc1", "nc4")
COMPARABLE = 0.01
"""Largest difference of comparable accuracies, as a share of what training gains in accuracy."""
SLOW = 0.5
"""Largest share of the decades on the training set by which NC1 falls on held-out images if it
falls much more slowly there."""
SEVERAL = 2
"""Networks in which a collapse is visible if it is so in several."""


def _parts(config: MSETraining) -> list[Part]:
    """Return a part for each network, loss and seed."""
    return training_parts(swept_runs(config))


def _claims(config: MSETraining, rows: Sequence[Observation]) -> list[Claim]:
    """Test which loss collapses the training set faster, and the collapse on held-out images."""
    rows, names = at_best_rates(config, rows), typical(config)
    claims = [
        zero_error(rows, names),
        sooner(config, rows),
        steeper(config, rows),
        _comparable(config, rows),
    ]
    for loss in BOTH:
        chosen = typical(config, under(config, loss))
        claims += [
            _less_than_train(config, rows, loss, chosen),
            _visible(config, rows, loss, chosen),
            _slower(config, rows, loss, chosen),
            difficulty(config, rows, loss),
        ]
    return claims


def _comparable(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    """Compare accuracies in units of what training gains, so that untrained networks differ."""
    course = {name: ends(history(rows, name, "test"), "accuracy") for name in config.runs}
    gaps: dict[int, list[float]] = {}
    gains: dict[int, list[float]] = {}
    for name, pair in pairs_of(config).items():
        (mse_first, mse_last), (first, last) = (course[run] for run in pair)
        seed = config.runs[name].seed
        gaps.setdefault(seed, []).append(mse_last - last)
        gains.setdefault(seed, []).append((mse_last - mse_first + last - first) / 2)
    told = ", ".join(
        f"{average(gap):+.2%} of {average(gains[seed]):.1%}" for seed, gap in gaps.items()
    )
    return judged(
        "networks trained under MSE are as accurate on held-out images as those trained under "
        f"cross-entropy, within {COMPARABLE:.0%} of what training gains, in the mean of networks",
        source="MSE, section 1.2",
        values=[ratio(average(gap), average(gains[seed])) for seed, gap in gaps.items()],
        region=within(COMPARABLE),
        evidence=told,
    )


def _less_than_train(
    config: MSETraining, rows: Sequence[Observation], loss: Loss, names: Sequence[str]
) -> Claim:
    """Compare with the untrained network, in which the samples' number alone makes a difference."""
    excesses, told = {}, {}
    for name in names:
        test, train = (ends(history(rows, name, split), "nc1") for split in ("test", "train"))
        first, final = map(ratio, test, train)
        excesses[name] = ratio(final, first)
        told[name] = f"test over train {first:.3g} to {final:.3g}"
    return over_networks(
        f"under {LOSSES[loss]} NC1 at the end is larger on held-out images than on the training "
        f"set: training raises their ratio by a factor of at least {FACTOR:g}, in most networks",
        config,
        excesses,
        source="MSE, figure 12",
        region=above(FACTOR),
        scale="ratio",
        told=told,
    )


def _visible(
    config: MSETraining, rows: Sequence[Observation], loss: Loss, names: Sequence[str]
) -> Claim:
    found = changes(rows, names, "nc1", "test")
    return over_networks(
        f"under {LOSSES[loss]} NC1 falls on held-out images too from zero training error to the "
        f"end, at least by a factor of {FACTOR:g}, in several networks",
        config,
        {name: kept(one) for name, one in found.items()},
        source="MSE, figure 12",
        region=below(1 / FACTOR),
        scale="ratio",
        enough=SEVERAL,
        told={name: in_words(one) for name, one in found.items()},
    )


def _slower(
    config: MSETraining, rows: Sequence[Observation], loss: Loss, names: Sequence[str]
) -> Claim:
    """Compare the decades from zero error to the end on held-out images and the training set.

    Undecided for networks whose NC1 on the training set hardly falls after zero error.
    """
    shares, told = {}, {}
    for name in names:
        falls = [-math.inf, -math.inf]
        for index, split in enumerate(("test", "train")):
            change = changes(rows, [name], "nc1", split)[name]
            falls[index] = math.nan if change is None else decades(*change)
        shares[name] = ratio(*falls) if falls[1] > math.log10(COLLAPSE) else math.nan
        told[name] = f"{falls[0]:.3g} of {falls[1]:.3g} decades"
    return over_networks(
        f"under {LOSSES[loss]} NC1 falls on held-out images by less than {SLOW:.0%} of the decades "
        "by which it falls on the training set, from zero training error to the end, in most "
        "networks",
        config,
        shares,
        source="MSE, figure 12",
        region=below(SLOW),
        told=told,
    )


def _drawings(config: MSETraining, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figures 10 and 12 of the paper."""
    rows = at_best_rates(config, rows)
    what = "NC1 under MSE and under cross-entropy, on"
    zero = "one curve for each seed; the dashed lines are the first epochs of zero training error"
    captions = {
        "train": f"MSE figure 10: {what} the training set; {zero}.",
        "test": f"MSE figure 12: {what} held-out images, around their own class means; {zero}.",
    }

    def draw(panel: Axes, names: Sequence[str], split: str) -> None:
        compared(panel, config, rows, names, "nc1", split)

    names = list(config.runs)
    return [
        Drawing(name, captions[split], grid(config, names, "NC1", partial(draw, split=split)))
        for name, split in (("fig-10", "train"), ("fig-12", "test"))
    ]


RECIPE: Recipe[MSETraining] = Recipe(
    id="mse/loss-comparison",
    title="Variability collapse under MSE and under cross-entropy",
    lead=(
        "The same networks train under the MSE loss and under cross-entropy. The paper says that "
        "variability within classes vanishes faster under MSE, and that it also falls on held-out "
        "images, but far more slowly."
    ),
    source="MSE figures 10 and 12",
    config=MSETraining,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    tables=rate_tables,
    columns=("epoch", "accuracy", "nc1", "nc1_quotient", "vci"),
    scales={
        "paper": MSETraining(runs=paper_runs(BOTH, GROUPS)),
        "medium": MSETraining(runs=medium_runs(BOTH, GROUPS)),
        "small": MSETraining(runs=small_runs(BOTH, GROUPS)),
    },
    cost={
        "paper": "150 GPU-hours (estimated)",
        "medium": "40 minutes of one GPU (estimated)",
        "small": "7 minutes on one core",
    },
)
