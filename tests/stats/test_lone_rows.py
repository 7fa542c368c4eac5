"""Rows alone in their class of a batch, and classes new to a stream, add nothing to the scatter."""

import pytest
import torch
from torch import Tensor

from ncscope.math.symmetric import without_zeros
from ncscope.stats import moments as moments_module
from ncscope.stats import scatter
from ncscope.stats.moments import ClassMoments

from ..reference.moments import reference_moments


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
@pytest.mark.parametrize("lone", [0, 3, 40, 60])
def test_they_are_left_out_without_a_change(
    prior: str, lone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = torch.cat([torch.arange(lone), torch.arange(60 - lone) % 5 + 60])
    features = torch.randn(60, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts = 2 * torch.bincount(labels, minlength=65)
    sizes, add = [], scatter.add_gram_

    def counted(total: Tensor, rows: Tensor) -> None:
        sizes.append(len(rows))
        add(total, rows)

    def gathered() -> ClassMoments:
        found = ClassMoments(65, 9, prior=prior, class_counts=counts)
        found.update(features, labels)
        found.update(features.sin(), labels)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(scatter, "add_gram_", counted)
        found = gathered()
    monkeypatch.setattr(moments_module, "without_zeros", lambda rows, zero: rows)
    torch.testing.assert_close(found.scatter, gathered().scatter, rtol=1e-13, atol=1e-14)
    own = 60 - lone if lone >= 8 else 60
    classes = len(labels.unique())
    # No class was there before the first batch, so that no shift of a mean is added.
    assert sizes == [size for size in (own, own, classes) if size]


def test_the_scatter_is_that_of_the_definition() -> None:
    labels = torch.cat([torch.arange(30), torch.tensor([30, 30, 30, 31, 31])])
    features = torch.randn(35, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = ClassMoments(32, 4)
    found.update(features, labels)
    wanted = reference_moments(features, labels)
    scatter = 35 * torch.as_tensor(wanted["within"])
    torch.testing.assert_close(found.state_dict()["scatter"], scatter, rtol=1e-13, atol=1e-13)


def test_an_accelerator_keeps_all_rows() -> None:
    rows, zero = torch.ones(8, 2, device="meta"), torch.ones(8, dtype=torch.bool, device="meta")
    assert without_zeros(rows, zero) is rows
