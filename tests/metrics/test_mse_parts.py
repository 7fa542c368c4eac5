"""The parts of the MSE loss against 60 digits: any K, d, bias, decay and spread."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import ncscope

from ..reference.instances import Instance, simplex_frame
from ..reference.mse_parts import NormalEquations

SHAPES = [(2, 1), (3, 1), (4, 2), (8, 3), (4, 3), (8, 7), (2, 3), (3, 3), (4, 7)]
MEANS = ["random", "simplex", "offset", "line"]
SPREADS = [1.0, 1e-2, 1e-4, 1e-6, 1e-7, 0.0]
ALTERNATING = [
    (6, False, "empirical"),
    (6, True, "uniform"),
    (2, False, "uniform"),
    (2, True, "empirical"),
    (6, True, "empirical"),
    (6, False, "uniform"),
    (2, True, "uniform"),
    (2, False, "empirical"),
]
# Ordinary ones; about the square of the smallest spread; about machine epsilon; next to none.
DECAYS = [0.0, 1.0, 1e-3, 1e-8, 1e-13, 1e-16, 1e-20, 1e-30]


@dataclass(frozen=True)
class Case:
    """One point of the grid.

    Attributes:
        k: Number of classes.
        d: Feature dimension.
        means: "random", "simplex" (of rank k - 1), "offset" (by 1e4) or "line" (of rank 1).
        spread: Deviation of the features from the class means, which are of size 1.
        decay: Weight decay.
        with_bias: Whether the head has a bias.
        prior: Class prior.
        samples: Mean number of samples of a class.
    """

    k: int
    d: int
    means: str = "random"
    spread: float = 1e-3
    decay: float = 0.0
    with_bias: bool = False
    prior: str = "empirical"
    samples: int = 6

    def __str__(self) -> str:
        bias = "bias" if self.with_bias else "no bias"
        size = f"K={self.k} d={self.d} {self.means} n={self.samples} {self.prior}"
        return f"{size} spread={self.spread:g} decay={self.decay:g} {bias}"


def class_means(case: Case, rng: np.random.Generator) -> np.ndarray:
    if case.means == "simplex":  # K = 2, 4, 8: corners of a cube, exact numbers
        corners = np.eye(1)
        while len(corners) < case.k:
            corners = np.block([[corners, corners], [corners, -corners]])
        return np.pad(corners[:, 1:], ((0, 0), (0, case.d - case.k + 1)))
    if case.means == "line":
        return np.outer(rng.integers(-9, 9, case.k), rng.integers(-9, 9, case.d)) / 16 + 0.5
    return rng.normal(size=(case.k, case.d)) + 1e4 * (case.means == "offset")


def instance_of(case: Case) -> Instance:
    rng = np.random.default_rng([case.k, case.d, case.samples])
    means = class_means(case, rng)
    counts = case.samples + np.arange(case.k) % 3 - (case.samples > 1)
    labels = np.repeat(np.arange(case.k), counts)
    features = means[labels] + case.spread * rng.normal(size=(len(labels), case.d))
    weight = rng.normal(size=(case.k, case.d))
    bias = rng.normal(size=case.k) - weight @ means.mean(0) if case.with_bias else None
    return Instance(features, labels, weight, bias, case.k, case.prior, case.decay)


def measured(instance: Instance) -> dict[str, float]:
    return dict(
        ncscope.measure(
            instance.features,
            instance.labels,
            instance.weight,
            instance.bias,
            groups=["mse"],
            **instance.options,
        )
    )


def assert_right(instance: Instance, wanted: dict[str, float]) -> None:
    found, loss = measured(instance), wanted["mse_loss"]
    assert found["mse_loss"] == pytest.approx(loss, rel=1e-10, abs=0)
    parts = found["mse_nc1"] + found["mse_nc23"] + found["mse_off_path"]
    assert parts == pytest.approx(found["mse_loss"], rel=1e-10, abs=0)
    for key in ("mse_nc23", "mse_off_path"):
        assert found[key] == pytest.approx(wanted[key], rel=0, abs=1e-10 * loss), key
    # What is zero in exact arithmetic is the square of a rounding.
    assert found["mse_nc1"] == pytest.approx(wanted["mse_nc1"], rel=1e-6, abs=1e-24)


QUICK = [
    Case(8, 3, spread=1e-3),
    Case(8, 3, spread=1e-4),
    Case(8, 3, spread=1e-7),
    Case(8, 3, spread=0.0),
    Case(8, 3, spread=1e-7, decay=1e-8),
    Case(8, 3, spread=1e-6, decay=1e-3),
    Case(8, 3, spread=1e-7, decay=1e-16, prior="uniform"),
    Case(8, 3, spread=1e-7, decay=1e-16, with_bias=True),
    Case(8, 3, "offset", spread=1e-6, with_bias=True),
    Case(4, 2, "offset", spread=1e-6, decay=1e-3),
    Case(4, 2, spread=0.0, decay=1e-8),
    Case(4, 2, "line", spread=1e-7),
    Case(4, 2, "line", spread=1e-7, with_bias=True),
    Case(4, 3, "simplex", spread=0.0),
    Case(4, 3, "simplex", spread=1e-7, prior="uniform"),
    Case(4, 7, "simplex", spread=1e-6, prior="uniform"),
    Case(4, 7, spread=1e-7),
    Case(4, 7, spread=1e-7, decay=1e-16, samples=2, with_bias=True),
    Case(4, 7, "offset", spread=1e-7, samples=2, decay=1e-3),
    Case(4, 7, "offset", spread=1e-7, samples=2, decay=1e-3, with_bias=True),
    Case(4, 7, spread=0.0, decay=1e-20, with_bias=True),
    Case(3, 1, spread=1e-4, decay=1e-13),
    Case(2, 1, spread=1e-7),
    Case(2, 1, "offset", spread=1e-7, decay=1e-13),
    Case(2, 3, spread=1e-4, samples=1, decay=1e-8),
    Case(2, 3, "simplex", spread=1e-7, samples=2, decay=1.0),
    Case(4, 2, "offset", spread=0.0, samples=2, decay=1e-8, with_bias=True),
    Case(4, 7, "line", spread=1e-7, samples=2),
]


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_parts_of_the_loss_are_those_of_60_digits(case: Case) -> None:
    instance = instance_of(case)
    assert_right(instance, NormalEquations(instance).parts(case.decay))


@pytest.mark.slow
@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize(("k", "d"), SHAPES)
def test_the_whole_grid(k: int, d: int, means: str) -> None:
    """Number of samples, bias and prior alternate from one spread to the next."""
    wrong = []
    turn = SHAPES.index((k, d)) + MEANS.index(means)
    for number, spread in enumerate(SPREADS if has_means(k, d, means) else [], turn):
        samples, with_bias, prior = ALTERNATING[number % len(ALTERNATING)]
        case = Case(k, d, means, spread, 0.0, with_bias, prior, samples)
        instance = instance_of(case)
        exact = NormalEquations(instance)
        for decay in DECAYS:
            try:
                assert_right(replace(instance, weight_decay=decay), exact.parts(decay))
            except AssertionError as error:
                wrong.append(f"{replace(case, decay=decay)}: {error}")
    assert not wrong, "\n".join(wrong)


def has_means(k: int, d: int, means: str) -> bool:
    return means != "simplex" or (k in (2, 4, 8) and d >= k - 1)


@pytest.mark.parametrize("spread", [0.0, 1e-14, 1e-12, 1e-9])
@pytest.mark.parametrize("seed", range(6))
def test_collapse_without_bias_and_with_more_classes_than_dimensions(
    seed: int, spread: float
) -> None:
    draws = torch.Generator().manual_seed(seed)
    means = torch.randn(4, 2, generator=draws).double()
    around = spread * torch.randn(40, 2, generator=draws, dtype=torch.float64)
    found = ncscope.measure(means.repeat(10, 1) + around, torch.arange(4).repeat(10), means)
    parts = found["mse_nc1"] + found["mse_nc23"] + found["mse_off_path"]
    assert parts == pytest.approx(found["mse_loss"], rel=1e-12)
    assert found["mse_nc1"] <= 1e-24 + 100 * spread**2
    # the best head leaves K - d = 2 contrasts of the labels, at 1 / 2K each
    assert found["mse_nc23"] == pytest.approx(2 / 8, rel=1e-12)


def test_a_rounded_simplex_in_as_few_dimensions_as_it_needs() -> None:
    """How a simplex is rounded depends on K."""
    for k in (*range(2, 41), 100):
        frame = simplex_frame(k, k) @ np.linalg.svd(np.ones((1, k)))[2][1:].T
        labels = np.arange(3 * k) % k
        for weight in (frame, 0 * frame):
            found = ncscope.measure(frame[labels], labels, weight, groups=["mse"])
            parts = found["mse_nc1"] + found["mse_nc23"] + found["mse_off_path"]
            assert parts == pytest.approx(found["mse_loss"], rel=1e-10), k
            assert found["mse_nc23"] == pytest.approx(1 / (2 * k), rel=1e-10), k
            assert found["mse_nc1"] < 1e-24, k


@pytest.mark.parametrize("with_bias", [False, True])
def test_next_to_no_decay_is_none(with_bias: bool) -> None:
    for case in (Case(8, 3, with_bias=with_bias), Case(4, 7, samples=2, with_bias=with_bias)):
        instance = instance_of(case)
        tiny = measured(replace(instance, weight_decay=5e-324))
        assert tiny == pytest.approx(measured(instance), rel=1e-9, abs=1e-24)
