"""The cross-entropy model: the simplex, and where it becomes zero."""

import math

import pytest
import torch
from lab.tests.surrogates.test_problems import CROSS_ENTROPY, norm, seeded

from ncscope.errors import InputError
from ncscope.math.frames import simplex_etf
from ncscope_lab.surrogates.ufm_cross_entropy import CrossEntropyUFM


def test_it_is_zero_from_c_of_1_on() -> None:
    below, above = (
        CROSS_ENTROPY["cross-entropy, just below the edge"],
        CROSS_ENTROPY["cross-entropy, just above the edge"],
    )
    assert (round(below.c, 12), round(above.c, 12)) == (0.99, 1.01)
    assert norm(below.minimiser().point) > 0.1
    assert norm(above.minimiser().point) == 0
    assert above.minimiser().objective == math.log(4)


def test_it_is_a_simplex_aligned_with_the_classifier() -> None:
    problem = CROSS_ENTROPY["cross-entropy, wide"]
    weight, features = problem.minimiser(seeded()).point
    means = features[:, :: problem.per_class]
    simplex = simplex_etf(4)
    assert torch.allclose(
        means.mT @ means / means[:, 0].square().sum(), simplex @ simplex.mT, atol=1e-14
    )
    logits = weight @ means
    alpha = float(logits[0, 0] - logits[0, 1])
    probability = 1 / (1 + 3 * math.exp(-alpha))
    pull = (1 - probability) / 3  # what the loss's slope and the decays' must agree on
    decay = math.sqrt(problem.weight_decay * problem.feature_decay * problem.per_class)
    assert math.isclose(pull, decay, rel_tol=1e-13)
    assert torch.allclose(weight / weight.norm(), means.mT / means.norm(), atol=1e-14)


def test_bad_input() -> None:
    with pytest.raises(
        InputError, match="expected dim >= K - 1 = 4 for a closed form, found dim=3"
    ):
        CrossEntropyUFM(5, 3, 2, 0.01, 0.01).minimiser()
