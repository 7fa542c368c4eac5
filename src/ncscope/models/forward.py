"""Forward passes of a classifier: its inputs, its logits, and the features that its head reads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.networks.fixed_head import FixedSimplexHead
from ncscope.models.sharding import best_in_all_shards, is_sharded

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
    if isinstance(inputs, tuple | list):
        return model(*inputs)
    return model(inputs)


def logits_of(output: object) -> Float[Tensor, "b k"] | Float[Tensor, "b t k"]:
    """Return the logits in a model's output, with one row for each sample or for each token.

    Args:
        output: A tensor; a mapping or an object with ``logits``; or a tuple or list, whose
            first tensor is taken.

    Returns:
        Logits of shape B x K, after dropping dimensions of size one other than the batch; or of
        shape B x T x K.

    Raises:
        InputError: If the output has no logits, or logits of other dimensions.

    Example:
        >>> import torch
        >>> logits_of({"loss": None, "logits": torch.zeros(4, 3, 1, 1)}).shape
        torch.Size([4, 3])
        >>> logits_of(torch.zeros(4, 7, 3)).shape
        torch.Size([4, 7, 3])
    """
    logits = _find_logits(output)
    if logits is None:
        found = type(output).__name__
        if isinstance(output, Mapping):
            found += f" with keys {', '.join(map(str, output))}"
        expected = "a model that returns logits as a tensor, in a tuple or under the name 'logits'"
        raise InputError(expected=expected, found=found, fix="wrap the model to return its logits")
    if logits.ndim > 1 and logits.numel() == logits.shape[0] * max(logits.shape[1:]):
        return logits.flatten(1)
    if logits.ndim != 3:
        shape = "x".join(map(str, logits.shape)) or "a scalar"
        expected = "logits of shape batch x classes, or batch x tokens x classes"
        fix = "wrap the model to return one row of logits a sample"
        raise InputError(expected=expected, found=shape, fix=fix)
    return logits


def predicted_classes(logits: Tensor) -> Tensor:
    """Return the class of the greatest logit of each row; the first of equal ones.

    If the classes are sharded over processes (DTensor), the best logit and its class travel, not
    the logits; every process of the mesh must call this and gets all classes.

    Args:
        logits: Logits of shape B x K or B x T x K.

    Returns:
        Classes of shape B or B x T, int64.

    Example:
        >>> import torch
        >>> predicted_classes(torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 3.0]]))
        tensor([1, 0])
    """
    return best_in_all_shards(logits)


def undecided_rows(logits: Tensor, classes: Tensor) -> Tensor:
    """Return which rows have several equal greatest logits, or NaN.

    Args:
        logits: Logits of shape B x K or B x T x K. Of sharded ones (DTensor) no row is marked.
        classes: Class of the greatest logit of each row, as `predicted_classes` returns it.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 3.0], [torch.nan, 0.0, 1.0]])
        >>> undecided_rows(logits, predicted_classes(logits))
        tensor([False,  True,  True])
    """
    if is_sharded(logits):
        return torch.zeros_like(classes, dtype=torch.bool)
    best = logits.gather(-1, classes[..., None]).flatten(0, -2)
    blocks = zip(logits.flatten(0, -2).split(_ROWS), best.split(_ROWS), strict=True)
    return torch.cat([(rows == top).sum(-1) != 1 for rows, top in blocks]).view(classes.shape)


def first_tensor(value: object) -> Tensor | None:
    """Return the first tensor in a nested value, depth first; None if there is none.

    Example:
        >>> import torch
        >>> first_tensor((None, [torch.tensor(3), torch.tensor(4)]))
        tensor(3)
    """
    return next(tensors_in(value), None)


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors in a nested value, depth first.

    Example:
        >>> import torch
        >>> list(tensors_in((None, {"a": [torch.tensor(3)], "b": torch.tensor(4)})))
        [tensor(3), tensor(4)]
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value:
            yield from tensors_in(item)


def _find_logits(output: object) -> Tensor | None:
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor) or isinstance(output, Mapping):
        return named
    return first_tensor(output)


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
