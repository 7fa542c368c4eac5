"""Landscape of the linear extended model, and the lemma that reduces it to nuclear norms.

Source: XUFM section 4.1, remark on the optimisation procedure, and lemma C.1. A part of
``xufm/extended``. Cost: 5 seconds on one core.

Expected: the remark does not hold for (23). All kinds of critical points of small models with
positive decays are examined, and no saddle is non-strict. Zero and the frames on some of the
classes are local minima instead, and they entangle descent: from a start ten times smaller than the
paper's it ends at zero. The remark is about products without decays, whose zero is a non-strict
saddle.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation
from ncscope.lab.report.rows import number, numbers, part_of
from ncscope.lab.runs.recipe import Part
from ncscope.lab.surrogates.critical_points import critical_point, critical_roots, hessian, kind
from ncscope.lab.surrogates.descent import gradient_descent
from ncscope.lab.surrogates.extended import ExtendedUFM
from ncscope.lab.surrogates.factorisation import (
    balanced_factors,
    cheapest_factors,
    factorisation_cost,
    nuclear_bound,
)
from ncscope.report.claims import Claim

CRITICAL, FACTORS, FAINT = "critical points", "factorisations", "faint starts"
FAINT_DEVIATION = 0.01
"""Standard deviation of a faint start, a tenth of the paper's."""
MODELS: tuple[tuple[int, int, int, tuple[float, ...], float], ...] = (
    (3, 3, 2, (0.02, 0.01), 0.03),
    (3, 4, 2, (0.05, 0.1), 0.08),
    (4, 2, 1, (0.02, 0.05), 0.03),
    (2, 3, 3, (0.02, 0.03, 0.01), 0.02),
)
"""K, d, n, decays of the weights and of the features. Zero is the minimum of none of them."""
PRODUCTS: tuple[tuple[int, int, int, int], ...] = ((4, 6, 3, 3), (4, 6, 4, 5), (3, 3, 2, 4))
"""Rows, columns and rank of a matrix to factorise, and the inner dimension of its factors."""
DECAYS = ((0.02, 0.5), (1.0, 1.0), (0.3, 0.004))
"""Decays of W and H in the factorisations."""
EXACT = 1e-9
"""Largest relative difference that counts as rounding."""
STATIONARY = 1e-12
"""Largest gradient of a critical point."""
AT_ZERO = 1e-6
"""Distance of the objective from its value at zero that counts as zero."""


def parts(problem: ExtendedUFM, rate: float, steps: int, starts: int) -> list[Part]:
    """Return critical points of small models, factorisations, and descents from faint starts.

    Args:
        problem: Linear model of the descents, which start at a tenth of its deviations.
        rate: Step size.
        steps: Steps of each descent.
        starts: Number of starts, with seeds 0, 1, and so on.
    """
    kinds = sum((q + 1) * (q + 2) // 2 for q in (min(k, d) for k, d, *_ in MODELS))
    return [
        Part(CRITICAL, kinds, lambda _: _critical_points()),
        Part(FACTORS, len(PRODUCTS) * len(DECAYS), lambda _: _factorisations()),
        Part(FAINT, starts, lambda _: _from_faint_starts(problem, rate, steps, starts)),
    ]


def _from_faint_starts(
    problem: ExtendedUFM, rate: float, steps: int, starts: int
) -> Iterator[Observation]:
    """Yield the last objective from each start, beside the minimum and the value at zero."""
    for seed in range(starts):
        start = problem.start(torch.Generator().manual_seed(seed))
        faint = tuple(FAINT_DEVIATION / 0.1 * part for part in start)
        compact, begin = problem.compact(faint)
        ((_, last),) = gradient_descent(compact, begin, rate, [steps])
        values = {
            "seed": seed,
            "objective": float(compact.objective(last)),
            "minimum": problem.collapsed_objective(),
        }
        yield Observation(steps, steps, values=values)


def _critical_points() -> Iterator[Observation]:
    """Yield one observation for each kind of critical point of each model."""
    step = 0
    for index, sizes in enumerate(MODELS):
        model = ExtendedUFM(*sizes)
        low, high = critical_roots(len(model.decays), model.load)
        most = min(model.num_classes, model.dim)
        for lower in range(most + 1):
            for upper in range(most + 1 - lower):
                products = [low] * lower + [high] * upper
                values = _at_critical_point(model, products)
                step += 1
                yield Observation(
                    step,
                    step,
                    layer=f"model {index}",
                    values={"low": lower, "high": upper, "most": most, **values},
                )


def _at_critical_point(model: ExtendedUFM, products: Sequence[float]) -> dict[str, float | str]:
    point = critical_point(model, products)
    curvature = hessian(model, point)
    slope = torch.cat([part.flatten() for part in model.gradient(point)])
    sizes = [part.numel() for part in point]
    decays = torch.tensor(model.decays, dtype=torch.float64)
    decays = decays.repeat_interleave(torch.tensor(sizes))
    return {
        "objective": float(model.objective(point)),
        "minimum": model.collapsed_objective(),
        "gradient_norm": float(slope.norm()),
        "least_curvature": float(torch.linalg.eigvalsh(curvature)[0]),
        "curvature_without_decays": float((curvature - torch.diag(decays)).abs().max()),
        "kind": kind(model, point),
    }


def _factorisations() -> Iterator[Observation]:
    """Yield the cheapest factors that a solver reaches, beside those of the lemma."""
    generator = torch.Generator().manual_seed(0)
    step = 0
    for rows, columns, rank, inner in PRODUCTS:
        left = torch.randn(rows, rank, dtype=torch.float64, generator=generator)
        right = torch.randn(rank, columns, dtype=torch.float64, generator=generator)
        product = left @ right
        for decays in DECAYS:
            step += 1
            values = _against_lemma(product, inner, decays, generator)
            yield Observation(step, step, values=values)


def _against_lemma(
    product: torch.Tensor, inner: int, decays: tuple[float, float], generator: torch.Generator
) -> dict[str, float]:
    weight, features = cheapest_factors(product, inner, *decays, generator)
    stated, other = balanced_factors(product, inner, *decays)
    bound = nuclear_bound(product, *decays)
    # Of the stated factors only the rotation R between them is free; the Gram matrices lack it.
    gram = (weight @ weight.mT - stated @ stated.mT).norm() / (stated @ stated.mT).norm()
    return {
        "bound": bound,
        "reached": float(factorisation_cost(weight, features, *decays)),
        "attained": float(factorisation_cost(stated, other, *decays)),
        "off_gram": float(gram),
    }


def claims(rows: Sequence[Observation]) -> list[Claim]:
    """Test the remark on saddles with its correction, and lemma C.1."""
    points, factors, faint = (part_of(rows, name) for name in (CRITICAL, FACTORS, FAINT))
    return [
        _without_decays(points),
        _non_strict(points),
        _local_minima(points),
        _needs_care(faint),
        _lemma(factors),
    ]


def _kinds(points: Sequence[Observation]) -> str:
    counts = Counter(str(row["kind"]) for row in points)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))


def _without_decays(points: Sequence[Observation]) -> Claim:
    zeros = [row for row in points if row["low"] == row["high"] == 0]
    largest = max(numbers(zeros, "curvature_without_decays"), default=1.0)
    return decided(
        "Without decays zero is a non-strict saddle of (23): the Hessian vanishes, and descent has "
        "lower points to go to",
        source="XUFM, section 4.1, remark on the optimisation procedure",
        held=largest < EXACT and all(number(row, "minimum") < 0.5 for row in zeros),
        evidence=f"entries of the Hessian at zero, decays subtracted: {largest:.1e} at most in "
        f"{len(zeros)} models; zero has 0.5, and even with decays the minimum is lower",
    )


def _non_strict(points: Sequence[Observation]) -> Claim:
    slope = max(numbers(points, "gradient_norm"), default=1.0)
    seen = any(row["kind"] == "degenerate" for row in points)
    return decided(
        "With positive decays the landscape of (23) includes non-strict saddles",
        source="XUFM, section 4.1, remark on the optimisation procedure",
        held=seen if slope < STATIONARY else None,
        evidence=f"kinds of the {len(points)} critical points of {len(MODELS)} models: "
        f"{_kinds(points)}; gradients {slope:.0e} at most",
    )


def _local_minima(points: Sequence[Observation]) -> Claim:
    partial = [
        row for row in points if row["low"] == 0 and number(row, "high") < number(row, "most")
    ]
    others = [row for row in points if number(row, "low") > 0]
    least = min((number(row, "objective") - number(row, "minimum") for row in partial), default=0)
    held = (
        least > EXACT
        and all(row["kind"] == "minimum" for row in partial)
        and all(row["kind"] == "strict saddle" for row in others)
    )
    return decided(
        "With positive decays zero and all frames on fewer than min(d, K) directions are local "
        "minima of (23) above the global minimum, and all further critical points but the global "
        "minimum are strict saddles",
        source="ours",
        held=held,
        evidence=f"zero and partial frames: {_kinds(partial)}, {least:.3g} or more above the "
        f"minimum; points with a lower root: {_kinds(others)}",
    )


def _needs_care(faint: Sequence[Observation]) -> Claim:
    above_zero = [abs(number(row, "objective") - 0.5) for row in faint]
    least = min(numbers(faint, "minimum"), default=0.5)
    return decided(
        "Descent on (23) needs a careful start: from starts ten times smaller than the paper's it "
        "always ends at zero",
        source="XUFM, section 4.1, remark on the optimisation procedure",
        held=bool(faint) and max(above_zero) < AT_ZERO and least < 0.5 - AT_ZERO,
        evidence=f"{sum(gap < AT_ZERO for gap in above_zero)} of {len(faint)} starts of deviation "
        f"{FAINT_DEVIATION} end at objective 0.5, that of zero; the minimum is {least:.4f}",
    )


def _lemma(factors: Sequence[Observation]) -> Claim:
    def off(key: str) -> float:
        pairs = [(number(row, key), number(row, "bound")) for row in factors]
        return max((abs(value / bound - 1) for value, bound in pairs), default=1.0)

    gram = max(numbers(factors, "off_gram"), default=1.0)
    reached, attained = off("reached"), off("attained")
    return decided(
        "The cheapest factors of a matrix cost sqrt(lambda_W lambda_H) times its nuclear norm, and "
        "are balanced on its singular vectors",
        source="XUFM, lemma C.1 (58)",
        held=max(reached, attained) < EXACT and gram < 1e-5,
        evidence=f"{len(factors)} matrices: free minimisation ends {reached:.0e} from the bound, "
        f"the stated factors cost {attained:.0e} from it, their W W^T differ by {gram:.0e}",
    )
