"""Surrogate models of collapse: objectives over free matrices, with minimisers in closed form.

``descent`` holds the papers' plain gradient descent and a fast solver; ``dynamics`` the flows on
the central path and their laws of growth; ``geodesic`` the line from data to collapsed features.
"""

from ncscope_lab.surrogates.descent import gradient_descent, quasi_newton
from ncscope_lab.surrogates.extended import ExtendedUFM
from ncscope_lab.surrogates.mufm import MUFM, LayeredMUFM
from ncscope_lab.surrogates.perturbed import PerturbedUFM
from ncscope_lab.surrogates.ufm import UFM
from ncscope_lab.surrogates.ufm_cross_entropy import CrossEntropyUFM

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
