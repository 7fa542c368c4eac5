"""What training past zero error is worth against adversarial perturbations, under both losses.

Source: MSE figures 9 and 11. Command: ``ncscope reproduce mse/robustness``, which needs the
library Foolbox: ``pip install ncscope[attack]``. Settings of both scales:
`ncscope.recipes.mse_training`. As in Papyan, Han and Donoho 2020, 100 held-out images are attacked.

What came out at the small scale (seed 0): all 4 claims held. Under MSE robustness grew from zero
error to the end in 4 of 5 networks, by 0.035 in the median and 0.093 in the mean (paper: 0.18 and
0.93). At the end it was higher than under cross-entropy in 4 of 5, by a factor of 1.6 in the
geometric mean. The exception both times is the VGG on warped digits, by 0.002 and 0.001.
"""

from collections.abc import Sequence
from functools import partial
from statistics import geometric_mean, mean, median

import torch
from matplotlib.axes import Axes
from pydantic import Field

from ncscope.probing.records import Row
from ncscope.probing.robustness import deepfool_robustness
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
from ncscope.recipes.trained import history
from ncscope.report.drawing import Drawing
from ncscope.training.loop import EpochEnd
from ncscope.training.supervised import Bench, training_rows

GROUPS = ("nc4",)
ATTACKED = "attacked"
"""The split of the rows of images under attack."""


class MSERobustness(MSETraining):
    """Settings of the recipe."""

    images: int = Field(100, ge=1, description="Held-out images to attack, as many of each class.")


def parts(config: MSERobustness) -> list[Part]:
    """A part for each network and loss: three rows a measurement, and a sign of life an epoch."""
    attack = partial(attacked, images=config.images)
    return [
        Part(
            name,
            training.optimisation.epochs + 3 * len(training.due),
            partial(training_rows, training, extra=attack),
        )
        for name, training in config.runs.items()
    ]


def attacked(bench: Bench, end: EpochEnd, images: int) -> list[Row]:
    """Robustness at one epoch, of the same images every time.

    Args:
        bench: The run.
        end: Where it stands.
        images: How many to attack.
    """
    chosen = bench.data.test.balanced(images)
    inputs = torch.stack([image for image, _ in chosen.__getitems__(range(images))])
    found = deepfool_robustness(bench.learner.evaluated, inputs.to(bench.fabric.device))
    row: Row = {"step": end.step, "epoch": end.epoch, "split": ATTACKED, "layer": "input"}
    return [row | {"robustness": found.margin, "fooled": found.fooled}]


def claims(config: MSERobustness, rows: Sequence[Row]) -> list[Claim]:
    """Robustness past zero error, and under either loss."""
    return [
        zero_error(rows, list(config.runs)),
        _fooled(config, rows),
        _grows(config, rows),
        _better(config, rows),
    ]


def _fooled(config: MSERobustness, rows: Sequence[Row]) -> Claim:
    """Without it the margins would not be margins."""
    found = changes(rows, list(config.runs), "fooled", ATTACKED)
    short = {name: pair for name, pair in found.items() if pair is None or min(pair) < 1}
    return {
        "claim": "At zero training error and at the end every perturbation found changes the "
        "decision",
        "held": not short,
        "evidence": f"in {len(found) - len(short)} of {len(found)} networks"
        + (f"; share that does, {in_words(short)}" if short else ""),
    }


def _grows(config: MSERobustness, rows: Sequence[Row]) -> Claim:
    found = changes(rows, under(config, "mse"), "robustness", ATTACKED)
    gains = [end - start for start, end in filter(None, found.values())]
    summary = f"median {median(gains):+.3g}, mean {mean(gains):+.3g}" if gains else "no gain"
    return {
        "claim": "Under MSE robustness grows from zero training error to the end, in the median "
        "and in the mean of the networks (figure 9)",
        "held": bool(gains) and median(gains) > 0 and mean(gains) > 0,
        "evidence": f"{summary}, above 0 in {sum(gain > 0 for gain in gains)} of {len(found)} "
        f"networks; {in_words(found)}",
    }


def _better(config: MSERobustness, rows: Sequence[Row]) -> Claim:
    last = {n: float(history(rows, n, ATTACKED)[-1]["robustness"]) for n in config.runs}
    pairs = {shared: (last[mse], last[ce]) for shared, (mse, ce) in rivals(config).items()}
    ratios = [mse / ce for mse, ce in pairs.values()]
    words = [f"{name}: {mse:.3g} against {ce:.3g}" for name, (mse, ce) in pairs.items()]
    return {
        "claim": "At the end robustness tends to be better under MSE than under cross-entropy, in "
        "the geometric mean of the ratio (figure 11)",
        "held": geometric_mean(ratios) > 1,
        "evidence": f"ratio {geometric_mean(ratios):.3g}, above 1 in "
        f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} networks; {'; '.join(words)}",
    }


def drawings(config: MSERobustness, rows: Sequence[Row]) -> list[Drawing]:
    """Figures 9 and 11 of the paper."""

    def draw(panel: Axes, names: Sequence[str]) -> None:
        compared(panel, config, rows, names, "robustness", ATTACKED)

    what = (
        "mean norm of DeepFool's perturbation that changes the decision, as a share of the image's"
    )
    zero = "the dashed lines are the first epochs of zero training error"
    captions = {
        "fig-9": f"MSE figure 9: robustness under the MSE loss, {what}; {zero}.",
        "fig-11": f"MSE figure 11: robustness under MSE and under cross-entropy, {what}; {zero}.",
    }
    drawn = {"fig-9": under(config, "mse"), "fig-11": list(config.runs)}
    return [
        Drawing(name, caption, grid(config, drawn[name], "robustness", draw))
        for name, caption in captions.items()
    ]


RECIPE: Recipe[MSERobustness] = Recipe(
    id="mse/robustness",
    title="Adversarial robustness past zero error, under MSE and under cross-entropy",
    lead=(
        "DeepFool looks for the least perturbation that changes a network's decision. Training "
        "past zero error makes it longer, and so does the MSE loss in place of cross-entropy."
    ),
    source="MSE figures 9 and 11",
    config=MSERobustness,
    parts=parts,
    claims=claims,
    drawings=drawings,
    columns=("epoch", "accuracy", "robustness", "fooled"),
    scales={
        "paper": MSERobustness(runs=paper_runs(BOTH, GROUPS)),
        "small": MSERobustness(runs=small_runs(BOTH, GROUPS)),
    },
    cost={"paper": "50 GPU-hours (estimated)", "small": "6 minutes on one core"},
)
