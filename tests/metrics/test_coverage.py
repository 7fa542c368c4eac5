"""Coverage of the jackknife's 95 % intervals over repeated draws of Gaussian classes."""

from collections import Counter

import pytest
import torch

import ncscope
from ncscope.metrics.registry import METRICS
from ncscope.stats.jackknife import T_QUANTILE

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
}
"""Metrics of the classifier alone, and of class sizes."""

DESIGNS = {
    "imbalanced": ([300, 120, 60, 40], 6),
    "few samples a class": ([22] * 5, 8),
}
DRAWS = 500


@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    ("groups", "apart"),
    [
        (["nc1", "nc2", "nc3", "mse", "information", "spectra"], 2.0),
        # Classes that overlap, so that every draw has wrong decisions.
        (["nc4"], 1.2),
    ],
    ids=["moments", "decisions"],
)
@pytest.mark.usefixtures("unchecked_signatures")
def test_intervals_cover_as_often_as_they_say(design: str, groups: list[str], apart: float) -> None:
    sizes, d = DESIGNS[design]
    counts, k = torch.tensor(sizes), len(sizes)
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    means = apart * normal(k, d)
    spread = normal(d, d) / d**0.5 + torch.eye(d, dtype=torch.float64) / 2
    weight, bias = means / 4 + 0.1 * normal(k, d), 0.1 * normal(k)

    def drawn(times: int, uncertainty: bool) -> ncscope.Report:
        labels = torch.arange(k).repeat_interleave(times * counts)
        features = means[labels] + normal(len(labels), d) @ spread + 1
        return ncscope.measure(
            features, labels, weight, bias, groups=groups, uncertainty=uncertainty
        )

    # A sample of 600,000: its own errors are below a thirtieth of those estimated.
    truth = drawn(600_000 // sum(sizes), uncertainty=False)
    offered, covered = Counter[str](), Counter[str]()
    for _ in range(DRAWS):
        report = drawn(1, uncertainty=True)
        for key, error in report.standard_errors.items():
            offered[key] += 1
            distance = abs(report.bias_corrected[key] - truth[key])
            covered[key] += distance <= T_QUANTILE * error
    few = {"ncc_accuracy", "unc3"} if min(sizes) < 40 else set()  # a variance near 0
    if len(set(sizes)) == 1:
        few |= {"minority_cosine_means"}  # no class is smaller than the median
    rows = {row.key for row in METRICS.values() if row.group in groups}
    assert set(offered) >= rows - NEVER - few
    # A metric that is near collapse is offered in some draws only, which are not all draws.
    rates = {key: covered[key] / offered[key] for key in offered if offered[key] > 0.9 * DRAWS}
    assert len(rates) >= (2 if groups == ["nc4"] else 28)
    assert {key: rate for key, rate in rates.items() if not 0.90 <= rate <= 0.99} == {}
