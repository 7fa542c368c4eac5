"""Order of the layers over training: breaks are counted up to the effective depth of the epoch."""

from ncscope.lab.papers.pfc.order import OrderAt, comparable, order_over_training
from tests.lab.observed import measured, measurement

LAYERS = ("first", "a", "b", "c", "d")


def at(epoch: int, pfc1: list[float], pfc2: list[float], pfc3: list[float]):
    values = zip(LAYERS, pfc1, pfc2, pfc3, strict=True)
    metrics = {name: {"pfc1": x, "pfc2": y, "pfc3": z} for name, x, y, z in values}
    # The first layer has another dimension, and no position.
    positions = (0.0, 0.3, 0.6, 1.0)
    return measurement("run", epoch, metrics, comparable=LAYERS[1:], relative_position=positions)


RESULTS = measured(
    [
        at(0, [9, 1, 2, 3, 4], [9, 4, 3, 5, 2], [0, 0.5, 0.6, 0.7, 0.8]),
        at(7, [9, 4, 3, 2, 1], [9, 4, 5, 3, 9], [0, 0.5, 0.4, 1.0, 0.9]),
    ]
)


def test_breaks_are_counted_at_every_epoch_before_its_effective_depth() -> None:
    assert order_over_training(RESULTS, "run") == [
        OrderAt(0, 3, {"pfc1": 3, "pfc2": 1, "pfc3": 0}),
        OrderAt(7, 2, {"pfc1": 0, "pfc2": 1, "pfc3": 1}),
    ]


def test_layers_behind_the_effective_depth_or_of_another_dimension_are_left_out() -> None:
    assert [row.layer for row in comparable(RESULTS, "run", 0)] == ["a", "b", "c", "d"]
    assert [row.layer for row in comparable(RESULTS, "run")] == ["a", "b", "c"]
    assert order_over_training(RESULTS, "another") == []
