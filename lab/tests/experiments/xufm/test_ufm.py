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


@pytest.mark.nightly
@pytest.mark.usefixtures("unchecked_signatures")
def test_claims_hold_of_what_the_small_scale_leaves_out() -> None:
    """The verdicts of the small scale are committed."""
    small, paper = (EXPERIMENT.scales[scale] for scale in ("small", "paper"))
    known = {part.name for part in EXPERIMENT.parts(small)}
    others = [part for part in EXPERIMENT.parts(paper) if part.name not in known]
    assert [part.name for part in others] == ["K = 10, no bias", "K = 10, free bias"]
    found = EXPERIMENT.judge(paper, results_of(*others))
    own = [claim for claim in found if claim.text.startswith("K = 10")]
    assert len(own) == 9
    assert not_held(own) == []
