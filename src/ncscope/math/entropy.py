r"""Spectral (von Neumann) entropy: exact from a matrix or a factor, estimated from products.

For a positive semi-definite matrix $A$ of any trace, with eigenvalues $\lambda_j$,
$H(A)=-\sum_j p_j\log p_j$, $p_j=\lambda_j/\operatorname{tr}A$, natural logarithm, $0\log0=0$.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_PROBES_AT_ONCE = 8
_MOST_PROBES = 4096
_OVERSAMPLED = 8
_WIDEST_SKETCH = 128
_FIRST_DEPTH = 4
_BRACKET_SHARE = 0.2


@dataclass(frozen=True)
class EntropyEstimate:
    """An entropy with its standard error.

    Attributes:
        mean: Entropy in nats.
        standard_error: Standard error of the mean over probes, combined with half the bracket of
            the quadrature; 0 if the value is exact.
        probes: Number of random probes; 0 if the value is exact.
        depth: Number of Lanczos steps; 0 if the value is exact.
        size: Number of rows of the matrix.
    """

    mean: float
    standard_error: float
    probes: int
    depth: int
    size: int


def entropy_of_spectrum(values: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    r"""$-\sum_jp_j\log p_j$ of eigenvalues scaled to sum to one.

    Values below $\epsilon\,m\,\lambda_{max}$, of either sign, are rounding noise and count as 0.

    Example:
        >>> entropy_of_spectrum(torch.tensor([1.0, 1.0, 0.0]).double()).exp().item()
        2.0
    """
    if len(values) == 0:  # all vectors are zero
        return values.sum() * torch.nan
    cut = torch.finfo(values.dtype).eps * len(values) * values.max()
    share = values[values > cut]
    share = share / share.sum()
    return -(share * share.log()).sum().clamp(max=0)


def spectral_entropy(matrix: Float[Tensor, "m m"]) -> Float[Tensor, ""]:
    r"""$H$ of a symmetric positive semi-definite matrix.

    Range $[0,\log m]$; 0: rank one. Cost: the eigenvalues of an m x m matrix.

    Example:
        >>> spectral_entropy(torch.eye(4).double()).exp().item()
        4.0
    """
    return entropy_of_spectrum(torch.linalg.eigvalsh(matrix))


def gram_entropy(rows: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """Compute the entropy of the rows' Gram matrix, from the smaller of its two forms."""
    n, d = rows.shape
    return spectral_entropy(rows @ rows.mT if n <= d else rows.mT @ rows)


def estimated_entropy(
    product: Callable[[Float[Tensor, "m b"]], Float[Tensor, "m b"]],
    size: int,
    trace: float,
    standard_error: float,
    generator: torch.Generator,
    dominant: int = 24,
    largest: float = 1.0,
) -> EntropyEstimate:
    r"""Estimate $H$ of a matrix given by its products, by stochastic Lanczos quadrature.

    $H=\operatorname{tr}f(A/\operatorname{tr}A)$ with $f(x)=-x\log x$. The trace over the range $Q$
    of a random sketch $A\Omega$ is computed exactly, the rest is the mean of
    $z^\top Pf(A/\operatorname{tr}A)Pz$ over random signs $z$, $P=I-QQ^\top$. Collapsed features
    have few large eigenvalues, which the sketch contains. There is no sketch if the contribution of
    every single eigenvalue to $H$ is below the requested error: the probes then average over many
    small contributions. Each quadratic form is computed by the Lanczos method. Because the even
    derivatives of $f$ are negative and the odd ones from the third on positive, Gauss quadrature is
    an upper bound and Gauss-Radau quadrature with a node at 0 a lower bound. The depth grows until
    the bounds differ by a share of the requested error, and probes are added until the standard
    error is reached. Sources: Ubaru, Chen, Saad 2017 (quadrature); Golub, Meurant 2010, chapter 6
    (bounds); Meyer, Musco, Musco, Woodruff 2021 (sketch).

    Args:
        product: $V\mapsto AV$ on m x b blocks of vectors, $A$ symmetric positive semi-definite.
        size: m.
        trace: $\operatorname{tr}A$.
        standard_error: Standard error to reach, in nats.
        generator: Source of the probes, on the device of the products.
        dominant: Approximate number of large eigenvalues; the sketch contains up to 120.
        largest: Upper bound on the largest eigenvalue, as a share of the trace.

    Returns:
        The estimate; its error includes half of the quadrature's bracket. If 4,096 probes do not
        reach the requested error, the error of the estimate is larger.

    Example:
        >>> values = torch.linspace(0, 1, 400).double()
        >>> seeded = torch.Generator().manual_seed(0)
        >>> found = estimated_entropy(
        ...     lambda v: values[:, None] * v, 400, values.sum().item(), 0.02, seeded
        ... )
        >>> abs(found.mean - entropy_of_spectrum(values).item()) < 3 * found.standard_error
        True
    """

    def scaled(block: Float[Tensor, "m b"]) -> Float[Tensor, "m b"]:
        return product(block) / trace

    sketch = torch.zeros(size, 0, dtype=torch.float64, device=generator.device)
    depth, head, missed = 1, _Bracket(0.0, 0.0), _share_of_entropy(largest)
    if missed > standard_error:
        missed = 0.0
        width = min(dominant + _OVERSAMPLED, _WIDEST_SKETCH, size)
        sketch = torch.linalg.qr(scaled(_signs(size, width, generator)))[0]
        depth, high, low = _deep_enough(scaled, sketch, 1, standard_error / sketch.shape[1])
        head = _Bracket(float(high.sum()), float(low.sum()))
    upper: list[float] = []
    lower: list[float] = []
    while True:
        # Without the part in the sketch, whose trace is exact, the probes vary less.
        probes = _signs(size, _PROBES_AT_ONCE, generator)
        probes -= sketch @ (sketch.mT @ probes)
        depth, high, low = _deep_enough(scaled, probes, depth, standard_error)
        upper += high.tolist()
        lower += low.tolist()
        estimate = _estimate(head, upper, lower, missed, depth, size)
        if estimate.standard_error <= standard_error or len(upper) >= _MOST_PROBES:
            return estimate


def _share_of_entropy(largest: float) -> float:
    r"""Return the maximum of $-p\log p$ over p up to the largest."""
    p = min(largest, math.exp(-1))
    return -p * math.log(p) if p > 0 else 0.0


class _Bracket(NamedTuple):
    """Upper and lower bound of a quantity."""

    high: float
    low: float


def _estimate(
    head: _Bracket, upper: list[float], lower: list[float], missed: float, depth: int, size: int
) -> EntropyEstimate:
    """Average over the probes.

    The error has three parts: the sampling error, with the variance of Student's distribution for
    few probes; the contribution of one eigenvalue that the spread of the probes does not show,
    because all probes happen to meet it alike; and half of the bracket.
    """
    high = torch.tensor(upper, dtype=torch.float64)
    low = torch.tensor(lower, dtype=torch.float64)
    middle = (high + low) / 2
    probes = len(middle)
    sampling = middle.std() * ((probes - 1) / (probes - 3) / probes) ** 0.5
    alike = torch.tensor(missed * (2 / probes) ** 0.5, dtype=torch.float64)
    width = (head.high - head.low + (high - low).mean()) / 2
    mean = (head.high + head.low) / 2 + middle.mean()
    error = torch.stack([sampling, alike, width]).norm()
    return EntropyEstimate(float(mean), float(error), probes, depth, size)


def _deep_enough(
    product: Callable[[Float[Tensor, "m b"]], Float[Tensor, "m b"]],
    vectors: Float[Tensor, "m b"],
    depth: int,
    standard_error: float,
) -> tuple[int, Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Increase the depth until the bracket is a small share of the error; return both."""
    lanczos = _Lanczos(product, vectors)
    depth = min(max(depth, _FIRST_DEPTH), len(vectors))
    high, low = lanczos.bracket(depth)
    while float((high - low).mean()) > _BRACKET_SHARE * standard_error and depth < len(vectors):
        depth = min(depth + depth // 4, len(vectors))
        high, low = lanczos.bracket(depth)
    return depth, high, low


def _signs(size: int, width: int, generator: torch.Generator) -> Float[Tensor, "m b"]:
    shape, device = (size, width), generator.device
    return 2.0 * torch.randint(0, 2, shape, generator=generator, device=device).double() - 1


class _Lanczos:
    """Lanczos recursions for the vectors of a block, each of which keeps two vectors.

    There is no reorthogonalisation. Converged Ritz values then occur several times, but share their
    weight, so the quadrature stays accurate (Greenbaum 1989). The memory does not grow with the
    depth.
    """

    def __init__(
        self,
        product: Callable[[Float[Tensor, "m b"]], Float[Tensor, "m b"]],
        vectors: Float[Tensor, "m b"],
    ) -> None:
        self.product = product
        self.weight = vectors.square().sum(0)
        length = self.weight.sqrt()
        self.vector = vectors / torch.where(length > 0, length, 1.0)
        self.before = torch.zeros_like(vectors)
        self.diagonal: list[Float[Tensor, " b"]] = []
        self.beside = [torch.zeros_like(length)]

    def bracket(self, depth: int) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
        """Return upper and lower bounds of each vector's quadratic form, after given steps."""
        while len(self.diagonal) < depth:
            self._step()
        diagonal, beside = torch.stack(self.diagonal, 1), torch.stack(self.beside[1:], 1)
        gauss = _quadrature(diagonal, beside[:, :-1])
        radau = _quadrature(*_with_node_at_zero(diagonal, beside))
        return self.weight * gauss, self.weight * radau

    def _step(self) -> None:
        image = self.product(self.vector)
        self.diagonal.append((self.vector * image).sum(0))
        image -= self.diagonal[-1] * self.vector + self.beside[-1] * self.before
        coupling = torch.linalg.vector_norm(image, dim=0)
        self.beside.append(coupling)
        self.before, self.vector = self.vector, image / torch.where(coupling > 0, coupling, 1.0)


def _with_node_at_zero(
    diagonal: Float[Tensor, "b k"], beside: Float[Tensor, "b k"]
) -> tuple[Float[Tensor, "b k+1"], Float[Tensor, "b k"]]:
    r"""Extend the Jacobi matrix by one row so that 0 is among its eigenvalues.

    The new diagonal entry is $\beta_k^2e_k^\top T_k^{-1}e_k$ (Golub and Meurant 2010, section
    6.2), computed by the recursion of the last pivot. If the Krylov space is exhausted, the new row
    is zero.
    """
    pivot = diagonal[:, 0]
    for step in range(1, diagonal.shape[1]):
        ratio = torch.where(pivot > 0, beside[:, step - 1].square() / pivot, 0.0)
        pivot = diagonal[:, step] - ratio
    last = torch.where(pivot > 0, beside[:, -1].square() / pivot, 0.0)
    return torch.cat([diagonal, last[:, None]], 1), beside


def _quadrature(
    diagonal: Float[Tensor, "b k"], beside: Float[Tensor, "b k-1"]
) -> Float[Tensor, " b"]:
    r"""Compute $e_1^\top f(T)e_1$ of each Jacobi matrix, $f(x)=-x\log x$."""
    jacobi = torch.diag_embed(diagonal)
    jacobi = jacobi + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    values, vectors = torch.linalg.eigh(jacobi)
    values = values.clamp(min=0)  # below 0 by rounding alone; the logarithm would be NaN
    terms = -torch.xlogy(values, values)
    return (vectors[:, 0, :].square() * terms).sum(1)
