"""The objective of training with few labels."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from ncscope.errors import InputError
from ncscope.models.forward import classifier, features_and_logits, logits_of
from ncscope_lab.training.loop import Objective
from ncscope_lab.training.objectives import feature_terms, objective
from ncscope_lab.training.semi_supervised.method import Method, Outputs
from ncscope_lab.training.semi_supervised.settings import FewLabels


def few_labels_objective(
    settings: FewLabels,
    method: Method | None,
    num_classes: int,
    device: torch.device,
    average: nn.Module | None = None,
) -> Objective:
    """Return the objective: the loss of the method, plus the information terms.

    A batch holds weak views of labelled images, the method's views of unlabelled images, the
    indices of the unlabelled images, and labels; for supervised training it holds weak views and
    labels. All views pass through the network together, so the batch norms use joint statistics, as
    in public code; but those that a teacher reads pass through the teacher. The information
    terms are those of INFO 6.2, computed from the trusted unlabelled images and the classifier's
    rows of their pseudo-labels. With several processes, each process computes the fairness and
    information terms from its share of the batch.

    Args:
        settings: Settings of the run.
        method: Method for unlabelled images, whose state each call updates; None if supervised.
        num_classes: Number of classes of the data.
        device: Device of the run.
        average: Moving average of the network, for a method that takes it as teacher.

    Raises:
        InputError: If the method needs the moving average and there is none.
    """
    if method is None:
        return objective(settings, num_classes, device)
    teacher = _teacher(method, average)
    half = settings.optimisation.precision == "bf16-mixed"
    terms = feature_terms(settings)

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        few, *views, images, labels = batch
        read = [few, *(views if teacher is None else views[1:])]
        sizes = [len(view) for view in read]
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            features, logits = features_and_logits(model, torch.cat(read))
            taught = None if teacher is None else _teach(teacher, views[0])
        labelled, *unlabelled = logits.float().split(sizes)
        target = unlabelled[0].detach() if taught is None else taught.float()
        step = method(Outputs(labelled, labels, target, unlabelled[-1], images))
        total = step.loss
        own = features.split(sizes)[1 if settings.information_view == "weak" else -1]
        for term in terms:
            chosen = own[step.trusted], step.labels[step.trusted]
            total = total + term(*chosen, classifier(model).weight)
        return total

    return loss


def _teacher(method: Method, average: nn.Module | None) -> nn.Module | None:
    if not method.averaged_teacher:
        return None
    if average is None:
        raise InputError(
            expected="a moving average of the network, to be its teacher",
            found="none",
            fix="set optimisation.average",
        )
    return average


@torch.no_grad()
def _teach(teacher: nn.Module, views: Tensor) -> Float[Tensor, "n k"]:
    """Return the teacher's logits by statistics of the batch; its running statistics stay."""
    teacher.train()
    # Batch norms in training mode write to their buffers, which here are copies.
    copies = {name: buffer.clone() for name, buffer in teacher.named_buffers()}
    return logits_of(functional_call(teacher, copies, (views,)))
