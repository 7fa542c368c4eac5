"""The fully connected residual network of PFC's table I."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.errors import InputError


class ResidualBlock(nn.Module):
    r"""One step of the forward dynamics, $x\mapsto x+\max(Wx+b,0)$.

    Source: PFC (3) with $v_l(\cdot)=\sigma(W_l\,\cdot)$, $\sigma$ the ReLU, as section III-C
    specifies for the optimal transport regularizer. Table I names no other block for the fully
    connected network. The bias is our addition; the paper has none.

    Args:
        width: Dimension of $x$.

    Example:
        >>> ResidualBlock(3)(torch.ones(2, 3)).shape
        torch.Size([2, 3])
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        r"""Return $x+\max(Wx+b,0)$."""
        return x + torch.relu(self.linear(x))


class ResidualNet(nn.Module):
    r"""Linear stem, residual blocks of equal width, linear classifier.

    Source: PFC table I and IV-A (MNIST: width 1000, 10 blocks), so that every layer's features
    have one dimension and PFC's path length and geodesic are defined on all of them. The
    outputs of ``stem`` and of the blocks are the paper's $H^0,\dots,H^L$; the last output is also
    the input of the classifier.

    Args:
        in_features: Number of entries of one input; inputs of any shape are flattened.
        width: Dimension of every layer's features.
        depth: Number of residual blocks.
        num_classes: Number of classes.
        bias: Give the classifier a bias if True; the other layers always have one.

    Raises:
        InputError: If a size is below 1.

    Example:
        >>> ResidualNet(64, 32, depth=3, num_classes=10)(torch.zeros(5, 1, 8, 8)).shape
        torch.Size([5, 10])
    """

    def __init__(
        self, in_features: int, width: int, depth: int, num_classes: int, bias: bool = True
    ) -> None:
        super().__init__()
        sizes = {
            "in_features": in_features,
            "width": width,
            "depth": depth,
            "num_classes": num_classes,
        }
        for name, size in sizes.items():
            if size < 1:
                raise InputError(
                    expected=f"{name} of at least 1", found=str(size), fix=f"pass a positive {name}"
                )
        self.stem = nn.Linear(in_features, width)
        self.blocks = nn.Sequential(*(ResidualBlock(width) for _ in range(depth)))
        self.classifier = nn.Linear(width, num_classes, bias=bias)

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b k"]:
        """Compute the logits of a batch of inputs, which are flattened first."""
        logits: Tensor = self.classifier(self.blocks(self.stem(x.flatten(1))))
        return logits
