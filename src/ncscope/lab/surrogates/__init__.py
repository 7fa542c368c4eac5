"""Surrogate models of collapse: objectives over free matrices, with minimisers in closed form.

``solvers`` holds the papers' plain gradient descent and a fast solver; ``dynamics`` the flows on
the central path and their laws of growth; ``geodesic`` the line from data to collapsed features.
"""

from ncscope.lab.surrogates.descent import gradient_descent, quasi_newton
from ncscope.lab.surrogates.extended import ExtendedUFM
from ncscope.lab.surrogates.mufm import MUFM, LayeredMUFM
from ncscope.lab.surrogates.perturbed import PerturbedUFM
from ncscope.lab.surrogates.ufm import UFM
from ncscope.lab.surrogates.ufm_cross_entropy import CrossEntropyUFM

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
