"""Coverage of the 95 % intervals over repeated draws of Gaussian classes, in the named design."""

import sys
from collections import Counter
from dataclasses import dataclass

import pytest
import torch

import ncscope
from ncscope.metrics.registry import METRICS
from ncscope.stats.options import Redraw

NEVER = {
    "nc2_equinorm_weights",
    "nc2_equiangular_weights",
    "nc2_maxangle_weights",
    "nc2_lognorm_std_weights",
    "nc0",
    "nc0_norm",
    "entropy_weights",
    "minority_cosine_weights",
    "seli_weights",
    "alpha_req_r2",
}
"""Metrics of the classifier alone, of class sizes, and of the quality of a fit."""

DRAWS = 400
DRAWS_IN_CI, LEAST, MOST = 200, 0.915, 0.985
"""Half the draws, between closer ends than 90 and 99 %.

Of 400 draws between those, 12 % miss a coverage of 0.88, and 14 % one of 0.995; of these, 7 and
8 %.
A coverage of 0.85 is missed by 0.4 % in place of 0.2 %.
"""


@dataclass(frozen=True)
class Design:
    """Gaussian classes of different spreads, a linear head, and OOD samples."""

    sizes: tuple[int, ...]
    dim: int
    apart: float
    spread: float
    redraw: Redraw = True
    groups: tuple[str, ...] = ("nc1", "nc2", "nc3", "mse", "spectra")


DECISIONS = ("nc4", "ood")
IN_CI = ("no multiples of the groups", "overlapping classes of random sizes")
DESIGNS = {
    "balanced": Design((60,) * 4, 6, apart=2.0, spread=1.0),
    "imbalanced": Design((300, 120, 60, 40), 6, apart=2.0, spread=1.0),
    "no multiples of the groups": Design((22, 35, 50, 90, 41, 63), 24, apart=1.0, spread=0.05),
    "near collapse": Design((50,) * 6, 24, apart=1.0, spread=0.05),
    "few samples a class": Design((22,) * 5, 8, apart=2.0, spread=1.0),
    "random labels": Design((50,) * 6, 24, apart=1.0, spread=0.05, redraw="random_sizes"),
    "random labels, imbalanced": Design((30, 45, 60, 90), 6, 2.0, 1.0, redraw="random_sizes"),
    "entropies": Design((47,) * 4, 6, apart=2.0, spread=1.0, groups=("information",)),
    "overlapping classes": Design((47,) * 4, 6, apart=1.2, spread=1.0, groups=("nc4",)),
    "overlapping classes of random sizes": Design(
        (60,) * 4, 6, apart=1.2, spread=1.0, redraw="random_sizes", groups=DECISIONS
    ),
    "good head of random sizes": Design(
        (60,) * 4, 6, apart=2.5, spread=1.0, redraw="random_sizes", groups=DECISIONS
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", IN_CI)
def test_intervals_cover_as_often_as_they_say(name: str) -> None:
    """The other designs take minutes each: ``python -m tests.metrics.test_coverage``."""
    rates = coverage(DESIGNS[name], DRAWS_IN_CI)
    rows = {row.key for row in METRICS.values() if row.group in DESIGNS[name].groups} - NEVER
    assert len(rates) >= len(rows) / (4 if "ood" in DESIGNS[name].groups else 2)
    assert {key: rate for key, rate in rates.items() if not LEAST <= rate <= MOST} == {}


def coverage(design: Design, draws: int = DRAWS) -> dict[str, float]:
    """Return how often each metric's interval covers, of the metrics that mostly have one.

    A metric that is near collapse is offered in some draws only, which are not all draws.
    """
    sizes, k, d = torch.tensor(design.sizes), len(design.sizes), design.dim
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    means = design.apart * normal(k, d)
    mix = design.spread * (normal(d, d) / d**0.5 + torch.eye(d, dtype=torch.float64) / 2)
    weight, bias = means / 4 + 0.1 * normal(k, d), 0.1 * normal(k)
    scales = torch.linspace(0.6, 1.4, k, dtype=torch.float64)
    beside = design.apart / 2 * normal(d)

    def draw(times: int, uncertainty: Redraw) -> ncscope.Report:
        if design.redraw == "random_sizes":
            count = times * int(sizes.sum())
            labels = torch.multinomial(sizes.double(), count, True, generator=generator)
        else:
            labels = torch.arange(k).repeat_interleave(times * sizes)
        features = means[labels] + (normal(len(labels), d) @ mix) * scales[labels][:, None] + 0.5
        ood = beside + normal(len(labels) // 3, d) if "ood" in design.groups else None
        options = {"groups": design.groups, "uncertainty": uncertainty, "ood": ood}
        return ncscope.measure(features, labels, weight, bias, **options)

    # A sample of 600,000: its own errors are below a thirtieth of those estimated.
    truth = draw(600_000 // int(sizes.sum()), uncertainty=False)
    offered, covered = Counter[str](), Counter[str]()
    for _ in range(draws):
        report = draw(1, uncertainty=design.redraw)
        for key in report.standard_errors:
            low, high = report.interval(key)
            offered[key] += 1
            covered[key] += low <= truth[key] <= high
    return {key: covered[key] / offered[key] for key in offered if offered[key] > 0.9 * draws}


if __name__ == "__main__":
    for name in sys.argv[1:] or DESIGNS:
        rates = coverage(DESIGNS[name])
        outside = {key: rate for key, rate in rates.items() if not 0.90 <= rate <= 0.99}
        print(
            f"{name}: {len(rates)} metrics, {min(rates.values())} to {max(rates.values())}", outside
        )
