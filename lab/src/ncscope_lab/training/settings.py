"""The settings of one supervised training run."""

from typing import Literal

from pydantic import Field, model_validator

from ncscope.data.preprocessing import Augmentation
from ncscope_lab.runs.settings import Config
from ncscope_lab.training.loop import log_spaced_epochs
from ncscope_lab.training.optimisation import Optimisation


class Training(Config):
    """One training run and its measurements."""

    data: str = Field(description="Data set, by its name in the catalogue.")
    network: str = Field(description="Network, by its name in the catalogue.")
    augmentation: Augmentation = Field("none", description="Augmentation of training images.")
    normalisation: Literal["own", "imagenet"] = Field("own", description="Pixel normalisation.")
    image_size: int | None = Field(None, ge=1, description="Pixels per side; default the set's.")
    loss: Literal["cross-entropy", "mse"] = Field("cross-entropy", description="Loss.")
    mixing: bool = Field(False, description="MixUp or CutMix; for cross-entropy only.")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Of cross-entropy.")
    temperature: float = Field(1.0, gt=0, description="Softmax temperature.")
    mutual_information: float = Field(
        0.0, ge=0, description="Loss weight of minus the MI of features and classifier rows."
    )
    entropy_difference: float = Field(
        0.0, ge=0, description="Loss weight of features' and classifier rows' entropy difference."
    )
    within_class_cosine: float = Field(
        0.0, ge=0, description="Loss weight of the cosine similarity within classes."
    )
    cosine_group: int | None = Field(
        None,
        ge=1,
        description="Images at a time in within_class_cosine; default each process's batch.",
    )
    head: Literal["linear", "simplex"] = Field(
        "linear", description="Classifier: trained, or fixed to a simplex."
    )
    bias: bool = Field(True, description="Whether the classifier has a bias.")
    optimisation: Optimisation = Field(Optimisation(), description="Optimiser and length.")
    seed: int = Field(
        0, ge=0, lt=2**63, description="Seed of generated data, weights, order and random steps."
    )
    order_seed: int | None = Field(
        None, ge=0, lt=2**63, description="Seed of order, augmentation and dropout; default: seed."
    )
    measurements: int = Field(
        12, ge=2, description="Approximate number of measured epochs, log-spaced."
    )
    every: int | None = Field(
        None, ge=1, description="Epochs between measurements; default log-spaced epochs."
    )
    balanced: int | None = Field(
        None, ge=2, description="Total training images, equally many per class; default all."
    )
    measured: int | None = Field(
        None, ge=2, description="Training images to measure, equally many per class; default all."
    )
    layers: tuple[str, ...] | None = Field(
        None, description="Layers to measure besides the last, by name or pattern; default blocks."
    )
    groups: tuple[str, ...] = Field(
        ("nc1", "nc2", "nc3", "nc4", "pfc"), description="Groups of metrics of the last layer."
    )
    layer_groups: tuple[str, ...] = Field(("pfc",), description="Groups for other layers.")

    @model_validator(mode="after")
    def _labels_are_there(self) -> "Training":
        if self.mixing and (self.adds_to_loss or self.loss == "mse"):
            msg = "no mixing with losses that need each image's one class"
            raise ValueError(msg)
        if self.loss == "mse" and (self.temperature != 1 or self.label_smoothing):
            msg = "temperature and label_smoothing with cross-entropy only"
            raise ValueError(msg)
        return self

    @property
    def adds_to_loss(self) -> bool:
        """Return whether the loss has feature terms."""
        return any((self.mutual_information, self.entropy_difference, self.within_class_cosine))

    @property
    def steps_seed(self) -> int:
        """Return the seed of order, augmentation and dropout."""
        return self.seed if self.order_seed is None else self.order_seed

    @property
    def due(self) -> list[int]:
        """Return the epochs to measure at, including the first and the last."""
        epochs = self.optimisation.epochs
        if self.every is not None:
            return [*range(0, epochs, self.every), epochs]
        return log_spaced_epochs(epochs, self.measurements)
