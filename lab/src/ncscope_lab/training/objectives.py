"""Objectives for the training loop, built from the settings."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torchvision.transforms import v2

from ncscope.data.draws import seed_global_generator
from ncscope.errors import InputError
from ncscope.losses import (
    head_entropy_difference,
    head_mutual_information,
    squared_error,
    within_class_cosine,
)
from ncscope.models.forward import classifier, features_and_logits
from ncscope_lab.training.loop import Objective
from ncscope_lab.training.settings import Training

Term = Callable[[Float[Tensor, "b d"], Int[Tensor, " b"], Tensor], Tensor]
"""Loss term that is computed from features, labels and the classifier's weight of a batch."""


def objective(settings: Training, num_classes: int, device: torch.device) -> Objective:
    """Return the objective of the settings for batches (images, labels).

    With several processes, each process computes the feature terms from its share of the batch;
    ``cosine_group`` makes the cosine term independent of the number of processes.

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
            images, targets = mix_images(images, targets, num_classes, *draw)
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
        terms.append(lambda *batch: -settings.mutual_information * head_mutual_information(*batch))
    if settings.entropy_difference:
        terms.append(lambda *batch: settings.entropy_difference * head_entropy_difference(*batch))
    if settings.within_class_cosine:

        def cosine(features: Tensor, labels: Tensor) -> Tensor:
            return settings.within_class_cosine * within_class_cosine(features, labels)

        size = settings.cosine_group
        terms.append(lambda features, labels, weight: _in_groups(cosine, features, labels, size))
    return terms


def _in_groups(
    term: Callable[[Tensor, Tensor], Tensor],
    features: Float[Tensor, "b d"],
    labels: Int[Tensor, " b"],
    size: int | None,
) -> Tensor:
    """Average a term over groups of a batch, so that the result does not depend on the devices.

    Args:
        term: Loss term of features and labels.
        features: Features of this process's batch.
        labels: Labels of the features.
        size: Images of a group; None for one group.
    """
    if size is None:
        return term(features, labels)
    if len(features) % size:
        expected = f"a batch of each process that divides into groups of {size} (cosine_group)"
        fix = "train with fewer devices, or change batch_size or cosine_group"
        raise InputError(expected=expected, found=f"{len(features)} images", fix=fix)
    groups = zip(features.split(size), labels.split(size), strict=True)
    return torch.stack([term(*group) for group in groups]).mean()


def _criterion(settings: Training) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of the logits."""
    if settings.loss == "mse":
        return squared_error
    smoothed = nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
    if settings.temperature == 1:
        return smoothed
    return lambda logits, targets: smoothed(logits / settings.temperature, targets)


_MIXUP_ALPHA, _CUTMIX_ALPHA = 0.8, 1.0


def mix_images(
    images: Float[Tensor, "b c h w"],
    labels: Int[Tensor, " b"],
    num_classes: int,
    seed: int,
    step: int,
) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b k"]]:
    """Mix each image with its neighbour in the batch, by MixUp or CutMix with probability 1/2 each.

    Source: VCI 6.1, which refers to the recipe of DeiT; the parameters of the Beta distributions
    are 0.8 for MixUp and 1.0 for CutMix.

    Args:
        images: Batch of images, on any device.
        labels: Labels of the images.
        num_classes: $K$.
        seed: Seed of the run.
        step: Step of the run; seed and step determine the mixture.

    Returns:
        Mixed images, and the class shares of each image.

    Example:
        >>> import torch
        >>> batch = torch.rand(4, 3, 8, 8)
        >>> images, shares = mix_images(batch, torch.arange(4), num_classes=4, seed=0, step=5)
        >>> shares.sum(1)
        tensor([1., 1., 1., 1.])
    """
    either = v2.RandomChoice(
        [
            v2.MixUp(alpha=_MIXUP_ALPHA, num_classes=num_classes),
            v2.CutMix(alpha=_CUTMIX_ALPHA, num_classes=num_classes),
        ]
    )
    with seed_global_generator(seed, step):
        images, shares = either(images, labels)
    return images, shares
