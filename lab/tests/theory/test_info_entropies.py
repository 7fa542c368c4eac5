"""The instances are what the theorems assume."""

import pytest
import torch

from ncscope.math.frames import orthogonal_frame
from ncscope.metrics.information import pair_entropies
from ncscope_lab.theory.info_entropies import (
    _relu_collapse,
    class_means,
    off_collapse,
    outside_unit_interval,
)


def test_class_means_are_equiangular_and_of_unequal_length() -> None:
    for centred in class_means(torch.Generator().manual_seed(0)):
        k = len(centred)
        lengths = torch.linalg.vector_norm(centred, dim=1)
        unit = centred / lengths[:, None]
        expected = (k * torch.eye(k) - 1).double() / (k - 1)
        torch.testing.assert_close(unit @ unit.mT, expected, atol=1e-12, rtol=0)
        assert lengths.max() > 1.05 * lengths.min()


def test_relu_features_are_non_negative_collapsed_and_not_centred() -> None:
    for k, features, heads in _relu_collapse(torch.Generator().manual_seed(0)):
        assert features.min() >= 0
        assert features.mean(0).norm() > 0
        assert len(features.unique(dim=0)) == len(heads.unique(dim=0)) == k
        assert torch.linalg.matrix_rank(heads) == k - 1


@pytest.mark.parametrize("k", [3, 5, 20])
def test_off_collapse_at_orthogonal_features(k: int) -> None:
    frame = orthogonal_frame(k)
    seen = pair_entropies(frame, frame - frame.mean(0))
    assert seen.mir == pytest.approx(1.0)
    hdr = 1 - torch.tensor(k - 1.0).double().log().item() / torch.tensor(k).double().log().item()
    assert seen.hdr == pytest.approx(hdr)
    assert off_collapse(seen, k) > hdr
    assert abs(outside_unit_interval(seen, k)) < 1e-12
