"""Formulas that break the MSE paper's statements on its loss."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from lab.tests.theory.expected import broken as formulas
from lab.tests.theory.expected.broken import Break
from torch import Tensor

from ncscope.metrics.mse import MseParts
from ncscope_lab.theory import mse_coordinates as coordinates
from ncscope_lab.theory import mse_decomposition as parts
from ncscope_lab.theory import mse_spectrum as spectrum
from ncscope_lab.theory.mse_instances import Classes

scaled = partial(formulas.scaled, factor=0.999)
best = parts.best_classifier
means_range, project, spectral = (
    spectrum.means_part_range,
    parts.project_parts,
    spectrum.spectral_parts,
)


def project_scaled(part: str) -> Callable[[Classes, Tensor, float], MseParts]:
    """The package's decomposition with one part off by a thousandth."""

    def broken(*args: Any) -> MseParts:
        found = project(*args)
        return replace(found, **{part: 0.999 * getattr(found, part)})

    return broken


BREAKS: list[Break] = [
    scaled("mse/proposition-1", parts, "least_squares_classifier"),
    scaled("mse/proposition-1", parts, "normal_matrix"),
    scaled("mse/theorem-1", parts, "off_path"),
    *(
        Break(f"mse/theorem-{number}", parts, "project_parts", project_scaled(part))
        for number, part in ((1, "loss"), (1, "off_path"), (2, "nc1"), (2, "nc23"))
    ),
    scaled("mse/footnote-7", parts, "convexity_bound", factor=1.001),
    Break(
        "mse/footnote-7",
        parts,
        "best_classifier",
        lambda classes, decay: 0.9 * best(classes, decay),
    ),
    scaled("mse/theorem-2", parts, "variability_part"),
    scaled("mse/theorem-2", parts, "means_part"),
    scaled("mse/section-2-noise", spectrum, "turning_point"),
    scaled("mse/equation-18", parts, "parts_unextended", entry=0),
    scaled("mse/equation-18", parts, "parts_unextended", entry=1),
    scaled("mse/appendix-c.2-nc1", spectrum, "collapse_bound"),
    Break(
        "mse/appendix-c.2-nc23",
        spectrum,
        "means_part_range",
        lambda ratio, k: (1.001 * means_range(ratio, k)[0], means_range(ratio, k)[1]),
    ),
    scaled("mse/appendix-c.2-nc23", spectrum, "means_part_range", entry=1),
    *(scaled("mse/lemma-1", spectrum, "spectral_parts", entry=entry) for entry in range(3)),
    Break("mse/lemma-1", spectrum, "spectral_parts", lambda ratios, k: spectral(ratios[:-1], k)),
    Break(
        "mse/lemma-1", spectrum, "snr_singular_values", lambda stats, found: found.between.values
    ),
    scaled("mse/equation-6", coordinates, "classifier_and_bias", entry=0),
    scaled("mse/equation-6", coordinates, "classifier_and_bias", entry=1),
    scaled("mse/equation-7", coordinates, "gram_prefactor"),
    Break("mse/equation-7", coordinates, "gram_prefactor", lambda classes: classes.per_class - 1.0),
    scaled("mse/invariance", coordinates, "classifier_and_bias", entry=0),
    scaled("mse/equation-8", coordinates, "classifier_of_scatters"),
    scaled("mse/equation-8", coordinates, "renormaliser"),
    Break("mse/definition-2", spectrum, "affine_dimension", lambda means: means.shape[1] - 1),
    scaled("mse/appendix-d.1", coordinates, "fibre_map"),
    scaled("mse/definition-5", coordinates, "rotate_back"),
    Break("mse/definition-5", coordinates, "rotate_back", lambda p, turn, n: p @ turn.mT),
    scaled("mse/observation-2", coordinates, "class_centring"),
    scaled("mse/observation-3", coordinates, "snr_of_aligned"),
    scaled("mse/appendix-d.6", spectrum, "matrix_bound"),
]
