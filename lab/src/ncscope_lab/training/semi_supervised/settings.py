"""The settings of one training run with few labels."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from ncscope_lab.training.semi_supervised.views import Kind, Strength
from ncscope_lab.training.settings import Training

MethodName = Literal[
    "supervised",
    "pi-model",
    "pseudo-label",
    "mean-teacher",
    "uda",
    "fixmatch",
    "flexmatch",
    "freematch",
    "softmatch",
]
Annealing = Literal["none", "linear", "log", "exp"]

_OF_METHOD: Mapping[str, Mapping[str, float]] = {
    "pi-model": {"unlabelled_weight": 10.0, "ratio": 1},
    "pseudo-label": {"ratio": 1},
    "mean-teacher": {"unlabelled_weight": 50.0, "ratio": 1},
    "uda": {"threshold": 0.8},
}
"""Defaults of a method where they differ from the fields' own: those of TorchSSL."""


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
    method: MethodName = Field(
        "freematch", description="What to do with unlabelled images; supervised ignores them."
    )
    steps_per_epoch: int = Field(1024, ge=1, description="Steps per epoch.")
    ratio: int = Field(
        7,
        ge=1,
        description="Unlabelled images in a batch per labelled image; default 1 for pi-model, "
        "pseudo-label and mean-teacher.",
    )
    views: Kind = Field("randaugment", description="How images are augmented, weakly and strongly.")
    threshold: float = Field(
        0.95,
        ge=0,
        le=1,
        description="For pseudo-label, fixmatch, uda (default 0.8): the least confidence that is "
        "trusted; for flexmatch: the largest threshold.",
    )
    ramp: float = Field(
        0.4,
        gt=0,
        le=1,
        description="For pi-model, pseudo-label and mean-teacher: share of the steps over which "
        "the unlabelled weight rises from 0.",
    )
    target_temperature: float = Field(
        0.4, gt=0, description="For uda: divisor of the logits that give targets."
    )
    annealing: Annealing = Field(
        "none", description="For uda: schedule of the largest confidence in labelled images."
    )
    memory: float = Field(
        0.999,
        ge=0,
        lt=1,
        description="For freematch and softmatch: decay per step of their moving averages.",
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
    unlabelled_weight: float = Field(
        1.0,
        ge=0,
        description="Weight of the unlabelled loss; default 10 for pi-model, 50 for mean-teacher.",
    )
    fairness_weight: float = Field(
        0.05, description="Weight of freematch's fairness loss; paper, fewest labels: 0.01."
    )
    measured: int | None = Field(
        None, ge=2, description="Random unlabelled images to measure pseudo-labels of; default all."
    )
    information_view: Strength = Field(
        "strong",
        description="Views whose features enter the information terms: the first of an image's "
        "views (weak), or the trained one (strong).",
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_method(cls, given: Any) -> Any:
        """Fill in the method's own defaults."""
        if not isinstance(given, Mapping):
            return given
        return {**_OF_METHOD.get(str(given.get("method")), {}), **given}

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> "FewLabels":
        if self.least_threshold > self.most_threshold:
            msg = "least_threshold up to most_threshold"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _teacher_exists(self) -> "FewLabels":
        if self.method == "mean-teacher" and not self.optimisation.average:
            msg = "optimisation.average above 0 for mean-teacher, whose teacher it is"
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
