"""The landscape of the linear extended model: the paper's remark on saddles, both ways."""

import pytest
from lab.tests.experiments.models.stories import CRITICAL, LANDSCAPE, SADDLES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "verdict"),
    # Points that are not critical decide nothing.
    [("kind", "degenerate", "held"), ("gradient_norm", 1e-3, "undecided")],
)
def test_a_degenerate_saddle_would_be_seen(key: str, value: str | float, verdict: str) -> None:
    found = LANDSCAPE.judge(LANDSCAPE.tell(part=CRITICAL, values={key: value}))
    assert [claim.verdict for claim in found if claim.text == SADDLES] == [verdict]
