"""Classifier whose weight is a fixed simplex and is not trained."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.math.frames import simplex_etf


class SimplexHead(nn.Module):
    r"""Linear classifier whose rows are a fixed simplex equiangular tight frame, without bias.

    $WW^\top=\frac{K}{K-1}(I-\frac1K\mathbf1\mathbf1^\top)$: rows of norm 1 that sum to zero.

    Source: Zhu et al. 2021, who fix the classifier at its limit under collapse and lose no
    accuracy. The weight is a buffer: it is saved and moved with the model, but optimisers do not
    change it.

    Args:
        in_features: Dimension d of the features, at least K - 1.
        num_classes: Number of classes K, at least 2.
        generator: Generator of the frame's orientation, a random rotation. Without a rotation the
            frame would lie along the first K - 1 axes, and the other features would have no effect.

    Raises:
        InputError: If the frame does not fit into d dimensions, or K is below 2.

    Example:
        >>> head = SimplexHead(8, 3, torch.Generator().manual_seed(0))
        >>> (head.weight @ head.weight.T).allclose(1.5 * torch.eye(3) - 0.5, atol=1e-6)
        True
        >>> list(head.parameters())
        []
    """

    weight: Tensor

    def __init__(self, in_features: int, num_classes: int, generator: torch.Generator) -> None:
        super().__init__()
        frame = simplex_etf(num_classes, in_features, generator)
        self.register_buffer("weight", frame.to(torch.get_default_dtype()))

    def forward(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b k"]:
        """Compute the inner products of the features with the frame's vectors."""
        return nn.functional.linear(x, self.weight)

    def extra_repr(self) -> str:
        """Return the sizes as ``nn.Linear`` prints them."""
        out_features, in_features = self.weight.shape
        return f"in_features={in_features}, out_features={out_features}"
