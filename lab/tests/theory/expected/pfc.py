"""Formulas that break the statements of the PFC paper."""

from lab.tests.theory.expected.broken import Break, scaled
from torch import Tensor

from ncscope.metrics.layerwise import Geodesic
from ncscope_lab.surrogates.mufm import MUFM
from ncscope_lab.theory import pfc

aligned, falls_from, strength = pfc.alignment, pfc.pfc2_falls_from, pfc.equivalent_transport
flow, minimum, gap = pfc.flow_direction, pfc.find_minimum, pfc.first_order_gap


def nearly_aligned(first: Tensor, last: Tensor) -> Tensor:
    """As if means at a cosine of -0.001 were aligned."""
    return aligned(first, last) + 0.001 * first.norm() * last.norm()


def too_wide(line: Geodesic) -> float:
    """A neighbourhood of t = 1 longer by 0.1 %."""
    return max(0.0, 1 - 1.001 * (1 - falls_from(line)))


def pushed_away(model: MUFM) -> tuple[Tensor, Tensor]:
    """Features on the far side of the data."""
    weight, features = minimum(model)
    return weight, 2 * model.data - features


def without_rotations(line: Geodesic) -> float:
    """As if any small cost were enough."""
    return 1.0 if line.transport_cost() < 1e9 else gap(line)


BREAKS: list[Break] = [
    Break("pfc/theorem-1", pfc, "alignment", nearly_aligned),
    Break("pfc/theorem-2", pfc, "pfc2_falls_from", too_wide),
    Break("pfc/theorem-2", pfc, "pfc2_falls_from", lambda line: 1.0),
    Break("pfc/theorem-2", pfc, "first_order_gap", without_rotations),
    scaled("pfc/theorem-3", pfc, "equivalent_transport"),
    Break("pfc/theorem-3", pfc, "equivalent_transport", lambda x, depth: strength(x, depth + 1)),
    scaled("pfc/theorem-4", pfc, "least_spread"),
    Break("pfc/theorem-4", pfc, "find_minimum", pushed_away),
    scaled("pfc/theorem-4-classifier", pfc, "classifier_of"),
    Break("pfc/lemma-1", pfc, "flow_direction", lambda *parts: -flow(*parts)),
    Break(
        "pfc/lemma-1",
        pfc,
        "flow_direction",
        lambda model, features: flow(model, features) + features,
    ),
    scaled("pfc/weight-decay", pfc, "symmetric_energy"),
]
