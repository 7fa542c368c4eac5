r"""Spectral (von Neumann) entropy: exact from a matrix or a factor, estimated from products.

For a positive semi-definite matrix $A$ of any trace, with eigenvalues $\lambda_j$,
$H(A)=-\sum_j p_j\log p_j$, $p_j=\lambda_j/\operatorname{tr}A$, natural logarithm, $0\log0=0$.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

_PROBES_AT_ONCE = 8
_MOST_PROBES = 4096
_OVERSAMPLING = 8
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
    r"""Compute $-\sum_jp_j\log p_j$ of eigenvalues scaled to sum to one.

    Values below $\epsilon\,m\,\lambda_{max}$, of either sign, are rounding noise and count as 0.

    Example:
        >>> entropy_of_spectrum(torch.tensor([1.0, 1.0, 0.0]).double()).exp().item()
        2.0
    """
    if len(values) == 0:  # all vectors are zero
        return values.sum() * torch.nan
    # The rounding noise of thousands of eigenvalues would add up: -p log p is steep at 0.
    cut = torch.finfo(values.dtype).eps * len(values) * values.max()
    share = values[values > cut]
    share = share / share.sum()
    return -(share * share.log()).sum().clamp(max=0)


def spectral_entropy(matrix: Float[Tensor, "m m"]) -> Float[Tensor, ""]:
    r"""Compute $H$ of a symmetric positive semi-definite matrix.

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


def estimate_entropy(
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
        >>> estimate = estimate_entropy(
        ...     lambda v: values[:, None] * v, 400, values.sum().item(), 0.02, seeded
        ... )
        >>> abs(estimate.mean - entropy_of_spectrum(values).item()) < 3 * estimate.standard_error
        True
    """

    def multiply(block: Float[Tensor, "m b"]) -> Float[Tensor, "m b"]:
        return product(block) / trace

    sketch = torch.zeros(size, 0, dtype=torch.float64, device=generator.device)
    depth, head, alone = 1, (0.0, 0.0), largest_contribution(largest)
    if alone > standard_error:
        alone = 0.0  # the sketch has all eigenvalues that are large enough to matter alone
        width = min(dominant + _OVERSAMPLING, _WIDEST_SKETCH, size)
        sketch = torch.linalg.qr(multiply(_draw_signs(size, width, generator)))[0]
        # The brackets of all columns add up, so each gets its share of the error.
        depth, high, low = _bracket_forms(multiply, sketch, 1, standard_error / sketch.shape[1])
        head = float(high.sum()), float(low.sum())
    upper: list[float] = []
    lower: list[float] = []
    while True:
        # Without the part in the sketch, whose trace is exact, the probes vary less.
        probes = _draw_signs(size, _PROBES_AT_ONCE, generator)
        probes -= sketch @ (sketch.mT @ probes)
        depth, high, low = _bracket_forms(multiply, probes, depth, standard_error)
        upper += high.tolist()
        lower += low.tolist()
        mean, error = average_probes(head, upper, lower, alone)
        if error <= standard_error or len(upper) >= _MOST_PROBES:
            return EntropyEstimate(mean, error, len(upper), depth, size)


def largest_contribution(largest: float) -> float:
    r"""Return the maximum of $-p\log p$ over p from 0 to the largest share of an eigenvalue."""
    p = min(largest, math.exp(-1))  # from there on the function falls
    return -p * math.log(p) if p > 0 else 0.0


def average_probes(
    head: tuple[float, float], upper: list[float], lower: list[float], alone: float
) -> tuple[float, float]:
    """Average over the probes, and return the entropy and its error.

    The error has three parts: the sampling error, with the variance of Student's distribution for
    few probes; the contribution of one eigenvalue that the spread of the probes does not show,
    because all probes happen to meet it alike; and half of the bracket.

    Args:
        head: Upper and lower bound of the part in the sketch.
        upper: Upper bound of each probe.
        lower: Lower bound of each probe.
        alone: Largest contribution of one eigenvalue outside of the sketch.
    """
    high = torch.tensor(upper, dtype=torch.float64, device="cpu")
    low = torch.tensor(lower, dtype=torch.float64, device="cpu")
    middle = (high + low) / 2
    probes = len(middle)
    sampling = middle.std() * ((probes - 1) / (probes - 3) / probes) ** 0.5
    alike = torch.tensor(alone * (2 / probes) ** 0.5, dtype=torch.float64, device="cpu")
    width = (head[0] - head[1] + (high - low).mean()) / 2
    mean = (head[0] + head[1]) / 2 + middle.mean()
    return float(mean), float(torch.stack([sampling, alike, width]).norm())


def _bracket_forms(
    product: Callable[[Float[Tensor, "m b"]], Float[Tensor, "m b"]],
    vectors: Float[Tensor, "m b"],
    depth: int,
    standard_error: float,
) -> tuple[int, Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Bracket the quadratic form of each vector, as deep as the error needs.

    Args:
        product: Product with the matrix.
        vectors: One vector a column.
        depth: Number of Lanczos steps to begin with.
        standard_error: Error of which the mean width of the brackets is to be a small share.

    Returns:
        The depth reached, upper bounds and lower bounds.
    """
    lanczos = _Lanczos(product, vectors)
    depth = min(max(depth, _FIRST_DEPTH), len(vectors))
    high, low = lanczos.bracket(depth)
    while float((high - low).mean()) > _BRACKET_SHARE * standard_error and depth < len(vectors):
        depth = min(depth + depth // 4, len(vectors))
        high, low = lanczos.bracket(depth)
    return depth, high, low


def _draw_signs(size: int, width: int, generator: torch.Generator) -> Float[Tensor, "m b"]:
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
        """Return upper and lower bounds of each vector's quadratic form, after so many steps."""
        while len(self.diagonal) < depth:
            self._step()
        diagonal, beside = torch.stack(self.diagonal, 1), torch.stack(self.beside[1:], 1)
        gauss = _quadrature(diagonal, beside[:, :-1])
        radau = _quadrature(_add_node_at_zero(diagonal, beside), beside)
        return self.weight * gauss, self.weight * radau

    def _step(self) -> None:
        image = self.product(self.vector)
        self.diagonal.append((self.vector * image).sum(0))
        image -= self.diagonal[-1] * self.vector + self.beside[-1] * self.before
        coupling = torch.linalg.vector_norm(image, dim=0)
        self.beside.append(coupling)
        # A coupling of 0 ends the Krylov space of its vector. The next vectors are 0, so the Jacobi
        # matrix gets zero rows, while the other vectors of the block go on.
        self.before, self.vector = self.vector, image / torch.where(coupling > 0, coupling, 1.0)


def _add_node_at_zero(
    diagonal: Float[Tensor, "b k"], beside: Float[Tensor, "b k"]
) -> Float[Tensor, "b k+1"]:
    r"""Extend the diagonal of the Jacobi matrix so that 0 is among its eigenvalues.

    The new entry is $\beta_k^2e_k^\top T_k^{-1}e_k$ (Golub and Meurant 2010, section 6.2), computed
    by the recursion of the last pivot. If the Krylov space is exhausted, the new row is zero.
    """
    pivot = diagonal[:, 0]
    for step in range(1, diagonal.shape[1]):
        # An exhausted Krylov space has pivots of 0, or of either sign by rounding, and couplings of
        # 0: 0 / 0 would spoil the value of its vector.
        ratio = torch.where(pivot > 0, beside[:, step - 1].square() / pivot, 0.0)
        pivot = diagonal[:, step] - ratio
    last = torch.where(pivot > 0, beside[:, -1].square() / pivot, 0.0)
    return torch.cat([diagonal, last[:, None]], 1)


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
