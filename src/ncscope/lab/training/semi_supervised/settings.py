"""The settings of one training run with few labels."""

from typing import Literal

from pydantic import Field, model_validator

from ncscope.lab.training.semi_supervised.views import Kind, Strength
from ncscope.lab.training.settings import Training


class FewLabels(Training):
    """One training run on a few labelled images and many unlabelled ones.

    An epoch is a fixed number of steps. Each step takes a batch of labelled images, with a weak
    view of each, and a batch of unlabelled images, with a weak and a strong view of each. The
    information terms (weights `mutual_information` and `entropy_difference`) are computed from the
    trusted unlabelled images and their pseudo-labels; a supervised run uses the labelled images.

    Defaults are FreeMatch's (Wang et al. 2023, section 5 and appendix). Where public code (TorchSSL
    and USB) differs from the paper, the field's description says so, and a value of the field
    reproduces the public code.
    """

    labels: int = Field(ge=1, description="Total labelled images, equally many per class.")
    method: Literal["supervised", "fixmatch", "freematch"] = Field(
        "freematch", description="What to do with unlabelled images; supervised ignores them."
    )
    steps_per_epoch: int = Field(1024, ge=1, description="Steps per epoch.")
    ratio: int = Field(7, ge=1, description="Unlabelled images in a batch per labelled image.")
    views: Kind = Field("randaugment", description="How images are augmented, weakly and strongly.")
    threshold: float = Field(
        0.95, ge=0, le=1, description="For fixmatch: the least confidence that is trusted."
    )
    memory: float = Field(
        0.999, ge=0, lt=1, description="For freematch: decay per step of its moving averages."
    )
    mask_first: bool = Field(
        False, description="Apply the thresholds before their update; public code updates first."
    )
    least_threshold: float = Field(
        0.0, ge=0, le=1, description="For freematch: least global threshold; paper's SVHN: 0.9."
    )
    most_threshold: float = Field(
        1.0, ge=0, le=1, description="For freematch: largest global threshold; USB's option: 0.95."
    )
    unlabelled_weight: float = Field(1.0, ge=0, description="Weight of the unlabelled loss.")
    fairness_weight: float = Field(
        0.05, description="Weight of freematch's fairness loss; paper, fewest labels: 0.01."
    )
    measured: int | None = Field(
        None, ge=2, description="Random unlabelled images to measure pseudo-labels of; default all."
    )
    information_view: Strength = Field(
        "strong", description="Views whose features enter the information terms."
    )

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> "FewLabels":
        if self.least_threshold > self.most_threshold:
            msg = "least_threshold up to most_threshold"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> "FewLabels":
        """Check that no setting is given that training with few labels would ignore."""
        idle = ["augmentation"]
        if self.method != "supervised":
            idle += ["loss", "label_smoothing", "temperature", "mixing"]
        for name in idle:
            if getattr(self, name) != Training.model_fields[name].default:
                msg = f"{name} as it is by default in {self.method} training with few labels"
                raise ValueError(msg)
        return self
