"""Interface of every surrogate model: an objective over a few matrices, and its levels and head."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

Point = tuple[Float[Tensor, "..."], ...]
"""One matrix for each of a problem's names, float64. Features are d x N, a sample a column."""


@dataclass(frozen=True)
class Minimiser:
    """A global minimiser in closed form.

    Attributes:
        point: One of them; all others differ by the problem's symmetries.
        objective: The minimum, from its formula and not from the point.
    """

    point: Point
    objective: float


class Problem(ABC):
    """An objective to be minimised over a few matrices.

    Samples come class by class, n of each of K classes, N = Kn.

    Attributes:
        names: Names of the matrices of a point, in order.
        num_classes: K.
        per_class: n.
    """

    names: tuple[str, ...]
    num_classes: int
    per_class: int

    @abstractmethod
    def objective(self, point: Point) -> Float[Tensor, ""]:
        """Compute the objective; autograd can differentiate it."""

    @abstractmethod
    def gradient(self, point: Point) -> Point:
        """Compute autograd's gradient of `objective`, at the cost of the products alone."""

    @abstractmethod
    def start(self, generator: torch.Generator) -> Point:
        """Draw a random start, distributed as in the paper's experiments."""

    @abstractmethod
    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """Features by the name of their level, shallow to deep; the last feed `head`."""

    @abstractmethod
    def head(self, point: Point) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"] | None]:
        """Return the classifier on the last level: weight, and bias if there is one."""

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """The class of every column of the features."""
        return torch.arange(self.num_classes).repeat_interleave(self.per_class)
