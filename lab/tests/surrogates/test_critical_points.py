"""Critical points of the linear extended model: stationary, counted, and of the right kind."""

import pytest
import torch

from ncscope.errors import InputError
from ncscope_lab.surrogates.critical_points import (
    critical_point,
    critical_roots,
    hessian,
    kind,
    orbit_dimension,
)
from ncscope_lab.surrogates.extended import ExtendedUFM, best_product
from ncscope_lab.surrogates.problem import Point

MODEL = ExtendedUFM(3, 3, 2, weight_decays=(0.02, 0.01), feature_decay=0.03)
LOW, HIGH = critical_roots(3, MODEL.load)


@pytest.mark.parametrize(("factors", "load"), [(2, 0.3), (3, 0.3), (4, 0.2), (5, 0.1)])
def test_roots_solve_the_equation_and_the_larger_is_the_best_product(
    factors: int, load: float
) -> None:
    roots = critical_roots(factors, load)
    assert len(roots) == (1 if factors == 2 else 2)
    assert list(roots) == sorted(roots)
    for p in roots:
        assert p ** (1 - 2 / factors) * (1 - p) == pytest.approx(load, rel=1e-12)
    assert roots[-1] == pytest.approx(best_product(factors, load), rel=1e-12)
    assert critical_roots(factors, 1.0) == ()


def slope(model: ExtendedUFM, point: Point) -> float:
    return float(torch.cat([part.flatten() for part in model.gradient(point)]).norm())


@pytest.mark.parametrize(
    ("products", "expected"),
    [
        ((), "minimum"),
        ((HIGH,), "minimum"),
        ((HIGH, HIGH, HIGH), "minimum"),
        ((LOW,), "strict saddle"),
        ((LOW, HIGH), "strict saddle"),
    ],
)
def test_kinds(products: tuple[float, ...], expected: str) -> None:
    point = critical_point(MODEL, products)
    assert slope(MODEL, point) < 1e-15
    assert kind(MODEL, point) == expected
    assert float(MODEL.objective(point)) >= MODEL.objective_at_collapse() - 1e-15


def test_another_product_is_not_critical() -> None:
    assert slope(MODEL, critical_point(MODEL, (0.5,))) > 1e-3


def test_the_hessian_at_zero_is_that_of_the_decays() -> None:
    zero = critical_point(MODEL, ())
    decays = [0.02] * 9 + [0.01] * 9 + [0.03] * 18
    assert torch.allclose(hessian(MODEL, zero), torch.diag(torch.tensor(decays).double()))


def test_the_fold_is_degenerate() -> None:
    """At the largest load with a root the two roots meet, in a saddle that is not strict."""
    top = 0.25 ** (1 / 3) * 0.75
    model = ExtendedUFM(1, 1, 1, weight_decays=(top, top), feature_decay=top)
    point = critical_point(model, (0.25,))
    assert model.load == pytest.approx(top)
    assert slope(model, point) < 1e-15
    assert kind(model, point) == "degenerate"
    beside = [float(model.objective(tuple(size * part for part in point))) for size in (0.9, 1.1)]
    assert beside[0] < float(model.objective(point)) < beside[1]


def test_a_rotated_point_is_of_the_same_kind_and_orbit() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(3, 3, dtype=torch.float64, generator=generator) for _ in range(3)]
    classes, middle, first = (torch.linalg.qr(part).Q for part in drawn)
    point = critical_point(MODEL, (HIGH, HIGH))
    means = point[2][:, ::2] @ classes.mT
    turned = (
        classes @ point[0] @ middle.mT,
        middle @ point[1] @ first.mT,
        (first @ means).repeat_interleave(2, 1),
    )
    assert slope(MODEL, turned) < 1e-14
    assert orbit_dimension(MODEL, turned) == orbit_dimension(MODEL, point) == 8
    assert kind(MODEL, turned) == "minimum"


def test_too_many_products_are_refused() -> None:
    with pytest.raises(InputError, match=r"at most min\(d, K\) = 3 values"):
        critical_point(MODEL, (HIGH,) * 4)
