"""Class moments as one vector, which can be sent, stacked and merged."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import Precision, Prior, Statistic


@dataclass(frozen=True)
class Packing:
    """Layout of class moments in a vector of float64.

    Counts are integers below 2^53, which float64 holds exactly.

    Attributes:
        num_classes: Number of classes k.
        dim: Feature dimension d.
        statistics: Statistics accumulated besides counts, means and traces.
        prior: Class prior.
        precision: Precision with which the moments are updated.

    Example:
        >>> packing = Packing(num_classes=2, dim=1, statistics=frozenset())
        >>> one, other = packing.empty(), packing.empty()
        >>> one.update([[1.0], [3.0]], [0, 0])
        >>> other.update([[5.0]], [0])
        >>> stack = torch.stack([packing.packed(one), packing.packed(other)])
        >>> packing.unpacked(packing.merged(stack)).means[0].item()
        3.0
    """

    num_classes: int
    dim: int
    statistics: frozenset[Statistic]
    prior: Prior = "empirical"
    precision: Precision = "float64"

    def empty(self, device: torch.device | str = "cpu") -> ClassMoments:
        """Return moments without samples."""
        return ClassMoments(
            self.num_classes,
            self.dim,
            statistics=self.statistics,
            prior=self.prior,
            precision=self.precision,
            device=device,
        )

    def packed(self, moments: ClassMoments) -> Float[Tensor, " s"]:
        """Concatenate the state of the moments to one vector."""
        state = moments.state_dict()
        return torch.cat([value.flatten().to(torch.float64) for value in state.values()])

    def unpacked(self, vector: Float[Tensor, " s"]) -> ClassMoments:
        """Return new moments with the state that a vector holds."""
        moments = self.empty(vector.device)
        shapes = {name: value.shape for name, value in moments.state_dict().items()}
        parts = vector.split([shape.numel() for shape in shapes.values()])
        state = zip(shapes.items(), parts, strict=True)
        moments.load_state_dict({name: part.view(shape) for (name, shape), part in state})
        return moments

    def merged(self, vectors: Float[Tensor, "m s"]) -> Float[Tensor, " s"]:
        """Merge the states of several accumulators to the state of all their samples."""
        first, *others = [self.unpacked(vector) for vector in vectors]
        for other in others:
            first.merge(other)
        return self.packed(first)
