"""Variability collapse under the MSE loss and under cross-entropy, on training and test images.

Source: MSE figures 10 and 12. Command: ``ncscope reproduce mse/loss-comparison``. Settings of both
scales: `ncscope.recipes.mse_training`.

What came out at the small scale (seed 0; zero error at epochs 6 to 19 of 40): all 8 claims held. At
the end NC1 on the training set was lower under MSE in 5 of 5 networks, by a factor of 9.4 in the
geometric mean. On held-out images it was larger in all, and from zero error on fell in 9 of 10, by
at most 1.9 times, where the training set's fell by up to 8. Its rank correlation with the held-out
error was 0.70 under MSE and 0.60 under cross-entropy.
"""

from collections.abc import Sequence
from functools import partial
from statistics import geometric_mean

from matplotlib.axes import Axes
from scipy.stats import spearmanr

from ncscope.probing.records import Row
from ncscope.recipes.mse_training import (
    BOTH,
    MSETraining,
    changes,
    compared,
    grid,
    in_words,
    paper_runs,
    rivals,
    small_runs,
    under,
    zero_error,
)
from ncscope.recipes.recipe import Claim, Part, Recipe
from ncscope.recipes.trained import history, training_parts, values
from ncscope.report.drawing import Drawing

GROUPS = ("nc1", "nc4")
ROUGHLY = 0.5
"""Least rank correlation that counts as roughly monotonic; the paper names none."""


def parts(config: MSETraining) -> list[Part]:
    """A part for each network and loss."""
    return training_parts(config.runs)


def claims(config: MSETraining, rows: Sequence[Row]) -> list[Claim]:
    """Which loss collapses the training set more, and what is left of it on held-out images."""
    names = list(config.runs)
    found = [zero_error(rows, names), _faster(config, rows), _less_than_train(rows, names)]
    found += [_visible(rows, under(config, loss), loss) for loss in BOTH]
    found.append(_slower(rows, names))
    return [*found, *(_difficulty(rows, under(config, loss), loss) for loss in BOTH)]


def _faster(config: MSETraining, rows: Sequence[Row]) -> Claim:
    last = {name: float(history(rows, name)[-1]["nc1"]) for name in config.runs}
    pairs = {shared: (last[mse], last[ce]) for shared, (mse, ce) in rivals(config).items()}
    ratios = [mse / ce for mse, ce in pairs.values()]
    words = [f"{name}: {mse:.3g} against {ce:.3g}" for name, (mse, ce) in pairs.items()]
    return {
        "claim": "At the end networks tend to be more collapsed under MSE than under "
        "cross-entropy: NC1 on the training set is lower, in the geometric mean of its ratio "
        "(figure 10)",
        "held": geometric_mean(ratios) < 1,
        "evidence": f"ratio {geometric_mean(ratios):.3g}, below 1 in "
        f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} networks; {'; '.join(words)}",
    }


def _less_than_train(rows: Sequence[Row], names: Sequence[str]) -> Claim:
    ends = {n: [float(history(rows, n, s)[-1]["nc1"]) for s in ("train", "test")] for n in names}
    good = [train < test for train, test in ends.values()]
    words = [f"{name}: {train:.3g} and {test:.3g}" for name, (train, test) in ends.items()]
    return {
        "claim": "At the end NC1 is larger on held-out images than on the training set, in every "
        "network (figure 12)",
        "held": all(good),
        "evidence": f"in {sum(good)} of {len(good)} networks; {'; '.join(words)}",
    }


def _visible(rows: Sequence[Row], names: Sequence[str], loss: str) -> Claim:
    found = changes(rows, names, "nc1", "test")
    good = [pair is not None and pair[1] < pair[0] for pair in found.values()]
    return {
        "claim": f"Under {loss} NC1 falls on held-out images too from zero training error to the "
        "end, in several networks (figure 12)",
        "held": sum(good) > 1,
        "evidence": f"in {sum(good)} of {len(good)} networks; {in_words(found)}",
    }


def _slower(rows: Sequence[Row], names: Sequence[str]) -> Claim:
    """By the factors from zero error to the end."""
    train, test = (changes(rows, names, "nc1", split) for split in ("train", "test"))
    good, words = [], []
    for name in names:
        seen, held_out = train[name], test[name]
        if seen is None or held_out is None:
            good.append(False)
            words.append(f"{name}: never at zero error")
        else:
            factors = seen[0] / seen[1], held_out[0] / held_out[1]
            good.append(factors[1] < factors[0])
            words.append(f"{name}: {factors[0]:.3g} and {factors[1]:.3g}")
    return {
        "claim": "From zero training error to the end NC1 falls by a smaller factor on held-out "
        "images than on the training set, in every network (figure 12)",
        "held": len(good) > 0 and all(good),
        "evidence": f"in {sum(good)} of {len(good)} networks; factors {'; '.join(words)}",
    }


def _difficulty(rows: Sequence[Row], names: Sequence[str], loss: str) -> Claim:
    last = [history(rows, name, "test")[-1] for name in names]
    errors = [1 - accuracy for accuracy in values(last, "accuracy")]
    rank = float(spearmanr(values(last, "nc1"), errors).statistic)
    words = [
        f"{name}: {nc1:.3g} at an error of {error:.2%}"
        for name, nc1, error in zip(names, values(last, "nc1"), errors, strict=True)
    ]
    return {
        "claim": f"Under {loss} NC1 on held-out images at the end is roughly monotonic in the "
        f"difficulty of the data: its rank correlation with the error there is above {ROUGHLY} "
        "(figure 12)",
        "held": rank > ROUGHLY,
        "evidence": f"rank correlation {rank:.2f}; {'; '.join(words)}",
    }


def drawings(config: MSETraining, rows: Sequence[Row]) -> list[Drawing]:
    """Figures 10 and 12 of the paper."""
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
        "The same networks train under the MSE loss and under cross-entropy. Variability within "
        "classes vanishes faster under MSE; on images held out it falls too, and far more slowly."
    ),
    source="MSE figures 10 and 12",
    config=MSETraining,
    parts=parts,
    claims=claims,
    drawings=drawings,
    columns=("epoch", "accuracy", "nc1", "nc1_quotient", "vci"),
    scales={
        "paper": MSETraining(runs=paper_runs(BOTH, GROUPS)),
        "small": MSETraining(runs=small_runs(BOTH, GROUPS)),
    },
    cost={"paper": "50 GPU-hours (estimated)", "small": "5 minutes on one core"},
)
