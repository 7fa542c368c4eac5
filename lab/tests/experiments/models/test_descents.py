"""Steps of a descent that are measured."""

from ncscope_lab.experiments.models.descents import choose_steps


def test_steps_recorded() -> None:
    assert choose_steps(25, 10) == [0, 1, 3, 10, 20, 25]
    assert choose_steps(20, 10) == [0, 1, 3, 10, 20]
    assert choose_steps(2, 10) == [0, 1, 2]
