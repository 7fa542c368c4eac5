"""The losses that settings ask for, as the loop takes them."""

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
"""What features, labels and the classifier's weight add to the loss of a batch."""


def objective(settings: Training, num_classes: int, device: torch.device) -> Objective:
    """Return the loss that the settings ask for, of batches (images, labels).

    With several processes the terms of the features are those of each one's share of the batch.

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
            # The loop has seeded torch for this batch alone.
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
    r"""Return the terms of the settings: $-\lambda_{mi}MI$, $\lambda_{id}|H-H'|$, $\lambda R$.

    Source: INFO 6.2, VCI 6.3. None for weights of 0.
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
