"""The MSE model: its minimisers, and the names and the start of a point."""

import math

import torch
from lab.tests.surrogates.test_problems import UFMS, seeded

from ncscope.math.frames import simplex_etf
from ncscope_lab.surrogates.problem import Point
from ncscope_lab.surrogates.ufm import UFM


def means_of(problem: UFM, point: Point) -> torch.Tensor:
    return point[1][:, :: problem.per_class]


def test_gram_matrices() -> None:
    for problem in (UFMS["wide"], UFMS["square"]):
        means = means_of(problem, problem.minimiser(seeded()).point)
        length = (1 - problem.c) * math.sqrt(
            problem.weight_decay / (problem.per_class * problem.feature_decay)
        )
        assert torch.allclose(means.mT @ means, length * torch.eye(4).double(), atol=1e-14)
    for problem in (UFMS["wide, free"], UFMS["wide, below the edge"]):
        means = means_of(problem, problem.minimiser(seeded()).point)
        simplex = simplex_etf(4)
        gram = (means.mT @ means) / means[:, 0].square().sum()
        assert torch.allclose(gram, simplex @ simplex.mT, atol=1e-14)


def test_simplex_up_to_the_edge_and_not_past_it() -> None:
    edge = UFMS["wide"].c / (1 - UFMS["wide"].c)
    for decay, zero in ((0.999 * edge, True), (1.001 * edge, False)):
        problem = UFM(4, 20, 50, 0.005, 0.001, decay)
        mean = means_of(problem, problem.minimiser().point).mean(1).norm()
        assert (mean < 1e-14) == zero


def test_where_classes_are_alike_any_may_be_left_out() -> None:
    """With fewer dimensions than classes the frame is chosen by the generator."""
    problem = UFMS["two axes"]
    plain = means_of(problem, problem.minimiser().point)
    assert (plain.norm(dim=0) > 0).tolist() == [True, True, False, False, False]
    drawn = means_of(problem, problem.minimiser(seeded()).point)
    assert drawn.norm(dim=0).min() > 0
    assert drawn.norm(dim=0).std() > 0.01


def test_names_and_start_of_a_point() -> None:
    problem = UFM(3, 5, 2, 0.01, 0.01, 0.0)
    assert problem.names == ("W", "H", "b")
    assert problem.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert UFMS["wide"].names == ("W", "H")
    large = UFM(10, 60, 100, 0.01, 0.01).start(seeded())[1]
    assert abs(float(large.std()) - 1) < 0.02
