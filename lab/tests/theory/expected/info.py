"""Formulas that break the statements of the INFO paper."""

from dataclasses import replace

from lab.tests.theory.expected.broken import Break, scaled
from torch import Tensor

from ncscope.metrics.information import Entropies
from ncscope_lab.theory import info_entropies as grams
from ncscope_lab.theory import info_regression as fits

collapse, entropies = grams.collapse_mir, grams.pair_entropies
tail, ranks, fano = fits.tail_mass, fits.rank_bounds, fits.largest_entropy


def joint_swollen(first: Tensor, second: Tensor) -> Entropies:
    """As if the joint entropy could exceed the sum: subadditivity broken."""
    seen = entropies(first, second)
    return replace(seen, joint=replace(seen.joint, mean=1.01 * (seen.first + seen.second)))


def joint_shrunk(first: Tensor, second: Tensor) -> Entropies:
    """As if the joint entropy could be less than the larger of the two."""
    seen = entropies(first, second)
    return replace(seen, joint=replace(seen.joint, mean=0.99 * max(seen.first, seen.second)))


BREAKS: list[Break] = [
    Break(
        "info/theorem-4.2",
        grams,
        "collapse_mir",
        lambda c: collapse(c) - 1 / (c - 1) + 1 / c,
    ),
    Break("info/theorem-4.2", grams, "collapse_mir", lambda c: collapse(c + 1)),
    Break("info/corollary-4.3", grams, "collapse_mir", lambda c: collapse(c) + 1e-6),
    Break("info/corollary-4.3-relu", grams, "collapse_mir", lambda c: collapse(c) + 1e-6),
    Break("info/remark-4.3", grams, "pair_entropies", joint_swollen),
    Break("info/remark-4.3", grams, "pair_entropies", joint_shrunk),
    Break("info/mir-limit", grams, "pair_entropies", joint_shrunk),
    scaled("info/lemma-4.4", fits, "transfer_bound", 0.999),
    Break("info/lemma-4.4", fits, "transfer_bound", lambda error, weight, gap: error + gap),
    Break("info/lemma-4.5", fits, "tail_mass", lambda z, rank: tail(z, rank - 1)),
    scaled("info/lemma-4.5", fits, "tail_mass"),
    Break("info/theorem-4.6", fits, "tail_mass", lambda z, rank: tail(z, rank - 1)),
    Break(
        "info/theorem-4.6",
        fits,
        "rank_bounds",
        lambda a, b: (0.999 * ranks(a, b)[0], 1.0),
    ),
    Break("info/theorem-4.6", fits, "rank_bounds", lambda a, b: (ranks(a, b)[0], 0.0)),
    scaled("info/remark-4.6", fits, "largest_entropy", 0.999),
    Break(
        "info/remark-4.6",
        fits,
        "largest_entropy",
        lambda error, *parts: fano(0.9 * error, *parts),
    ),
]
