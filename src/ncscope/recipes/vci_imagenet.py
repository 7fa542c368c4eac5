"""Variability collapse on many classes: ResNets under two losses, and vision transformers.

Source: VCI sections 4.1, 4.3 and 6.2, figures 1, 2, 4-6 and 8, on the setting of 6.1. Command:
``ncscope reproduce vci/imagenet``.

At the paper's scale ResNet-50 on ImageNet under cross-entropy and squared error with the learning
rate times 0.975 every epoch, and squared error along a cosine: SGD with Nesterov momentum, rate
0.4 for batches of 1024, 10 epochs of warm-up from 1e-5, weight decay 8e-5, AutoAugment, 300 epochs;
DeiT-T and DeiT-S with AdamW, rate 1e-3 along a cosine after 5 epochs of warm-up from 1e-6. Every 20
epochs 50,000 training images and all held-out ones are measured. The paper prints no factors for
the squared error; it is the plain one, half the sum over classes. Of DeiT's own training the
weight decay of 0.05, label smoothing, stochastic depth, erasing, MixUp and CutMix are kept; it
repeats every image three times an epoch, which is left out.

At the small scale all train on handwritten digits, without augmentation, in batches of 64: a
network of 32 features with the same losses and schedules at rate 0.02 and decay 5e-4, 100 epochs,
and a transformer of width 32 at rate 4e-3, 60 epochs. At rate 0.05, or on 20 generated classes,
the squared error ended with features of zero. The classes are ten, so that V_B is not all of the
transformer's space, as it is with the paper's 1000.

What came out (seed 0; first measured epoch to last): training accuracy 1, but .999 for MSE;
held-out .978 (CE), .961, .964 and .964. All four metrics fell in every run; VCI 0.079 to 0.029
(CE), 0.116 to 0.016 (MSE), 0.114 to 0.0033 (MSE + cosine), 0.66 to 0.14 (transformer), and on
held-out images 0.115 to 0.072, 0.161 to 0.085, 0.158 to 0.065, 0.61 to 0.18. Squared error ends
with lower fuzziness and VCI than cross-entropy; with lower squared and cosine distance only along
the cosine, for after the step decay 72 % of the variance within classes is off V_B, which these
two count and fuzziness does not. Off V_B it did not rise in the CE run (1.5 to 1.0); in the
transformer it did (0.07 to 1.6). Sigma_T's ninth eigenvalue exceeds Sigma_B's by 5 %.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ncscope.probing.records import Row
from ncscope.recipes.recipe import Claim, Part, Recipe
from ncscope.recipes.trained import training_parts, values
from ncscope.recipes.variability import (
    GROUPS,
    METRICS,
    metrics_figure,
    projection_claims,
    projections_figure,
    spectra_figure,
    spectrum_claims,
    train_test_figure,
    trained,
    trend_claim,
)
from ncscope.report.drawing import Drawing
from ncscope.training.optimisation import Optimisation
from ncscope.training.settings import Training


class VCIImageNet(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")
    transformers: tuple[str, ...] = Field(description="Those of them that train transformers.")

    @property
    def residual(self) -> list[str]:
        """Names of the other runs; the first is the one of the paper's figures 1 and 2."""
        return [name for name in self.runs if name not in self.transformers]

    def under(self, loss: Literal["cross-entropy", "mse"]) -> list[str]:
        """Names of the residual networks' runs with a loss."""
        return [name for name in self.residual if self.runs[name].loss == loss]


def _residual_runs(base: Training) -> dict[str, Training]:
    """The paper's three: the base has cross-entropy and the step decay."""
    cosine = base.optimisation.model_copy(update={"schedule": "cosine"})
    squared = base.model_copy(update={"loss": "mse"})
    return {
        "CE": base,
        "MSE": squared,
        "MSE + cosine": squared.model_copy(update={"optimisation": cosine}),
    }


def _paper() -> VCIImageNet:
    imagenet = {"data": "imagenet", "measured": 50000, "every": 20, "layers": (), "groups": GROUPS}
    descent = Optimisation(
        epochs=300,
        batch_size=1024,
        optimiser="nesterov",
        learning_rate=0.4,
        weight_decay=8e-5,
        schedule="exponential",
        decay=0.975,
        warmup_epochs=10,
        warmup_rate=1e-5,
    )
    residual = Training(
        network="resnet50", augmentation="autoaugment", optimisation=descent, **imagenet
    )
    adam = Optimisation(
        epochs=300,
        batch_size=1024,
        optimiser="adamw",
        learning_rate=1e-3,
        weight_decay=0.05,
        schedule="cosine",
        warmup_epochs=5,
        warmup_rate=1e-6,
    )
    transformers = {
        name: Training(
            network=network,
            augmentation="autoaugment-erasing",
            mixing=True,
            label_smoothing=0.1,
            optimisation=adam,
            **imagenet,
        )
        for name, network in {"DeiT-T": "deit-tiny", "DeiT-S": "deit-small"}.items()
    }
    return VCIImageNet(
        runs=_residual_runs(residual) | transformers, transformers=tuple(transformers)
    )


def _small() -> VCIImageNet:
    descent = Optimisation(
        epochs=100,
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.02,
        weight_decay=5e-4,
        schedule="exponential",
        decay=0.975**3,
        warmup_epochs=3,
        warmup_rate=1e-5,
    )
    residual = Training(
        data="digits",
        network="small-resnet",
        optimisation=descent,
        every=5,
        layers=(),
        groups=GROUPS,
    )
    adam = Optimisation(
        epochs=60,
        batch_size=64,
        optimiser="adamw",
        learning_rate=4e-3,
        weight_decay=0.05,
        schedule="cosine",
        warmup_epochs=1,
        warmup_rate=1e-6,
    )
    transformer = Training(
        data="digits",
        network="small-vit",
        optimisation=adam,
        every=4,
        layers=(),
        groups=GROUPS,
    )
    return VCIImageNet(
        runs=_residual_runs(residual) | {"transformer": transformer}, transformers=("transformer",)
    )


def parts(config: VCIImageNet) -> list[Part]:
    """A part for each run."""
    return training_parts(config.runs)


def claims(config: VCIImageNet, rows: Sequence[Row]) -> list[Claim]:
    """Sections 6.2, 4.1 and 4.3."""
    found = []
    for kind, runs in (
        ("residual network", config.residual),
        ("transformer", list(config.transformers)),
    ):
        found += [
            trend_claim(
                f"{title} falls over training, in every {kind}",
                rows, runs, key, "train", all_fall=True,
            )
            for key, title in METRICS.items()
        ]  # fmt: skip
    held_out = "VCI falls on held-out images too, in every run"
    found.append(trend_claim(held_out, rows, list(config.runs), "vci", "test", all_fall=True))
    found += [_more_collapsed(config, rows, key) for key in METRICS]
    first = config.residual[0]
    return found + projection_claims(rows, first) + spectrum_claims(rows, first)


def _more_collapsed(config: VCIImageNet, rows: Sequence[Row], key: str) -> Claim:
    """Section 6.2: the squared error leads to more collapse than cross-entropy."""
    ends = {name: values(trained(rows, name), key)[-1] for name in config.residual}
    least = min(ends[name] for name in config.under("cross-entropy"))
    return {
        "claim": f"squared error ends at a lower {METRICS[key]} than cross-entropy",
        "held": all(ends[name] < least for name in config.under("mse")),
        "evidence": "; ".join(f"{name}: {end:.3g}" for name, end in ends.items()),
    }


def drawings(config: VCIImageNet, rows: Sequence[Row]) -> list[Drawing]:
    """Figures 1, 2, 4-6 and 8 of the paper."""
    residual, transformers = config.residual, list(config.transformers)
    ends = [residual[0], *transformers[-1:]]
    on_signal = (
        "VCI figure 1: the variance within classes on V_B, the span of the centred class means, "
        "and off it, on training images; below, over the trace of Sigma_B, so that the two curves "
        "add up to the squared distance. The paper's is the first."
    )
    eigenvalues = (
        "VCI figure 2: eigenvalues of Sigma_B, as many as it can have, and of Sigma_T, on training "
        "images at the last epoch."
    )
    metrics = "fuzziness, squared distance, cosine distance and VCI on training images"
    losses = f"VCI figure 4: {metrics}, for residual networks under two losses."
    attention = f"VCI figure 5: {metrics}, for vision transformers."
    held_out = "VCI figure 6: VCI on training and on held-out images."
    others = "VCI figure 8: the three other metrics on training and on held-out images."
    rest = [key for key in METRICS if key != "vci"]
    return [
        Drawing("fig-1", on_signal, projections_figure(rows, residual)),
        Drawing("fig-2", eigenvalues, spectra_figure(rows, residual[:1])),
        Drawing("fig-4", losses, metrics_figure(rows, residual)),
        Drawing("fig-5", attention, metrics_figure(rows, transformers)),
        Drawing("fig-6", held_out, train_test_figure(rows, ends, ["vci"])),
        Drawing("fig-8", others, train_test_figure(rows, ends, rest)),
    ]


RECIPE: Recipe[VCIImageNet] = Recipe(
    id="vci/imagenet",
    title="Variability collapse on many classes",
    lead=(
        "Residual networks under two losses, and vision transformers. With nearly as many classes "
        "as features, or more, VCI says that all four metrics fall, and lowest under squared error."
    ),
    source="VCI sections 4.1, 4.3, 6.2, figures 1, 2, 4-6, 8",
    config=VCIImageNet,
    parts=parts,
    claims=claims,
    drawings=drawings,
    columns=("epoch", "fuzziness", "nc1_quotient", "cosine_within", "vci", "accuracy"),
    scales={"paper": _paper(), "small": _small()},
    cost={"paper": "600 GPU-hours (estimated)", "small": "3 minutes on one core"},
)
