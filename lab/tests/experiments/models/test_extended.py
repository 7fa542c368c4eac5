"""The experiment on the extended model: separation of levels."""

import pytest
from lab.tests.experiments.models.stories import EXTENDED as STORY
from lab.tests.observed import changed

from ncscope_lab.experiments.models.extended import separate_levels
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Runs


@pytest.mark.slow
def test_levels_that_move_together_are_not_separated():
    path = [row for row in STORY.tell() if row.part == "linear"]
    same = Results(changed(row, nc1=0.1) for row in path)
    tenfold = Results(changed(row, nc1=0.1 if row.layer == "H1" else 0.01) for row in path)
    assert separate_levels(Runs.of({}, same)[0]) == 0
    assert separate_levels(Runs.of({}, tenfold)[0]) == pytest.approx(1)
