"""Block matrices behind theorem 5.2 (VCI appendix A.3)."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope_lab.theory.search import integer, magnitude, normal
from ncscope_lab.theory.statement import Statement
from ncscope_lab.theory.vci_features import draw_mixture

TOLERANCE = 1e-9


def schur_complement(
    a: Float[Tensor, "p p"],
    b: Float[Tensor, "p q"],
    c: Float[Tensor, "q p"],
    d: Float[Tensor, "q q"],
) -> Float[Tensor, "p p"]:
    r"""$A-BD^{-1}C$."""
    return a - b @ torch.linalg.solve(d, c)


def block_inverse(
    a: Float[Tensor, "p p"],
    b: Float[Tensor, "p q"],
    c: Float[Tensor, "q p"],
    d: Float[Tensor, "q q"],
) -> Float[Tensor, "r r"]:
    r"""VCI (12), with $S=A-BD^{-1}C$: the inverse of $[A,B;C,D]$ for invertible D."""
    inner, corner = torch.linalg.inv(schur_complement(a, b, c, d)), torch.linalg.inv(d)
    right, below = -inner @ b @ corner, -corner @ c @ inner
    last = corner - below @ b @ corner
    return torch.cat([torch.cat([inner, right], 1), torch.cat([below, last], 1)])


def inverse(generator: torch.Generator) -> Iterator[float]:
    r"""VCI lemma A.1; A = 0 is among the instances, with $S=-BC$ and D = I."""
    for start in range(40):
        p, q = integer(1, 4, generator), integer(4, 6, generator)
        b = draw_mixture(q, p, generator).mT
        d = torch.eye(q, dtype=torch.float64) if start % 4 == 0 else draw_mixture(q, q, generator)
        c = b.mT if start % 4 == 0 else normal(q, p, generator=generator)
        a = b @ torch.linalg.solve(d, c) + draw_mixture(p, p, generator)
        a = 0 * a if start % 4 == 0 else a
        whole = torch.cat([torch.cat([a, b], 1), torch.cat([c, d], 1)])
        product = whole @ block_inverse(a, b, c, d)
        yield float((product - torch.eye(p + q, dtype=torch.float64)).abs().max())


def positive_complement(generator: torch.Generator) -> Iterator[float]:
    r"""VCI lemma A.2, relative to $\lVert A\rVert_F$; the instances include near-singular ones."""
    for start in range(40):
        p, q = integer(1, 4, generator), integer(1, 4, generator)
        root = magnitude(-3, 3, generator) * draw_mixture(p + q, p + q, generator)
        whole = root @ root.mT
        values, vectors = torch.linalg.eigh(whole)
        values[0] *= 1e-11 if start % 2 == 0 else 1
        whole = vectors * values @ vectors.mT
        a, b, c, d = _blocks(whole, p)
        least = torch.linalg.eigvalsh(schur_complement(a, b, c, d))[0]
        yield max(-float(least / a.norm()), 0.0)


def trace_as_printed(generator: torch.Generator) -> Iterator[float]:
    r"""A.3: $V_1-V_2^\top V_3^{-1}V_2$, which is defined only if $r=2r_1$."""
    for _ in range(20):
        p = integer(2, 4, generator)
        whole, spectrum = _make_dominant(p, p, generator)
        a, b, c, d = _blocks(whole, p)
        yield _trace_gap(whole, spectrum, schur_complement(a, c, b, d))


def trace_as_meant(generator: torch.Generator) -> Iterator[float]:
    r"""A.3 with $S=V_1-V_2V_3^{-1}V_2^\top$, and $S\succeq\Sigma_1$."""
    for _ in range(40):
        p, q = integer(1, 4, generator), integer(1, 4, generator)
        whole, spectrum = _make_dominant(p, q, generator)
        inner = schur_complement(*_blocks(whole, p))
        yield _trace_gap(whole, spectrum, inner)
        least = torch.linalg.eigvalsh(inner - torch.diag(spectrum))[0]
        yield max(-float(least / inner.norm()), 0.0)


def _trace_gap(
    whole: Float[Tensor, "r r"], spectrum: Float[Tensor, " p"], inner: Float[Tensor, "p p"]
) -> float:
    """Return |Tr[inv(V) diag(Sigma_1, 0)] - Tr[inv(inner) Sigma_1]| relative to r1."""
    r1 = len(spectrum)
    left = torch.linalg.inv(whole).diagonal()[:r1] @ spectrum
    return float((left - torch.linalg.inv(inner).diagonal() @ spectrum).abs()) / r1


def _make_dominant(
    p: int, q: int, generator: torch.Generator
) -> tuple[Float[Tensor, "r r"], Float[Tensor, " p"]]:
    r"""$V=\operatorname{diag}(\Sigma_1,0)+R$; R of least rank, with $S=\Sigma_1$, or of larger."""
    spectrum = 10 ** (2 * torch.rand(p, dtype=torch.float64, generator=generator) - 1)
    more = integer(0, p, generator)
    upper = normal(p, q + more, generator=generator)
    lower = torch.nn.functional.pad(draw_mixture(q, q, generator), (0, more))
    root = torch.cat([upper, lower])
    return torch.diag(torch.nn.functional.pad(spectrum, (0, q))) + root @ root.mT, spectrum


def _blocks(whole: Float[Tensor, "r r"], p: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return whole[:p, :p], whole[:p, p:], whole[p:, :p], whole[p:, p:]


STATEMENTS = (
    Statement(
        id="vci/theorem-5.2-proof",
        statement=(
            "Tr[inv(V) diag(Sigma_1, 0)] = Tr[inv(V1 - V2' inv(V3) V2) Sigma_1]"
            "; corrected: V1 - V2 inv(V3) V2', which is >= Sigma_1 as a quadratic form."
        ),
        source="VCI A.3",
        tolerance=TOLERANCE,
        printed=trace_as_printed,
        corrected=trace_as_meant,
        grade="slip",
    ),
    Statement(
        id="vci/lemma-A.1",
        statement="If [A, B; C, D] and D are invertible, so is A - B inv(D) C, and (12) holds.",
        source="VCI lemma A.1 and (12)",
        tolerance=TOLERANCE,
        printed=inverse,
    ),
    Statement(
        id="vci/lemma-A.2",
        statement="If [A, B; B', C] is positive definite, so is A - B inv(C) B'.",
        source="VCI lemma A.2",
        tolerance=TOLERANCE,
        printed=positive_complement,
    ),
)
