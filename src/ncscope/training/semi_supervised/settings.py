"""The settings of one training run with few labels."""

from typing import Literal

from pydantic import Field, model_validator

from ncscope.training.data.views import Kind, Strength
from ncscope.training.settings import Training


class FewLabels(Training):
    """One training run on a few labelled images and many unlabelled ones.

    An epoch is a number of steps. Each takes a batch of labelled images, a weak view of each, and
    a batch of unlabelled ones, a weak and a strong view of each. The weights of information terms
    (`mutual_information`, `entropy_difference`) are those of the trusted unlabelled images, with
    their pseudo-labels; of a supervised run, those of the labelled ones.

    Defaults are FreeMatch's (Wang et al. 2023, section 5 and appendix). Where public code, TorchSSL
    and USB, does otherwise, a field says so and lets one do the same.
    """

    labels: int = Field(ge=1, description="Labelled images in all, equally many of each class.")
    method: Literal["supervised", "fixmatch", "freematch"] = Field(
        "freematch", description="What to do with unlabelled images; supervised ignores them."
    )
    steps_per_epoch: int = Field(1024, ge=1, description="Steps that an epoch is.")
    ratio: int = Field(7, ge=1, description="Unlabelled images in a batch, by labelled one.")
    views: Kind = Field("randaugment", description="How images are augmented, weakly and strongly.")
    threshold: float = Field(
        0.95, ge=0, le=1, description="Of fixmatch: the least confidence that is trusted."
    )
    memory: float = Field(
        0.999, ge=0, lt=1, description="Of freematch: decay a step of its moving averages."
    )
    mask_first: bool = Field(
        False, description="Trust by the averages of the step before; public code updates first."
    )
    least_threshold: float = Field(
        0.0, ge=0, le=1, description="Of freematch: least global one; 0.9 for SVHN in the paper."
    )
    most_threshold: float = Field(
        1.0, ge=0, le=1, description="Of freematch: largest global one; 0.95 is optional in USB."
    )
    unlabelled_weight: float = Field(1.0, ge=0, description="Of the loss on unlabelled images.")
    fairness_weight: float = Field(
        0.05, description="Of freematch's fairness loss; 0.01 in the paper with fewest labels."
    )
    measured: int | None = Field(
        None, ge=2, description="Unlabelled images to look at, random ones; default all."
    )
    information_view: Strength = Field(
        "strong", description="Whose features the information terms take."
    )

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> "FewLabels":
        if self.least_threshold > self.most_threshold:
            msg = "least_threshold up to most_threshold"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> "FewLabels":
        """Views are the augmentation; with unlabelled images the labelled loss is the papers'."""
        idle = ["augmentation"]
        if self.method != "supervised":
            idle += ["loss", "label_smoothing", "temperature", "mixing"]
        for name in idle:
            if getattr(self, name) != Training.model_fields[name].default:
                msg = f"{name} as it is by default in {self.method} training with few labels"
                raise ValueError(msg)
        return self
