"""XUFM figures 3-4 and 8-9: the two scales."""

from ncscope_lab.experiments.xufm.extended import EXPERIMENT

SMALL = EXPERIMENT.scales["small"]


def test_scales_differ_in_the_settings_alone() -> None:
    assert EXPERIMENT.scales["paper"].model_copy(update={"settings": "first"}) == SMALL
    assert len(EXPERIMENT.parts(SMALL)) == 2 * 10 + 4
