"""Variability collapse under the MSE loss and under cross-entropy, on training and test images.

Source: MSE figures 10 and 12. Command: ``ncscope reproduce mse/loss-comparison``. Settings of both
scales: `ncscope.lab.papers.mse.training`.

Results at the small scale (three seeds of the VGG on digits, else seed 0; zero error at epochs 6 to
19 of 40): all 8 claims held. At the end NC1 on the training set was lower under MSE in 5 of 5
networks, by a factor of 9.4 in the geometric mean; for the three seeds the factors are 4.0, 4.3 and
3.6. NC1 on held-out images was larger than on the training set in all networks. From zero error on
it fell in 13 of 14 runs, by a factor of at most 1.9; on the training set the factor was up to 8.
The rank correlation of held-out NC1 with the held-out error was 0.67 under MSE and 0.60 under
cross-entropy.
"""

import math
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from scipy.stats import spearmanr

from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.training import (
    BOTH,
    LOSSES,
    Loss,
    MSETraining,
    by_network,
    changes,
    compare,
    compared,
    fell,
    grid,
    in_words,
    last,
    paper_runs,
    small_runs,
    under,
    zero_error,
)
from ncscope.lab.papers.trained import average, on_runs, ratio, training_parts
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.report.claims import Claim

GROUPS = ("nc1", "nc4")
ROUGHLY = 0.5
"""Least rank correlation that counts as roughly monotonic; the paper states no number."""


def _parts(config: MSETraining) -> list[Part]:
    """Return a part for each network and loss."""
    return training_parts(config.runs)


def _claims(config: MSETraining, rows: Sequence[Observation]) -> list[Claim]:
    """Test which loss collapses the training set more, and the collapse on held-out images."""
    names = list(config.runs)
    claims = [zero_error(rows, names), _faster(config, rows), _less_than_train(rows, names)]
    claims += [_visible(config, rows, loss) for loss in BOTH]
    claims.append(_slower(rows, names))
    return [*claims, *(_difficulty(config, rows, loss) for loss in BOTH)]


def _faster(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    text = (
        "At the end networks tend to be more collapsed under MSE than under cross-entropy: NC1 on "
        "the training set is lower, in the geometric mean of its ratio (figure 10)"
    )
    return compare(text, config, last(rows, list(config.runs), "nc1", "train"), lower=True)


def _less_than_train(rows: Sequence[Observation], names: Sequence[str]) -> Claim:
    train, test = (last(rows, names, "nc1", split) for split in ("train", "test"))
    text = (
        "At the end NC1 is larger on held-out images than on the training set, in every network "
        "(figure 12)"
    )
    return on_runs(
        text,
        {n: (train[n] < test[n], f"{train[n]:.3g} and {test[n]:.3g}") for n in names},
        source="MSE",
    )


def _visible(config: MSETraining, rows: Sequence[Observation], loss: Loss) -> Claim:
    networks = by_network(config, changes(rows, under(config, loss), "nc1", "test"))
    verdicts = {
        network: (all(map(fell, by_seed)), ", ".join(map(in_words, by_seed)))
        for network, by_seed in networks.items()
    }
    text = (
        f"Under {LOSSES[loss]} NC1 falls on held-out images too from zero training error to the "
        "end, in several networks (figure 12)"
    )
    return on_runs(text, verdicts, enough=2, of="networks", source="MSE")


def _slower(rows: Sequence[Observation], names: Sequence[str]) -> Claim:
    """Compare the factors from zero error to the end on held-out images and the training set."""
    train, test = (changes(rows, names, "nc1", split) for split in ("train", "test"))
    verdicts = {}
    for name in names:
        seen, held_out = train[name], test[name]
        if seen is None or held_out is None:
            verdicts[name] = False, "never at zero error"
        else:
            factors = ratio(*seen), ratio(*held_out)
            verdicts[name] = factors[1] < factors[0], f"{factors[0]:.3g} and {factors[1]:.3g}"
    text = (
        "From zero training error to the end NC1 falls by a smaller factor on held-out images than "
        "on the training set, in every network (figure 12)"
    )
    return on_runs(text, verdicts, "factors on the training set and held out; ", source="MSE")


def _difficulty(config: MSETraining, rows: Sequence[Observation], loss: Loss) -> Claim:
    nc1, accuracy = (
        {n: average(by_seed) for n, by_seed in by_network(config, by_run).items()}
        for by_run in (last(rows, under(config, loss), key, "test") for key in ("nc1", "accuracy"))
    )
    errors = {network: round(1 - one, 12) for network, one in accuracy.items()}  # ties stay ties
    rank = _rank_correlation(list(nc1.values()), list(errors.values()))
    per_network = [
        f"{network}: {nc1[network]:.3g} at an error of {errors[network]:.2%}" for network in nc1
    ]
    return decided(
        f"Under {LOSSES[loss]} NC1 on held-out images at the end is roughly monotonic in "
        "the difficulty of the data: its rank correlation with the held-out error is above "
        f"{ROUGHLY} (figure 12)",
        source="MSE",
        held=rank > ROUGHLY,
        evidence="; ".join([f"rank correlation {rank:.2f}", *per_network]),
    )


def _rank_correlation(firsts: Sequence[float], seconds: Sequence[float]) -> float:
    """Compute Spearman's coefficient; NaN if one side is constant or has fewer than two values.

    Example:
        >>> _rank_correlation([1.0, 2.0, 4.0], [0.1, 0.3, 0.2]), _rank_correlation([1.0], [1.0])
        (0.5, nan)
    """
    if min(len(set(firsts)), len(set(seconds))) < 2:
        return math.nan
    return float(spearmanr(firsts, seconds).statistic)


def _drawings(config: MSETraining, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figures 10 and 12 of the paper."""
    what = "NC1 under MSE and under cross-entropy, on"
    zero = "the dashed lines are the first epochs of zero training error"
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
    columns=("epoch", "accuracy", "nc1", "nc1_quotient", "vci"),
    scales={
        "paper": MSETraining(runs=paper_runs(BOTH, GROUPS)),
        "small": MSETraining(runs=small_runs(BOTH, GROUPS)),
    },
    cost={"paper": "50 GPU-hours (estimated)", "small": "6 minutes on one core"},
)
