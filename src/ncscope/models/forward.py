"""Forward passes of a classifier: its inputs, its decisions, and what its head reads."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ncscope.models.networks.fixed_head import FixedSimplexHead
from ncscope.models.sharding import best_in_all_shards, is_sharded

LABEL_ARGUMENTS = ("labels", "label", "targets", "target", "y")
"""Names that models give to the argument for the labels."""

_ROWS = 1024
"""Rows of logits that are compared at once, so that the comparisons take little memory."""


def forward(model: nn.Module, inputs: object) -> Any:
    """Call a model on a batch in the form in which a loader yields it.

    Args:
        model: Any module.
        inputs: A tensor; a tuple or list, passed as positional arguments; or a mapping, passed as
            keyword arguments.

    Returns:
        Output of the model.

    Example:
        >>> import torch
        >>> forward(nn.Linear(3, 2), {"input": torch.ones(4, 3)}).shape
        torch.Size([4, 2])
    """
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, tuple | list) and not isinstance(inputs, PackedSequence):
        return model(*inputs)
    return model(inputs)


def predict_classes(logits: Tensor) -> Tensor:
    """Return the class of the greatest logit of each row; the first of equal ones.

    If the classes are sharded over processes (DTensor), the best logit and its class travel, not
    the logits; every process of the mesh must call this and gets all classes.

    Args:
        logits: Logits of shape B x K or B x T x K.

    Returns:
        Classes of shape B or B x T, int64.

    Example:
        >>> import torch
        >>> predict_classes(torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 3.0]]))
        tensor([1, 0])
    """
    return best_in_all_shards(logits)


def mark_ties(logits: Tensor, classes: Tensor) -> Tensor:
    """Return which rows have several equal greatest logits, or NaN.

    Args:
        logits: Logits of shape B x K or B x T x K. Of sharded ones (DTensor) no row is marked.
        classes: Class of the greatest logit of each row, as `predict_classes` returns it.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 3.0], [torch.nan, 0.0, 1.0]])
        >>> mark_ties(logits, predict_classes(logits))
        tensor([False,  True,  True])
    """
    if is_sharded(logits):
        return torch.zeros_like(classes, dtype=torch.bool)
    best = logits.gather(-1, classes[..., None]).flatten(0, -2)
    blocks = zip(logits.flatten(0, -2).split(_ROWS), best.split(_ROWS), strict=True)
    return torch.cat([(rows == top).sum(-1) != 1 for rows, top in blocks]).view(classes.shape)


def classifier(model: nn.Module) -> nn.Linear | FixedSimplexHead:
    """Return the classifier of a network of the catalogue: the last of its linear layers.

    Args:
        model: The network, possibly wrapped by Fabric or DDP.

    Example:
        >>> classifier(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
        Linear(in_features=3, out_features=2, bias=True)
    """
    kinds = (nn.Linear, FixedSimplexHead)
    return [module for module in model.modules() if isinstance(module, kinds)][-1]


def features_and_logits(
    model: nn.Module, inputs: Float[Tensor, "b ..."]
) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b k"]]:
    """Return the input and the output of the classifier, both part of the autograd graph.

    The model is called once, as a whole, so that DDP and autocast work as without this function:
    the features are in the precision in which the classifier received them.

    Args:
        model: A network of the catalogue, possibly wrapped by Fabric or DDP.
        inputs: A batch.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> features, logits = features_and_logits(model, torch.ones(5, 4))
        >>> torch.equal(model[2](features), logits)
        True
    """
    kept: list[Tensor] = []
    head = classifier(model)
    handle = head.register_forward_pre_hook(lambda module, args: kept.append(args[0]))
    try:
        logits = model(inputs)
    finally:
        handle.remove()
    (features,) = kept
    return features.flatten(1), logits
