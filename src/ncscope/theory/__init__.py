"""Surrogate models of collapse, and what the papers prove.

``surrogates``: objectives over free matrices, with their minimisers in closed form. ``solvers``:
the papers' plain descent, and a fast way. ``dynamics``: flows on the central path and their laws.
``geodesic``: the line from data to collapse. ``statements``: every theorem on random instances.
"""

from ncscope.theory.solvers.descent import gradient_descent
from ncscope.theory.solvers.quasi_newton import quasi_newton
from ncscope.theory.surrogates.extended import ExtendedUFM
from ncscope.theory.surrogates.mufm import MUFM, LayeredMUFM
from ncscope.theory.surrogates.perturbed import PerturbedUFM
from ncscope.theory.surrogates.ufm import UFM
from ncscope.theory.surrogates.ufm_cross_entropy import CrossEntropyUFM

__all__ = [
    "MUFM",
    "UFM",
    "CrossEntropyUFM",
    "ExtendedUFM",
    "LayeredMUFM",
    "PerturbedUFM",
    "gradient_descent",
    "quasi_newton",
]
