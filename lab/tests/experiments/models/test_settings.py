"""Models under other settings than those of their stories: what theory says there holds."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from lab.tests.experiments.models.stories import FITS, LINE, SMALL, TWO_LEVELS
from lab.tests.observed import experiment_results

from ncscope_lab.experiment import Experiment
from ncscope_lab.experiments.models import extended, geodesic, mufm, perturbed
from ncscope_lab.experiments.models import ufm as squared
from ncscope_lab.experiments.models import ufm_cross_entropy as entropy
from tests.pace import others_slow

ONE_LEVEL = {**SMALL, "bias": "none"}
WITH_DATA = {"num_classes": 3, "dim": 5, "per_class": 8, "steps": 400, "every": 100}
ZERO = {"weight_decay": 0.4, "feature_decay": 0.4}
LAYERED = {"model": "layered", "depth": 3}
THREE = {"weight_decays": (0.03, 0.03, 0.03), "steps": 300}
Case = tuple[Experiment[Any], Mapping[str, Any], Mapping[str, Any], int, str]
SURE = "The minimum|PFC1"
"""Claims on the minimum, where descent and solver may not arrive."""

CASES: Mapping[str, Case] = {
    **{
        f"ufm, {name}": (squared.EXPERIMENT, ONE_LEVEL, given, count, "")
        for name, given, count in [
            ("two dimensions", {"dim": 2}, 4),
            ("free bias", {"bias": "free"}, 6),
            ("free bias, two dimensions", {"bias": "free", "dim": 2}, 6),
            ("decay", {"bias": "regularised", "bias_decay": 3.0, "rate": 0.4, "steps": 700}, 6),
            ("zero", ZERO, 2),
            ("one sample", {"per_class": 1, "rate": 0.3}, 4),
            ("two classes", {"num_classes": 2}, 5),
        ]
    },
    # What is zero at the start is not claimed.
    "ufm, two samples": (
        *(squared.EXPERIMENT, ONE_LEVEL),
        *({"num_classes": 2, "per_class": 1, "bias": "free", "rate": 0.2}, 4, "none"),
    ),
    **{
        f"cross-entropy, {name}": (entropy.EXPERIMENT, SMALL, given, count, "")
        for name, given, count in [
            ("as it is", {}, 6),
            ("zero", ZERO, 2),
            ("no room", {"num_classes": 4, "dim": 2}, 1),
            ("one sample", {"per_class": 1}, 5),
            ("two classes", {"num_classes": 2}, 5),
        ]
    },
    **{
        f"mufm, {name}": (mufm.EXPERIMENT, WITH_DATA, given, count, SURE)
        for name, given, count in [
            ("as it is", {}, 4),
            ("printed", {"scaling": "printed"}, 4),
            ("layered", LAYERED, 5),
            ("cross-entropy", {"loss": "cross-entropy"}, 4),
            ("layered, cross-entropy", {**LAYERED, "depth": 2, "loss": "cross-entropy"}, 5),
        ]
    },
    **{
        f"geodesic, {orientation}": (
            *(geodesic.EXPERIMENT, dict(LINE), {"orientation": orientation}, 3),
            "Theorem [12]",
        )
        for orientation in ("random", "opposite")
    },
    "geodesic, spread left": (geodesic.EXPERIMENT, dict(LINE), {"spread": 0.5}, 1, "none"),
    "geodesic, large": (geodesic.EXPERIMENT, dict(LINE), {"size": 1e6, "spread": 1e6}, 1, "none"),
    **{
        f"extended, {name}": (extended.EXPERIMENT, dict(TWO_LEVELS), given, count, sure)
        for name, given, count, sure in [
            (
                "one sample",
                {"per_class": 1, "steps": 20, "every": 20, "activation": "linear"},
                4,
                "none",
            ),
            ("linear, three levels", {"activation": "linear", **THREE}, 8, "none"),
            ("zero", {"weight_decays": (1.0, 1.0), "feature_decay": 1.0, "steps": 300}, 2, ""),
        ]
    },
    "perturbed, no noise": (perturbed.EXPERIMENT, dict(FITS), {"noise": 0.0}, 2, ""),
}
QUICK = ("ufm, free bias", "cross-entropy, two classes", "geodesic, random", "extended, one sample")


@pytest.mark.parametrize("name", others_slow(CASES, *QUICK))
def test_what_theory_says_is_claimed_and_holds(name: str) -> None:
    experiment, start, given, count, sure = CASES[name]
    config = experiment.config(**{**start, **given})
    rows = experiment_results(experiment, config)
    claims = experiment.judge(config, rows)
    assert len(claims) == count, [claim.text for claim in claims]
    failing = [claim.text for claim in claims if not claim.held and re.match(sure, claim.text)]
    assert failing == []
    (drawing,) = experiment.draw(config, rows)
    drawing.figure.draw_without_rendering()
    if experiment is squared.EXPERIMENT:
        frame = "OF" if config.bias == "none" else "ETF"
        assert drawing.figure.axes[2].get_title("left") == f"NC2: distance to {frame}"
