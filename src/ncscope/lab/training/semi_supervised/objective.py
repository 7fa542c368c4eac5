"""The objective of training with few labels."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ncscope.lab.training.loop import Objective
from ncscope.lab.training.objectives import feature_terms, objective
from ncscope.lab.training.semi_supervised.settings import FewLabels
from ncscope.lab.training.semi_supervised.thresholds import AdaptiveThresholds, Trust
from ncscope.losses.pseudo_labels import consistency_loss, fairness_loss
from ncscope.models.forward import classifier, features_and_logits


def few_labels_objective(
    settings: FewLabels, trust: Trust, num_classes: int, device: torch.device
) -> Objective:
    r"""$\mathcal L_s+\lambda_u\mathcal L_u+\lambda_f\mathcal L_f$ and the information terms.

    A batch holds weak views of labelled images, weak and strong views of unlabelled images, and
    labels; for supervised training it holds weak views and labels. All views pass through the
    network together, so the batch norms use joint statistics, as in public code. The information
    terms are those of INFO 6.2, computed from the trusted unlabelled images and the classifier's
    rows of their pseudo-labels. With several processes, each process computes the fairness and
    information terms from its share of the batch.

    Args:
        settings: Settings of the run.
        trust: Rule that decides which pseudo-labels to trust; it may update moving averages.
        num_classes: Number of classes of the data.
        device: Device of the run.
    """
    if settings.method == "supervised":
        return objective(settings, num_classes, device)
    half = settings.optimisation.precision == "bf16-mixed"
    terms = feature_terms(settings)

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        *views, labels = batch
        sizes = [len(view) for view in views]
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            features, logits = features_and_logits(model, torch.cat(views))
        labelled, weak, strong = logits.float().split(sizes)
        found = trust(weak.detach().softmax(dim=1))
        total = F.cross_entropy(labelled, labels)
        total = total + settings.unlabelled_weight * consistency_loss(strong, *found)
        if isinstance(trust, AdaptiveThresholds):
            total = total + settings.fairness_weight * fairness_loss(
                trust.probabilities, trust.histogram, strong.softmax(dim=1), found.trusted
            )
        own = features.split(sizes)[1 if settings.information_view == "weak" else 2]
        for term in terms:
            chosen = own[found.trusted], found.labels[found.trusted]
            total = total + term(*chosen, classifier(model).weight)
        return total

    return loss
