"""Claims of made results: all hold as the paper tells it, each can fail, few hold of nothing."""

import pytest
from lab.tests.experiments.info.stories import STORIES as INFO
from lab.tests.experiments.models.stories import STORIES as MODELS
from lab.tests.experiments.mse.stories import STORIES as MSE
from lab.tests.experiments.pfc.stories import STORIES as PFC
from lab.tests.experiments.story import Story
from lab.tests.experiments.vci.stories import STORIES as VCI
from lab.tests.experiments.xufm.stories import STORIES as XUFM


def marks(story: Story) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] * story.slow


STORIES = [*INFO, *MSE, *PFC, *VCI, *XUFM, *MODELS]
CASES = [
    pytest.param(story, *turn, marks=marks(story), id=f"{story.experiment.id}-{number}")
    for story in STORIES
    for number, turn in enumerate(story.turns)
]


@pytest.mark.parametrize(
    "story", [pytest.param(each, marks=marks(each), id=each.experiment.id) for each in STORIES]
)
def test_every_claim_holds_as_the_paper_tells_it(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patch in story.patches:
        monkeypatch.setattr(*patch)
    claims = story.judge(story.tell())
    assert [claim.text for claim in claims if not claim.held] == [*story.never]
    assert len(claims) == story.count
    assert all(claim.source and claim.evidence for claim in claims)


@pytest.mark.parametrize(("story", "changed", "lost"), CASES)
def test_each_claim_can_fail(story, changed, lost, monkeypatch) -> None:
    for patch in story.patches:
        monkeypatch.setattr(*patch)
    claims = story.judge(story.tell(**changed))
    failing = [
        (place, f"{claim.verdict}: {claim.text}")
        for place, claim in enumerate(claims)
        if not claim.held and claim.text not in story.never
    ]
    assert len(failing) == len(lost), failing
    for (place, line), part in zip(failing, lost, strict=True):
        assert part == place if isinstance(part, int) else part in line
