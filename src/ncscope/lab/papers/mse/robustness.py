"""Benefit of training past zero error against adversarial perturbations, under both losses.

Source: MSE figures 9 and 11. Command: ``ncscope reproduce mse/robustness``, which needs the
library Foolbox: ``pip install ".[attack]"``. Settings of both scales:
`ncscope.lab.papers.mse.training`. As in Papyan, Han and Donoho 2020, 100 held-out images are
attacked.

What came out at the small scale (three seeds of the VGG on digits, else seed 0): all 4 claims held.
Under MSE robustness grew from zero error to the end in 4 of 5 networks, by 0.035 in the median and
0.093 in the mean (paper: 0.18 and 0.93). At the end it was higher than under cross-entropy in 4 of
5, by a factor of 1.6 in the geometric mean. The exception both times is the VGG on warped digits,
by 0.002 and 0.001.
"""

from collections.abc import Sequence
from functools import partial

import torch
from matplotlib.axes import Axes
from pydantic import Field

from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.margins import deepfool_robustness
from ncscope.lab.papers.mse.training import (
    BOTH,
    MSETraining,
    by_network,
    changes,
    compare,
    compared,
    grid,
    in_words,
    last,
    paper_runs,
    small_runs,
    under,
    zero_error,
)
from ncscope.lab.papers.trained import average, middle, on_runs, training_parts
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.training.loop import EpochEnd
from ncscope.lab.training.supervised import Bench
from ncscope.report.claims import Claim

GROUPS = ("nc4",)
ATTACKED = "attacked"
"""Name of the split in the rows of attacked images."""


class MSERobustness(MSETraining):
    """Settings of the recipe."""

    images: int = Field(100, ge=1, description="Held-out images to attack, equally per class.")


def _parts(config: MSERobustness) -> list[Part]:
    """Return a part for each network and loss."""
    return training_parts(config.runs, partial(attacked, images=config.images))


def attacked(bench: Bench, end: EpochEnd, images: int) -> list[Observation]:
    """Measure robustness at one epoch, on the same images every time.

    Args:
        bench: The run.
        end: State of training at the end of the epoch.
        images: Number of images to attack.
    """
    chosen = bench.data.test.balanced(images)
    inputs = torch.stack([image for image, _ in chosen.__getitems__(range(images))])
    robustness = deepfool_robustness(bench.learner.evaluated, inputs.to(bench.fabric.device))
    values = {"robustness": robustness.margin, "fooled": robustness.fooled}
    return [Observation(end.step, end.epoch, ATTACKED, "input", values=values)]


def _claims(config: MSERobustness, rows: Sequence[Observation]) -> list[Claim]:
    """Test the growth of robustness past zero error, and compare the two losses."""
    return [
        zero_error(rows, list(config.runs)),
        _fooled(config, rows),
        _grows(config, rows),
        _better(config, rows),
    ]


def _fooled(config: MSERobustness, rows: Sequence[Observation]) -> Claim:
    """Test that the perturbations change the decision; else their norms are not margins."""
    shares = changes(rows, list(config.runs), "fooled", ATTACKED)
    text = (
        "At zero training error and at the end every perturbation of DeepFool changes the decision"
    )
    verdicts = {name: (one == (1, 1), in_words(one)) for name, one in shares.items()}
    return on_runs(
        text, verdicts, "share of perturbations that change the decision; ", source="MSE"
    )


def _grows(config: MSERobustness, rows: Sequence[Observation]) -> Claim:
    networks = by_network(config, changes(rows, under(config, "mse"), "robustness", ATTACKED))
    by_seed = [[end - start for start, end in filter(None, seeds)] for seeds in networks.values()]
    gains = [average(seeds) for seeds in by_seed if seeds]
    per_network = [
        f"{network}: {', '.join(map(in_words, seeds))}" for network, seeds in networks.items()
    ]
    return decided(
        "Under MSE robustness grows from zero training error to the end, in the median "
        "and in the mean of the networks (figure 9)",
        source="MSE",
        held=middle(gains) > 0 and average(gains) > 0,
        evidence=f"median {middle(gains):+.3g}, mean {average(gains):+.3g}, above 0 in "
        f"{sum(gain > 0 for gain in gains)} of {len(gains)} networks that reach zero error; "
        f"{'; '.join(per_network)}",
    )


def _better(config: MSERobustness, rows: Sequence[Observation]) -> Claim:
    text = (
        "At the end robustness tends to be better under MSE than under cross-entropy, in the "
        "geometric mean of the ratio (figure 11)"
    )
    return compare(text, config, last(rows, list(config.runs), "robustness", ATTACKED), lower=False)


def _drawings(config: MSERobustness, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figures 9 and 11 of the paper."""

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
        if drawn[name]
    ]


RECIPE: Recipe[MSERobustness] = Recipe(
    id="mse/robustness",
    title="Adversarial robustness past zero error, under MSE and under cross-entropy",
    lead=(
        "DeepFool estimates the least perturbation that changes a network's decision. The paper "
        "says that training past zero error makes it longer, and so does the MSE loss in place of "
        "cross-entropy."
    ),
    source="MSE figures 9 and 11",
    config=MSERobustness,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    columns=("epoch", "accuracy", "robustness", "fooled"),
    scales={
        "paper": MSERobustness(runs=paper_runs(BOTH, GROUPS)),
        "small": MSERobustness(runs=small_runs(BOTH, GROUPS)),
    },
    cost={"paper": "50 GPU-hours (estimated)", "small": "7 minutes on one core"},
)
