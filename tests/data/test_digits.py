"""The digits are split the same way every time, every image once, every class alike."""

from itertools import combinations

import pytest
import torch

from ncscope.data.digits import read_digits

IMAGES, CLASSES = 1797, 10


def rows(tensor: torch.Tensor) -> list[tuple[float, ...]]:
    return [tuple(row) for row in tensor.tolist()]


def pixels(split_seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Both halves in the original grey levels, which scaling by the training set hides."""
    train, test = (part.tensors[0] for part in read_digits(seed=split_seed))
    lowest = train.min()
    scale = 16 / (train.max() - lowest)
    return ((train - lowest) * scale).round(), ((test - lowest) * scale).round()


def test_same_seed_same_split() -> None:
    for first, again in zip(read_digits(seed=3), read_digits(seed=3), strict=True):
        assert all(map(torch.equal, first.tensors, again.tensors))


def test_another_seed_another_split() -> None:
    labels = [read_digits(seed=seed).test.tensors[1] for seed in (0, 1, 2**32, 2**63 - 1)]
    assert not any(torch.equal(one, other) for one, other in combinations(labels, 2))


def test_every_image_is_in_one_half() -> None:
    train, test = map(rows, pixels(0))
    other = [row for half in pixels(1) for row in rows(half)]
    assert len(set(other)) == IMAGES
    assert sorted(train + test) == sorted(other)


def test_classes_are_split_alike() -> None:
    train, test = read_digits()
    held_out = test.tensors[1].bincount(minlength=CLASSES)
    everything = held_out + train.tensors[1].bincount(minlength=CLASSES)
    assert int(everything.sum()) == IMAGES
    assert (held_out - 0.2 * everything).abs().max() <= 1


@pytest.mark.parametrize("deviation", [1.0, 0.3])
def test_pixels_are_scaled_by_the_training_set(deviation: float) -> None:
    train, test = (part.tensors[0] for part in read_digits(deviation=deviation))
    assert train.mean().item() == pytest.approx(0, abs=1e-5)
    assert train.std().item() == pytest.approx(deviation, rel=1e-5)
    assert test.std().item() != pytest.approx(deviation, rel=1e-5)


def test_types_and_shapes() -> None:
    train, test = read_digits()
    for part, count in ((train, 1437), (test, 360)):
        images, labels = part.tensors
        assert images.shape == (count, 64)
        assert images.dtype == torch.float32
        assert labels.dtype == torch.int64
        assert labels.unique().tolist() == list(range(CLASSES))
