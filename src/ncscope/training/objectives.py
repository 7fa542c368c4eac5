"""The losses that settings ask for, as the loop takes them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ncscope.losses import squared_error
from ncscope.training.data.mixing import mixed
from ncscope.training.loop import Objective
from ncscope.training.settings import Training


def objective(settings: Training, num_classes: int, device: torch.device) -> Objective:
    """The loss that the settings ask for, of batches (images, labels).

    Args:
        settings: Of the run.
        num_classes: Of the data.
        device: Where it runs.
    """
    half = settings.optimisation.precision == "bf16-mixed"
    smoothing = settings.label_smoothing
    cross_entropy = nn.CrossEntropyLoss(label_smoothing=smoothing)
    criterion = squared_error if settings.loss == "mse" else cross_entropy

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        images, targets = batch
        if settings.mixing:
            # The loop has seeded torch for this batch alone.
            draw = settings.seed, torch.initial_seed()
            images, targets = mixed(images, targets, num_classes, *draw)
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            logits = model(images)
        return criterion(logits.float(), targets)

    return loss
