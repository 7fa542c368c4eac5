"""What probes take: labels from 0 of several classes, and strengths above 0."""

import pytest
import torch

from ncscope.errors import InputError
from ncscope.transfer.samples import check_downstream


def test_samples_are_in_float64_with_their_classes() -> None:
    found = check_downstream([[1], [2], [3]], [4, 0, 4])
    assert found.features.dtype == torch.float64
    assert found.features.tolist() == [[1], [2], [3]]
    assert found.labels.tolist() == [4, 0, 4]
    assert found.classes.tolist() == [0, 4]
    assert found.class_indices.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 1, -1], "labels from 0, found label -1"),
        ([2, 2, 2], "at least two classes with samples, found 1 in 3 samples"),
    ],
)
def test_labels_that_do_not_do_are_refused(labels: list[int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_downstream(torch.ones(3, 2), labels)


def test_no_samples_are_refused() -> None:
    with pytest.raises(InputError, match="at least two classes with samples, found 0 in 0"):
        check_downstream(torch.ones(0, 2), torch.zeros(0, dtype=torch.int64))
