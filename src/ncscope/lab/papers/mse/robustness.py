"""Benefit of training past zero error against adversarial perturbations, under both losses.

Source: MSE figures 9 and 11. Command: ``ncscope reproduce mse/robustness``, which needs the
library Foolbox: ``pip install ".[attack]"``. Settings of both scales:
`ncscope.lab.papers.mse.training`. As in Papyan, Han and Donoho 2020, 100 held-out images are
attacked.

Results at the small scale (three seeds of three networks): 2 of 3 claims held. Under MSE robustness
grew from zero error to the end by a factor of 1.67 and 1.38 on digits, and not on warped digits. At
the end it was higher under MSE than under cross-entropy by 1.43 [1.10, 1.86] for the VGG on digits,
but 1.15 [0.79, 1.66] for the ResNet and 0.79 [0.61, 1.03] on warped digits: undecided.
"""

from collections.abc import Sequence
from functools import partial

import torch
from matplotlib.axes import Axes
from pydantic import Field

from ncscope.lab.evidence.judging import above
from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.figures import compared, grid
from ncscope.lab.papers.mse.margins import deepfool_robustness
from ncscope.lab.papers.mse.rates import at_best_rates, rate_tables, swept_runs
from ncscope.lab.papers.mse.speed import pairs_of
from ncscope.lab.papers.mse.terminal import (
    FACTOR,
    changes,
    in_words,
    kept,
    last,
    over_networks,
)
from ncscope.lab.papers.mse.training import (
    BOTH,
    MSETraining,
    medium_runs,
    paper_runs,
    small_runs,
    typical,
    under,
)
from ncscope.lab.papers.trained import on_runs, ratio, training_parts
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
    return training_parts(swept_runs(config), partial(attacked, images=config.images))


def attacked(bench: Bench, end: EpochEnd, images: int) -> list[Observation]:
    """Measure robustness at one epoch, on the same images every time.

    Args:
        bench: The run.
        end: State of training at the end of the epoch.
        images: Number of images to attack.
    """
    chosen = bench.data.test.draw_balanced(images)
    inputs = torch.stack([image for image, _ in chosen.__getitems__(range(images))])
    robustness = deepfool_robustness(bench.learner.evaluated, inputs.to(bench.fabric.device))
    values = {"robustness": robustness.margin, "fooled": robustness.fooled}
    return [Observation(end.step, end.epoch, ATTACKED, "input", values=values)]


def _claims(config: MSERobustness, rows: Sequence[Observation]) -> list[Claim]:
    """Test the growth of robustness past zero error, and compare the two losses."""
    rows = at_best_rates(config, rows)
    return [
        _fooled(config, rows),
        _grows(config, rows),
        _better(config, rows),
    ]


def _fooled(config: MSERobustness, rows: Sequence[Observation]) -> Claim:
    """Test that the perturbations change the decision; else their norms are not margins."""
    shares = changes(rows, typical(config), "fooled", ATTACKED)
    text = (
        "at zero training error and at the end every perturbation of DeepFool changes the decision"
    )
    verdicts = {name: (one == (1, 1), in_words(one)) for name, one in shares.items()}
    return on_runs(
        text, verdicts, "share of perturbations that change the decision; ", source="ours"
    )


def _grows(config: MSERobustness, rows: Sequence[Observation]) -> Claim:
    names = typical(config, under(config, "mse"))
    found = changes(rows, names, "robustness", ATTACKED)
    return over_networks(
        "under MSE robustness grows from zero training error to the end, by a factor of at least "
        f"{FACTOR:g}, in most networks",
        config,
        {name: kept(one) for name, one in found.items()},
        source="MSE, figure 9",
        region=above(FACTOR),
        scale="ratio",
        told={name: in_words(one) for name, one in found.items()},
    )


def _better(config: MSERobustness, rows: Sequence[Observation]) -> Claim:
    final = last(rows, list(config.runs), "robustness", ATTACKED)
    pairs = {n: (final[mse], final[entropy]) for n, (mse, entropy) in pairs_of(config).items()}
    return over_networks(
        "at the end robustness is better under MSE than under cross-entropy, by a factor of at "
        f"least {FACTOR:g}, in most networks",
        config,
        {name: ratio(*pair) for name, pair in pairs.items()},
        source="MSE, figure 11",
        region=above(FACTOR),
        scale="ratio",
        told={name: f"{mse:.3g} against {entropy:.3g}" for name, (mse, entropy) in pairs.items()},
    )


def _drawings(config: MSERobustness, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figures 9 and 11 of the paper."""
    rows = at_best_rates(config, rows)

    def draw(panel: Axes, names: Sequence[str]) -> None:
        compared(panel, config, rows, names, "robustness", ATTACKED)

    what = (
        "mean norm of DeepFool's perturbation that changes the decision, as a share of the image's"
    )
    zero = "one curve for each seed; the dashed lines are the first epochs of zero training error"
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
    tables=rate_tables,
    columns=("epoch", "accuracy", "robustness", "fooled"),
    scales={
        "paper": MSERobustness(runs=paper_runs(BOTH, GROUPS)),
        "medium": MSERobustness(runs=medium_runs(BOTH, GROUPS)),
        "small": MSERobustness(runs=small_runs(BOTH, GROUPS)),
    },
    cost={
        "paper": "150 GPU-hours (estimated)",
        "medium": "50 minutes of one GPU (estimated)",
        "small": "8 minutes on one core",
    },
)
