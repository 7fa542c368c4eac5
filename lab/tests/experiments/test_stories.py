"""Claims of made results: all hold as the paper tells it, each can fail, few hold of nothing."""

import pytest
from lab.tests.experiments.info.stories import STORIES as INFO
from lab.tests.experiments.models.stories import STORIES as MODELS
from lab.tests.experiments.mse.stories import STORIES as MSE
from lab.tests.experiments.pfc.stories import STORIES as PFC
from lab.tests.experiments.story import Story
from lab.tests.experiments.vci.stories import STORIES as VCI
from lab.tests.experiments.xufm.stories import STORIES as XUFM

from ncscope_lab.catalogue import REPRODUCTIONS

pytestmark = pytest.mark.usefixtures("unchecked_signatures")  # most of the time, otherwise
STORIES = {
    f"{story.experiment.id}-{number}": story
    for number, story in enumerate([*INFO, *MSE, *PFC, *VCI, *XUFM, *MODELS])
}
CASES = [
    pytest.param(story, marks=[pytest.mark.slow] * story.slow, id=name)
    for name, story in STORIES.items()
]


@pytest.fixture
def small(story: Story, monkeypatch: pytest.MonkeyPatch) -> Story:
    """The story, with what makes its experiment smaller."""
    for patch in story.patches:
        monkeypatch.setattr(*patch)
    return story


@pytest.mark.parametrize("story", CASES)
def test_every_claim_holds_as_the_paper_tells_it(small: Story) -> None:
    claims = small.judge(small.tell())
    assert [claim.text for claim in claims if not claim.held] == [*small.never]
    assert len(claims) == small.count
    assert all(claim.source and claim.evidence for claim in claims)


@pytest.mark.slow
@pytest.mark.parametrize("story", CASES)
def test_each_claim_can_fail(small: Story) -> None:
    for changed, lost in small.turns:
        failing = [
            (place, f"{claim.verdict}: {claim.text}")
            for place, claim in enumerate(small.judge(small.tell(**changed)))
            if not claim.held and claim.text not in small.never
        ]
        assert len(failing) == len(lost), (changed, failing)
        for (place, line), part in zip(failing, lost, strict=True):
            assert part == place if isinstance(part, int) else part in line, (changed, failing)


def test_every_reproduction_has_a_story() -> None:
    told = {story.experiment.id for story in STORIES.values()}
    assert {*REPRODUCTIONS} - {"mse/central-path"} <= told  # whose model's story is its own
