"""Landscape of the linear extended model, and the lemma that reduces it to nuclear norms.

XUFM section 4.1, remark on the optimisation procedure, and lemma C.1; parts of ``xufm/extended``.

The remark says that the landscape includes non-strict saddles. Here the kinds of all critical
points of small models with positive decays are determined from the Hessian. Zero and the frames on
some of the classes are local minima, which entangle descent from faint starts. The remark is about
products without decays, whose zero is a non-strict saddle.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from ncscope_lab.claims import Claim, above, below
from ncscope_lab.experiment import Part
from ncscope_lab.experiments.models.descents import EXACT, draw_start
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import Run, Runs
from ncscope_lab.surrogates.critical_points import critical_point, critical_roots, hessian, kind
from ncscope_lab.surrogates.descent import descend_together
from ncscope_lab.surrogates.extended import ExtendedUFM
from ncscope_lab.surrogates.factorisation import (
    balance_factors,
    cheapest_factors,
    factorisation_cost,
    nuclear_bound,
)

CRITICAL, FACTORS, FAINT = "critical points", "factorisations", "faint starts"
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
FAINT_DEVIATION = 0.01  # standard deviation of a faint start, a tenth of the paper's
STATIONARY = 1e-12  # largest gradient of a critical point
ZERO, AT_ZERO = 0.5, 1e-6  # objective at zero, and the distance from it that counts as none


def list_claims() -> list[Claim]:
    """Return the remark on saddles with its correction, and lemma C.1."""
    remark = "XUFM, section 4.1, remark on the optimisation procedure"
    return [
        Claim(
            text="Without decays zero is a non-strict saddle of (23): the Hessian vanishes, and "
            "descent has lower points to go to",
            source=remark,
            where=CRITICAL,
            quantity=curvature_at_zero,
            region=below(EXACT),
            rule="all",
            tell=lambda runs: (
                "entries of the Hessian at zero, decays subtracted: "
                f"{most(zeros(runs[0]), 'curvature_without_decays'):.1e} at most in "
                f"{len(zeros(runs[0]))} models; zero has 0.5, and even with decays the minimum is "
                "lower"
            ),
        ),
        Claim(
            text="With positive decays the landscape of (23) includes non-strict saddles",
            source=remark,
            where=CRITICAL,
            quantity=count_degenerate,
            region=above(0.5),
            rule="all",
            tell=lambda runs: (
                f"kinds of the {len(runs[0].rows)} critical points of {len(MODELS)} "
                f"models: {tell_kinds(runs[0].rows)}; gradients "
                f"{most(runs[0].rows, 'gradient_norm'):.0e} at most"
            ),
        ),
        Claim(
            text="With positive decays zero and all frames on fewer than min(d, K) directions are "
            "local minima of (23) above the global minimum, and all further critical points but "
            "the global minimum are strict saddles",
            source="ours",
            where=CRITICAL,
            quantity=least_height,
            region=above(EXACT),
            rule="all",
            tell=tell_minima,
        ),
        Claim(
            text="Descent on (23) needs a careful start: from starts ten times smaller than the "
            "paper's it always ends at zero",
            source=remark,
            where=lambda runs: Runs([runs.find(FAINT)]).split("seed"),
            quantity=distance_from_zero,
            region=below(AT_ZERO),
            rule="all",
            tell=lambda runs: (
                f"{sum(distance_from_zero(run) < AT_ZERO for run in runs)} of "
                f"{len(runs)} starts of deviation {FAINT_DEVIATION} end at objective 0.5, that of "
                f"zero; the minimum is {float(runs[0].rows[0]['minimum']):.4f}"
            ),
        ),
        Claim(
            text="The cheapest factors of a matrix cost sqrt(lambda_W lambda_H) times its nuclear "
            "norm, and are balanced on its singular vectors",
            source="XUFM, lemma C.1 (58)",
            where=FACTORS,
            quantity=lambda run: max(
                off_bound(run, "reached") / EXACT,
                off_bound(run, "attained") / EXACT,
                most(run.rows, "off_gram") / 1e-5,
            ),
            region=below(1),
            rule="all",
            tell=lambda runs: (
                f"{len(runs[0].rows)} matrices: free minimisation ends "
                f"{off_bound(runs[0], 'reached'):.0e} from the bound, the stated factors cost "
                f"{off_bound(runs[0], 'attained'):.0e} from it, their W W^T differ by "
                f"{most(runs[0].rows, 'off_gram'):.0e}"
            ),
        ),
    ]


def most(rows: Sequence[Observation], key: str) -> float:
    """Return the largest of a value; NaN without rows."""
    return max((float(row[key]) for row in rows), default=math.nan)


def zeros(run: Run) -> list[Observation]:
    """Return the critical points at zero, one of each model."""
    return [row for row in run.rows if row["low"] == row["high"] == 0]


def curvature_at_zero(run: Run) -> float:
    """Return the largest entry of the Hessians at zero without decays; infinity if zero is best."""
    lower = all(float(row["minimum"]) < ZERO for row in zeros(run))
    return most(zeros(run), "curvature_without_decays") if lower else math.inf


def count_degenerate(run: Run) -> float:
    """Count the saddles that are not strict; NaN if the points are not critical."""
    if not most(run.rows, "gradient_norm") < STATIONARY:
        return math.nan
    return sum(row["kind"] == "degenerate" for row in run.rows)


def least_height(run: Run) -> float:
    """Return the least height of a local minimum; minus infinity if a point is of another kind.

    Zero and the frames on some directions (``partial``) are to be local minima, and points with a
    lower root (``lower``) strict saddles.
    """
    partial, lower = divide_points(run)
    of_kind = all(row["kind"] == "minimum" for row in partial) and all(
        row["kind"] == "strict saddle" for row in lower
    )
    heights = [float(row["objective"]) - float(row["minimum"]) for row in partial]
    return min(heights, default=math.nan) if of_kind else -math.inf


def divide_points(run: Run) -> tuple[list[Observation], list[Observation]]:
    """Return zero and the frames on some directions, and the points with a lower root."""
    partial = [
        row for row in run.rows if row["low"] == 0 and float(row["high"]) < float(row["most"])
    ]
    return partial, [row for row in run.rows if float(row["low"]) > 0]


def tell_minima(runs: Runs) -> str:
    """Write the kinds of the critical points, and the least height of the local minima."""
    partial, lower = divide_points(runs[0])
    heights = [float(row["objective"]) - float(row["minimum"]) for row in partial]
    return (
        f"zero and partial frames: {tell_kinds(partial)}, {min(heights, default=0):.3g} or more "
        f"above the minimum; points with a lower root: {tell_kinds(lower)}"
    )


def tell_kinds(points: Sequence[Observation]) -> str:
    """Write how many critical points are of each kind."""
    counts = Counter(str(row["kind"]) for row in points)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))


def distance_from_zero(run: Run) -> float:
    """Return the distance of the objective from that at zero; infinity if zero is the minimum."""
    (row,) = run.rows
    lower = float(row["minimum"]) < ZERO - AT_ZERO
    return abs(float(row["objective"]) - ZERO) if lower else math.inf


def off_bound(run: Run, key: str) -> float:
    """Return the largest relative difference of a cost from the lemma's bound."""
    return max(abs(float(row[key]) / float(row["bound"]) - 1) for row in run.rows)


def list_parts(problem: ExtendedUFM, rate: float, steps: int, seeds: Sequence[int]) -> list[Part]:
    """Return critical points of small models, factorisations, and descents from faint starts.

    Args:
        problem: Linear model of the descents, which start at a tenth of its deviations.
        rate: Step size.
        steps: Steps of each descent.
        seeds: Seed of each start.
    """
    kinds = sum((q + 1) * (q + 2) // 2 for q in (min(k, d) for k, d, *_ in MODELS))
    return [
        Part(CRITICAL, kinds, lambda _: find_critical_points()),
        Part(FACTORS, len(PRODUCTS) * len(DECAYS), lambda _: factorise()),
        Part(FAINT, len(seeds), lambda _: descend_from_faint_starts(problem, rate, steps, seeds)),
    ]


def descend_from_faint_starts(
    problem: ExtendedUFM, rate: float, steps: int, seeds: Sequence[int]
) -> Iterator[Observation]:
    """Yield the last objective from each start, beside the minimum and the value at zero."""
    faint = [
        tuple(FAINT_DEVIATION / 0.1 * part for part in draw_start(problem, seed)) for seed in seeds
    ]
    ends = descend_together(problem, faint, rate, steps)
    for seed, (own, end) in zip(seeds, ends, strict=True):
        values = {
            "seed": seed,
            "objective": float(own.objective(end)),
            "minimum": problem.objective_at_collapse(),
        }
        yield Observation(steps, steps, values=values)


def find_critical_points() -> Iterator[Observation]:
    """Yield one observation for each kind of critical point of each model."""
    step = 0
    for index, sizes in enumerate(MODELS):
        model = ExtendedUFM(*sizes)
        low, high = critical_roots(len(model.decays), model.load)
        most_roots = min(model.num_classes, model.dim)
        for lower in range(most_roots + 1):
            for upper in range(most_roots + 1 - lower):
                step += 1
                roots = {"low": lower, "high": upper, "most": most_roots}
                values = roots | examine_point(model, [low] * lower + [high] * upper)
                yield Observation(step, step, layer=f"model {index}", values=values)


def examine_point(model: ExtendedUFM, products: Sequence[float]) -> dict[str, float | str]:
    """Return height, gradient, curvature and kind of a critical point."""
    point = critical_point(model, products)
    curvature = hessian(model, point)
    slope = torch.cat([part.flatten() for part in model.gradient(point)])
    sizes = torch.tensor([part.numel() for part in point])
    decays = torch.tensor(model.decays, dtype=torch.float64).repeat_interleave(sizes)
    return {
        "objective": float(model.objective(point)),
        "minimum": model.objective_at_collapse(),
        "gradient_norm": float(slope.norm()),
        "least_curvature": float(torch.linalg.eigvalsh(curvature)[0]),
        "curvature_without_decays": float((curvature - torch.diag(decays)).abs().max()),
        "kind": kind(model, point),
    }


def factorise() -> Iterator[Observation]:
    """Yield the cheapest factors that a solver reaches, beside those of the lemma."""
    generator = torch.Generator().manual_seed(0)
    step = 0
    for rows, columns, rank, inner in PRODUCTS:
        left = torch.randn(rows, rank, dtype=torch.float64, generator=generator)
        right = torch.randn(rank, columns, dtype=torch.float64, generator=generator)
        product = left @ right
        for decays in DECAYS:
            step += 1
            weight, features = cheapest_factors(product, inner, *decays, generator)
            stated, other = balance_factors(product, inner, *decays)
            # Of the stated factors only the rotation R between them is free; the Gram matrices
            # lack it.
            gram = (weight @ weight.mT - stated @ stated.mT).norm() / (stated @ stated.mT).norm()
            values = {
                "bound": nuclear_bound(product, *decays),
                "reached": float(factorisation_cost(weight, features, *decays)),
                "attained": float(factorisation_cost(stated, other, *decays)),
                "off_gram": float(gram),
            }
            yield Observation(step, step, values=values)
