"""Formulas that break the statements on extended models."""

from dataclasses import replace

from lab.tests.theory.expected.broken import Break, scaled
from torch import Tensor

from ncscope_lab.surrogates.descent import SolverResult
from ncscope_lab.surrogates.extended import ExtendedUFM
from ncscope_lab.surrogates.problem import Point
from ncscope_lab.theory import xufm_conjecture as conjecture
from ncscope_lab.theory import xufm_cross_entropy as cross
from ncscope_lab.theory import xufm_extended as extended
from ncscope_lab.theory import xufm_perturbed as perturbed

product, descend, kept = extended.best_product, extended.quasi_newton, perturbed.attenuation


def one_factor_moved(model: ExtendedUFM, start: Point, limit: int) -> SolverResult:
    """A solver that ends 1e-7 of the head off the minimum, where the objective is as good."""
    run = descend(model, start, limit=limit)
    head: Tensor = run.point[0]
    return replace(run, point=(head + 1e-7 * head.norm() * head.roll(1, 1), *run.point[1:]))


def spread_features(model: ExtendedUFM, start: Point, limit: int) -> SolverResult:
    """A solver that leaves the first sample off its class mean."""
    run = descend(model, start, limit=limit)
    features = run.point[-1].clone()
    features[:, 0] *= 1 + 1e-7
    return replace(run, point=(*run.point[:-1], features))


BREAKS: list[Break] = [
    scaled("xufm/theorem-4.1", extended, "best_product", 0.999),
    scaled("xufm/theorem-4.1", extended, "minimum"),
    Break("xufm/theorem-4.1", extended, "best_product", lambda m, c: product(m, 1.001 * c)),
    Break("xufm/theorem-4.1", extended, "quasi_newton", one_factor_moved),
    Break("xufm/theorem-4.1", extended, "quasi_newton", spread_features),
    Break("xufm/theorem-4.2", extended, "quasi_newton", one_factor_moved),
    Break("xufm/theorem-4.2", extended, "quasi_newton", spread_features),
    scaled("xufm/theorem-4.2", extended, "best_product", 0.999),
    scaled("xufm/theorem-4.2", extended, "minimum", 0.999),
    scaled("xufm/conjecture-4.2", conjecture, "orthogonal_columns_norm"),
    scaled("xufm/remark-4.1", cross, "three_factor_penalty"),
    scaled("xufm/theorem-5.1", perturbed, "attenuation", 0.999),
    Break("xufm/theorem-5.1", perturbed, "attenuation", lambda k, *a: kept(k + 1, *a)),
    scaled("xufm/remark-f.1", perturbed, "attenuation_of_extended"),
    Break("xufm/appendix-d", perturbed, "nc1", lambda h, k: h[0, 0].abs()),
    Break("xufm/appendix-d", perturbed, "between_share", lambda h, k: perturbed.nc1(h, k)),
]
