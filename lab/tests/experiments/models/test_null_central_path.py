"""Null tests of the central path: claims seldom hold of points in a random order or random points.

The claims are mathematics that a computation checks. The model measures the points of each flow in
a random order, or random features in their place.
"""

from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

import pytest
import torch
from lab.tests.experiments.chance import mixed, not_held, often_held
from lab.tests.observed import results_of
from torch import Tensor

from ncscope_lab.experiments.models import central_path
from ncscope_lab.experiments.models.central_path import EXPERIMENT, CentralPath
from ncscope_lab.observations import Results
from ncscope_lab.surrogates.dynamics.snr import random_features
from ncscope_lab.surrogates.dynamics.unrestricted import State

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
CONFIG = CentralPath(num_classes=3, dim=4, per_class=4, points=17, descent_steps=(16, 32, 64))
RUNS = 3
"""Runs on changed points, from which the draws take their rows."""
KEPT = ("do not change", "Unrestricted, on the path")
"""Parts of the claims on what is so at all times, in whatever order."""
Change = Callable[[list[Any]], list[Any]]


@cache
def real() -> Results:
    return results_of(*EXPERIMENT.parts(CONFIG))


def test_the_flows_bear_out_every_claim() -> None:
    claims = EXPERIMENT.judge(CONFIG, real())
    assert len(claims) == 15
    assert not_held(claims) == []


def changing(patch: pytest.MonkeyPatch, change: Change) -> None:
    """Let the flows and the discrete algorithm yield changed points at the same times."""
    descent = central_path.descend_and_renormalise

    def at_times(flow: Callable[..., Iterator[tuple[float, Any]]]) -> Callable[..., Any]:
        def changed(*given: Any) -> Iterator[tuple[float, Any]]:
            times, points = zip(*flow(*given), strict=True)
            return zip(times, change(list(points)), strict=True)

        return changed

    for name in ("flow", "flow_unrestricted"):
        patch.setattr(central_path, name, at_times(getattr(central_path, name)))
    patch.setattr(
        central_path, "descend_and_renormalise", lambda *given: change([*descent(*given)])
    )


def randomly_ordered() -> Change:
    random = Random(0)
    return lambda points: random.sample(points, len(points))


def at_random() -> Change:
    generator = torch.Generator().manual_seed(0)
    sizes = CONFIG.num_classes, CONFIG.dim, CONFIG.per_class

    def point(old: Any) -> Any:
        features = random_features(*sizes, 0.3, generator)
        if not isinstance(old, State):
            return features
        weight: Tensor = torch.randn(old.weight.shape, dtype=torch.float64, generator=generator)
        return State(weight, torch.zeros_like(old.bias), features)

    return lambda points: [point(old) for old in points]


@pytest.mark.parametrize("change", [randomly_ordered, at_random])
def test_claims_seldom_hold_of_changed_points(
    change: Callable[[], Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    changing(monkeypatch, change())
    runs = [results_of(*EXPERIMENT.parts(CONFIG)) for _ in range(RUNS)]
    found = often_held(lambda random: EXPERIMENT.judge(CONFIG, mixed(runs, random)))
    kept = KEPT if change is randomly_ordered else ()
    assert not {text: n for text, n in found.items() if not any(part in text for part in kept)}
