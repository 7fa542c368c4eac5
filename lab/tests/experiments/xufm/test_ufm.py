"""XUFM figures 1-2 and 6-7: the two scales, and the claims at the paper's."""

import pytest
from lab.tests.experiments.chance import not_held
from lab.tests.observed import results_of

from ncscope_lab.experiments.xufm.ufm import (
    DECAYS,
    EXPERIMENT,
    NO_DECAYS,
    RELU,
    SWEEP,
)


def test_scales_differ_in_the_settings_alone() -> None:
    small, paper = (EXPERIMENT.scales[scale] for scale in ("small", "paper"))
    assert small == paper.model_copy(update={"settings": "first"})
    names = [f"K = {k}, {bias}" for k in (4, 10) for bias in ("no bias", "free bias")]
    assert [part.name for part in EXPERIMENT.parts(paper)] == [
        *names,
        SWEEP,
        DECAYS,
        NO_DECAYS,
        RELU,
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
def test_all_claims_hold_at_the_papers_scale() -> None:
    paper = EXPERIMENT.scales["paper"]
    results = results_of(*EXPERIMENT.parts(paper))
    assert not_held(EXPERIMENT.judge(paper, results)) == []
    names = [drawing.name for drawing in EXPERIMENT.draw(paper, results)]
    assert names == ["fig-1", "fig-2", "fig-6", "fig-7", "bias-decay"]
