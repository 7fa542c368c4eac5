"""Variability collapse while ResNet-18 trains on CIFAR-10: four metrics, three ways to train.

Source: VCI sections 4.1, 4.3 and 6.2, figures 1-3, 6 (left), 8 (left), on the setting of 6.1.
Command: ``ncscope reproduce vci/training``.

At the paper's scale ResNet-18, cross-entropy, AutoAugment after a crop and mirroring, ImageNet's
normalisation, SGD with Nesterov momentum, weight decay 8e-5, batches of 256, 300 epochs, learning
rate 0.1 after 10 epochs of warm-up from 1e-5, times 0.975 every epoch or along a cosine; a third
run without weight decay and warm-up. Figures 1 and 2 are of ResNet-50 on ImageNet in the paper;
here they are drawn for every run.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from ncscope.probing.records import Row
from ncscope.recipes.recipe import Claim, Part, Recipe
from ncscope.recipes.trained import training_parts
from ncscope.recipes.variability import (
    GROUPS,
    METRICS,
    metrics_figure,
    projection_claims,
    projections_figure,
    spectra_figure,
    spectrum_claims,
    train_test_figure,
    trend_claim,
)
from ncscope.report.drawing import Drawing
from ncscope.training.optimisation import Optimisation
from ncscope.training.supervised import Training


class VCITraining(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")


def _runs(base: Training) -> VCITraining:
    """The paper's three: the base has the step decay."""
    cosine = base.optimisation.model_copy(update={"schedule": "cosine"})
    bare = cosine.model_copy(update={"weight_decay": 0.0, "warmup_epochs": 0})
    return VCITraining(
        runs={
            "step decay": base,
            "cosine": base.model_copy(update={"optimisation": cosine}),
            "cosine, no decay, no warm-up": base.model_copy(update={"optimisation": bare}),
        }
    )


def _paper() -> VCITraining:
    optimisation = Optimisation(
        epochs=300,
        batch_size=256,
        optimiser="nesterov",
        learning_rate=0.1,
        weight_decay=8e-5,
        schedule="exponential",
        decay=0.975,
        warmup_epochs=10,
        warmup_rate=1e-5,
    )
    base = Training(
        data="cifar10",
        network="resnet18",
        augmentation="autoaugment",
        normalisation="imagenet",
        optimisation=optimisation,
        every=20,
        layers=(),
        groups=GROUPS,
    )
    return _runs(base)


def _small() -> VCITraining:
    optimisation = Optimisation(
        epochs=100,
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.05,
        weight_decay=5e-4,
        schedule="exponential",
        decay=0.975**3,
        warmup_epochs=3,
        warmup_rate=1e-5,
    )
    base = Training(
        data="digits",
        network="small-resnet",
        augmentation="crop",
        optimisation=optimisation,
        every=5,
        layers=(),
        groups=GROUPS,
    )
    return _runs(base)


def parts(config: VCITraining) -> list[Part]:
    """A part for each run."""
    return training_parts(config.runs)


def claims(config: VCITraining, rows: Sequence[Row]) -> list[Claim]:
    """Sections 6.2, 4.1 and 4.3."""
    runs = list(config.runs)
    found = [
        trend_claim(f"{text}, in every run", rows, runs, key, split, all_fall=True)
        for text, key, split in (
            ("fuzziness falls over training", "fuzziness", "train"),
            ("VCI falls over training", "vci", "train"),
            ("VCI falls on held-out images too", "vci", "test"),
        )
    ]
    found += [
        trend_claim(
            f"{METRICS[key]} does not fall in every run", rows, runs, key, "train", all_fall=False
        )
        for key in ("nc1_quotient", "cosine_within")
    ]
    for run in runs:
        found += projection_claims(rows, run)
        found += spectrum_claims(rows, run)
    return found


def drawings(config: VCITraining, rows: Sequence[Row]) -> list[Drawing]:
    """Figures 1-3, 6 and 8 of the paper."""
    runs = list(config.runs)
    on_signal = (
        "VCI figure 1: the variance within classes on V_B, the span of the centred class means, "
        "and off it, on the training set; below, over the trace of Sigma_B, so that the two curves "
        "add up to the squared distance."
    )
    eigenvalues = (
        "VCI figure 2: eigenvalues of Sigma_B, as many as it can have, and of Sigma_T, on the "
        "training set at the last epoch."
    )
    metrics = (
        "VCI figure 3: fuzziness, squared distance, cosine distance and VCI on the training set, "
        "from the first measured epoch on, for three ways to train."
    )
    held_out = "VCI figure 6: VCI on the training set and on held-out images."
    others = "VCI figure 8: the three other metrics on the training set and on held-out images."
    rest = [key for key in METRICS if key != "vci"]
    return [
        Drawing("fig-1", on_signal, projections_figure(rows, runs)),
        Drawing("fig-2", eigenvalues, spectra_figure(rows, runs)),
        Drawing("fig-3", metrics, metrics_figure(rows, runs)),
        Drawing("fig-6", held_out, train_test_figure(rows, runs, ["vci"])),
        Drawing("fig-8", others, train_test_figure(rows, runs, rest)),
    ]


RECIPE: Recipe[VCITraining] = Recipe(
    id="vci/training",
    title="Variability collapse while a residual network trains",
    lead=(
        "One network, three ways to train. VCI says that fuzziness and VCI fall whatever the way, "
        "and squared and cosine distance need not: variation grows where no class mean points."
    ),
    source="VCI sections 4.1, 4.3, 6.2, figures 1-3, 6, 8",
    config=VCITraining,
    parts=parts,
    claims=claims,
    drawings=drawings,
    columns=("epoch", "fuzziness", "nc1_quotient", "cosine_within", "vci", "accuracy"),
    scales={"paper": _paper(), "small": _small()},
    cost={"paper": "4 GPU-hours (estimated)", "small": "4 minutes on one core"},
)
