"""Problems with a known end: a quadratic bowl of any curvatures, and Rosenbrock's valley."""

import torch
from torch import Tensor

from ncscope_lab.surrogates.problem import Point, Problem


class Bowl(Problem):
    """Half the sum of curvature times square, over two matrices."""

    names = ("A", "B")
    num_classes, per_class = 2, 1

    def __init__(self, curvature: Tensor, centre: float = 0.0) -> None:
        self.curvature, self.centre, self.evaluations = curvature, centre, 0

    def objective(self, point: Point) -> Tensor:
        self.evaluations += 1
        return sum(
            (self.curvature * (part - self.centre).square()).sum() / 2 for part in point
        ) + torch.zeros((), dtype=torch.float64)

    def gradient(self, point: Point) -> Point:
        return tuple(self.curvature * (part - self.centre) for part in point)

    def start(self, generator: torch.Generator) -> Point:
        shape = self.curvature.shape
        return tuple(torch.randn(shape, generator=generator).double() for _ in self.names)

    def levels(self, point: Point) -> dict[str, Tensor]:
        return {"B": point[1]}

    def head(self, point: Point) -> tuple[Tensor, None]:
        return point[0], None


class Valley(Bowl):
    """Rosenbrock's function of two numbers, the first from A and the second from B; 0 at (1, 1)."""

    def __init__(self) -> None:
        super().__init__(torch.ones(1, 1, dtype=torch.float64))

    def objective(self, point: Point) -> Tensor:
        x, y = point
        return ((1 - x).square() + 100 * (y - x * x).square()).sum()

    def gradient(self, point: Point) -> Point:
        x, y = point
        return (2 * (x - 1) - 400 * x * (y - x * x), 200 * (y - x * x))
