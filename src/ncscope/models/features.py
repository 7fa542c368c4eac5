"""Features and logits of one forward pass, with their gradients, for losses that need both."""

from jaxtyping import Float
from torch import Tensor, nn

from ncscope.models.networks.fixed_head import FixedSimplexHead


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
