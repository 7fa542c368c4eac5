"""The settings of one supervised training run."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ncscope.training.data.preprocessing import Augmentation
from ncscope.training.loop import log_spaced_epochs
from ncscope.training.optimisation import Optimisation


class Training(BaseModel):
    """One training run, and what is measured of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str = Field(description="Data set, by its name in the catalogue.")
    network: str = Field(description="Network, by its name in the catalogue.")
    augmentation: Augmentation = Field("none", description="Of the training images.")
    normalisation: Literal["own", "imagenet"] = Field("own", description="Of the pixels.")
    image_size: int | None = Field(None, ge=1, description="Pixels a side; default the set's.")
    loss: Literal["cross-entropy", "mse"] = Field("cross-entropy", description="Of the logits.")
    mixing: bool = Field(False, description="MixUp or CutMix of batches; for cross-entropy.")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Of cross-entropy.")
    head: Literal["linear", "simplex"] = Field(
        "linear", description="Trained, or fixed to a simplex."
    )
    bias: bool = Field(True, description="Whether the classifier has a bias.")
    optimisation: Optimisation = Field(Optimisation(), description="How to train.")
    seed: int = Field(0, ge=0, lt=2**63, description="Of weights, order, augmentation and dropout.")
    measurements: int = Field(
        12, ge=2, description="About how many epochs to measure at, log-spaced."
    )
    every: int | None = Field(
        None, ge=1, description="Measure after each so many epochs; default log-spaced."
    )
    measured: int | None = Field(
        None, ge=2, description="Training images to measure, as many of each class; default all."
    )
    layers: tuple[str, ...] | None = Field(
        None, description="Layers to measure besides the last, by name or pattern; default blocks."
    )
    groups: tuple[str, ...] = Field(
        ("nc1", "nc2", "nc3", "nc4", "pfc"), description="Groups of metrics of the last layer."
    )
    layer_groups: tuple[str, ...] = Field(("pfc",), description="Of the other layers.")

    @property
    def due(self) -> list[int]:
        """Epochs to measure at, the first and the last among them."""
        epochs = self.optimisation.epochs
        if self.every is not None:
            return [*range(0, epochs, self.every), epochs]
        return log_spaced_epochs(epochs, self.measurements)
