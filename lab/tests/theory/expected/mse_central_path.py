"""Formulas that break the statements on the central path."""

from collections.abc import Callable
from dataclasses import replace

from lab.tests.theory.expected.broken import Break, scaled
from torch import Tensor

from ncscope_lab.surrogates.dynamics.laws import Law
from ncscope_lab.surrogates.dynamics.manifold import centre_in_class
from ncscope_lab.theory import mse_central_path as motion
from ncscope_lab.theory import mse_limits as limits
from ncscope_lab.theory import mse_manifold as manifold


def one_more_class(law: Callable[[int, int], Law]) -> Callable[[int, int], Law]:
    """The law of one class more."""
    return lambda k, n: law(k + 1, n)


def last_coefficient_off(law: Callable[[int, int], Law]) -> Callable[[int, int], Law]:
    """The law with 0.1 % more of its last coefficient."""

    def broken(k: int, n: int) -> Law:
        found = law(k, n)
        last = max(found.coefficients)
        return replace(
            found,
            coefficients={**found.coefficients, last: 1.001 * found.coefficients[last]},
        )

    return broken


def half_corrected(features: Tensor, direction: Tensor, k: int) -> Tensor:
    """A projection that takes off 0.1 % too little."""
    return direction + 0.999 * (oblique(features, direction, k) - direction)


def stunted(law: Law) -> Law:
    """A law under which each singular value grows exponentially, so that ratios stay."""
    return Law(law.name, {0: law.coefficients[0], max(law.coefficients): 1e-300})


oblique, orthogonal = manifold.oblique_projection, manifold.orthogonal_projection
adjoint = manifold.oblique_adjoint
vertices, simplex = limits.off_vertices, limits.simplex_etf
projected, renormalised = motion.law_of_projection, motion.law_of_renormalisation

BREAKS: list[Break] = [
    Break(
        "mse/proposition-3",
        manifold,
        "constraint_derivative",
        lambda x, z, k: centre_in_class(x, k) @ z.mT,
    ),
    Break("mse/proposition-4", manifold, "oblique_projection", half_corrected),
    Break(
        "mse/proposition-4-adjoint",
        manifold,
        "oblique_adjoint",
        lambda x, z, k: z + 0.999 * (adjoint(x, z, k) - z),
    ),
    Break("mse/proposition-4-adjoint", manifold, "orthogonal_projection", oblique),
    Break("mse/lemma-2", manifold, "oblique_projection", orthogonal),
    Break("mse/lemma-2", manifold, "oblique_projection", half_corrected),
    scaled("mse/lemma-3", motion, "singular_value_form"),
    Break("mse/lemma-4", motion, "law_of_projection", one_more_class(projected)),
    Break("mse/lemma-4", motion, "law_of_renormalisation", last_coefficient_off(renormalised)),
    scaled("mse/lemma-4", motion, "motion_as_printed"),
    Break("mse/lemma-5", motion, "law_of_projection", last_coefficient_off(projected)),
    Break("mse/lemma-5", motion, "law_of_renormalisation", last_coefficient_off(renormalised)),
    Break("mse/proposition-2", motion, "law_of_projection", last_coefficient_off(projected)),
    Break("mse/proposition-2", motion, "law_of_renormalisation", one_more_class(renormalised)),
    Break("mse/corollary-1", motion, "law_of_projection", last_coefficient_off(projected)),
    Break("mse/corollary-1", motion, "law_of_projection", renormalised),
    Break("mse/algorithm", motion, "law_of_renormalisation", last_coefficient_off(renormalised)),
    scaled("mse/algorithm", motion, "least_squares_gradient"),
    Break("mse/lemma-6", motion, "least_squares_gradient", lambda x, k: x**3),
    Break("mse/lemma-7", limits, "off_vertices", lambda e: vertices(e[:, 1:])),
    Break("mse/lemma-7", limits, "off_vertices", lambda e: 0.0),
    Break("mse/lemma-7", limits, "simplex_etf", lambda k, d, g: 1e-6 + simplex(k, d, g)),
    scaled("mse/trace", limits, "trace_bound"),
    Break("mse/corollary-2", limits, "law_of_projection", lambda k, n: stunted(projected(k, n))),
    Break(
        "mse/theorem-3", limits, "law_of_renormalisation", lambda k, n: stunted(renormalised(k, n))
    ),
    Break("mse/theorem-3", motion, "least_squares_gradient", lambda x, k: x**3),
]
