r"""Energy of residual blocks compared with their weights: the bound of PFC III-C.

For $v_l(x)=\sigma(W_lx)$ and bounded features the paper states $C\sum_l\lVert W_l\rVert_F^2\ge
\sum_l\lVert v_l\rVert_{L^2(\mu_l)}^2$ without a value of C. Its argument gives
$C=\max_{l,i}\lVert x_i^{(l)}\rVert^2$, because $\lVert\sigma(Wx)\rVert\le\lVert Wx\rVert\le\lVert
W\rVert_F\lVert x\rVert$. With the bias that our blocks have, the bound is that of the matrix
$[W,b]$ and the features $(x,1)$.

The constant depends on the features, and through them on the weights. There is none for blocks of
two or more layers: with both matrices scaled by s, the energy of two layers without bias grows like
$s^4$ and the decay like $s^2$. There is none either with batch normalisation, which makes the
energy independent of the scale.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.models.networks.residual import ResidualBlock


@dataclass(frozen=True)
class BlockEnergy:
    r"""Energy and weights of one residual block.

    Attributes:
        energy: Mean squared displacement of the samples,
            $\frac1n\sum_i\lVert h_i^{l+1}-h_i^l\rVert^2$.
        weights: Sum of squares of all weights and biases of the block that are decayed.
        bound: Constant $\max_i\lVert x_i\rVert^2+1$ that the argument for one layer gives; None for
            other blocks, which have no constant.
    """

    energy: float
    weights: float
    bound: float | None

    @property
    def constant(self) -> float:
        """Return the energy over the weights, the least constant for which the bound holds."""
        return self.energy / self.weights if self.weights > 0 else float("nan")


def block_energy(
    block: nn.Module, before: Float[Tensor, "n d"], after: Float[Tensor, "n d"]
) -> BlockEnergy:
    """Compare the energy of one block with its weights.

    Args:
        block: Residual block.
        before: Features that enter the block, flattened.
        after: Features that leave the block, flattened.
    """
    x, y = before.to(torch.float64), after.to(torch.float64)
    one_layer = isinstance(block, ResidualBlock)
    return BlockEnergy(
        energy=float((y - x).square().sum() / len(x)),
        weights=float(sum(each.detach().double().square().sum() for each in block.parameters())),
        bound=float(x.square().sum(1).max()) + 1 if one_layer else None,
    )
