"""Interface of every surrogate model, and the data of those whose features come from data."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

Point = tuple[Float[Tensor, "..."], ...]
"""One float64 matrix for each of a problem's names. Features are d x N, one sample per column."""


@dataclass(frozen=True)
class Minimiser:
    """A global minimiser in closed form.

    Attributes:
        point: One minimiser; all others differ from it by the problem's symmetries.
        objective: The minimum, computed from its formula and not from the point.
    """

    point: Point
    objective: float


class Problem(ABC):
    """An objective to be minimised over a few matrices.

    Samples are ordered by class, with n samples of each of K classes, N = Kn.

    Attributes:
        names: Names of the matrices of a point, in order.
        num_classes: K.
        per_class: n.
        add_product: Function that adds a product of matrices, or of stacks of them; see `stack`.
    """

    names: tuple[str, ...]
    num_classes: int
    per_class: int
    add_product: Callable[..., Tensor] = staticmethod(torch.addmm)

    @abstractmethod
    def objective(self, point: Point) -> Float[Tensor, ""]:
        """Compute the objective; autograd can differentiate it."""

    @abstractmethod
    def gradient(self, point: Point) -> Point:
        """Compute the gradient of `objective` from its formula, by matrix products only."""

    @abstractmethod
    def start(self, generator: torch.Generator) -> Point:
        """Draw a random start, distributed as in the paper's experiments."""

    @abstractmethod
    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """Return features by name of the level, from shallow to deep; the last enter `head`."""

    def head(self, point: Point) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"] | None]:
        """Return the classifier on the last level: weight, and bias or None."""
        return point[0], None

    def compact(self, start: Point) -> tuple["Problem", Point]:
        """Return an equivalent problem with fewer columns and its start, if the model has one."""
        return self, start

    def stack(self, others: Sequence["Problem"]) -> "Problem":
        """Return a problem whose gradient takes points that are stacked along a new first axis.

        One descent from a stack of starts takes a fraction of the time of a descent from each:
        matrices of these sizes are multiplied in less time than a call takes. The points are the
        same bit for bit, as the products of a stack are those of its matrices.

        Args:
            others: Problems that replace this one for each start, of equal sizes; for example those
                that `compact` returned.
        """
        whole = copy(self)
        whole.add_product = torch.baddbmm
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(whole, name, torch.stack([vars(other)[name] for other in others]))
        return whole

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """The class of every column of the features."""
        return torch.arange(self.num_classes).repeat_interleave(self.per_class)


def gaussian_classes(
    num_classes: int, per_class: int, dim: int, generator: torch.Generator
) -> Float[Tensor, "d n"]:
    r"""Draw standard normal data around means $\mu_k$ uniform on the unit sphere (PFC IV-B).

    Args:
        num_classes: K.
        per_class: n.
        dim: d.
        generator: Generator of the means and of the noise.

    Returns:
        Matrix with one sample per column, ordered by class.
    """
    means = torch.randn(num_classes, dim, dtype=torch.float64, generator=generator)
    means = means / torch.linalg.vector_norm(means, dim=1, keepdim=True)
    noise = torch.randn(dim, num_classes * per_class, dtype=torch.float64, generator=generator)
    return means.repeat_interleave(per_class, 0).mT + noise
