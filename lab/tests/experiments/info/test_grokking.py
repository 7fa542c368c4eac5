"""The figure of grokking, on made-up rows."""

import pytest
from lab.tests.experiments.info.stories import GROKKING, RULE, grokked

from ncscope_lab.observations import Results

LATE = [0.04, 0.05, 0.06, 0.30, 0.8, 0.9]
"""Held-out accuracies of a run that does not learn the rule."""


@pytest.mark.parametrize(
    ("late", "lost", "fate"),
    [
        ([], [], "(learnt by every seed)"),
        (["seed 1"], [], "(seed 1 has not learnt it by the last step)"),
        (["seed 1"], ["seed 2"], "(seed 1 has not learnt it by the last step; seed 2 is without"),
    ],
)
def test_the_caption_tells_which_seeds_have_not_learnt_the_rule(
    late: list[str], lost: list[str], fate: str
) -> None:
    rows = [row for row in grokked() if row.part not in [*late, *lost]]
    rows += [row for row in grokked(test=LATE) if row.part in late]
    for drawing in GROKKING.experiment.draw(RULE, Results(rows)):
        assert fate in drawing.caption
