"""Objectives for the training loop, built from the settings."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ncscope.lab.training.loop import Objective
from ncscope.lab.training.mixing import mixed
from ncscope.lab.training.settings import Training
from ncscope.losses import (
    EntropyDifferenceLoss,
    MutualInformationLoss,
    WithinClassCosineLoss,
    squared_error,
)
from ncscope.models.forward import classifier, features_and_logits

Term = Callable[[Float[Tensor, "b d"], Int[Tensor, " b"], Tensor], Tensor]
"""Loss term that is computed from features, labels and the classifier's weight of a batch."""


def objective(settings: Training, num_classes: int, device: torch.device) -> Objective:
    """Return the objective of the settings for batches (images, labels).

    With several processes, each process computes the feature terms from its share of the batch.

    Args:
        settings: Settings of the run.
        num_classes: Number of classes of the data.
        device: Device of the run.
    """
    half = settings.optimisation.precision == "bf16-mixed"
    criterion, terms = _criterion(settings), feature_terms(settings)

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        images, targets = batch
        if settings.mixing:
            # The loop seeds torch's generator before every batch, so this draw can be repeated.
            draw = settings.steps_seed, torch.initial_seed()
            images, targets = mixed(images, targets, num_classes, *draw)
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            features, logits = features_and_logits(model, images)
        total = criterion(logits.float(), targets)
        for term in terms:
            total = total + term(features, targets, classifier(model).weight)
        return total

    return loss


def feature_terms(settings: Training) -> list[Term]:
    r"""Return the feature terms of the loss: $-\lambda_{mi}MI$, $\lambda_{id}|H-H'|$, $\lambda R$.

    A term of weight 0 is left out. Source: INFO 6.2, VCI 6.3.
    """
    terms: list[Term] = []
    if settings.mutual_information:
        terms.append(MutualInformationLoss(settings.mutual_information))
    if settings.entropy_difference:
        terms.append(EntropyDifferenceLoss(settings.entropy_difference))
    if settings.within_class_cosine:
        cosine = WithinClassCosineLoss(settings.within_class_cosine)
        terms.append(lambda features, labels, weight: cosine(features, labels))
    return terms


def _criterion(settings: Training) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of the logits."""
    if settings.loss == "mse":
        return squared_error
    smoothed = nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
    if settings.temperature == 1:
        return smoothed
    return lambda logits, targets: smoothed(logits / settings.temperature, targets)
