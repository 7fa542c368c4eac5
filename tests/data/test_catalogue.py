"""Names, sizes and normalisations of data sets that need no files."""

from functools import cache

import pytest
import torch

from ncscope.data.catalogue import (
    CATALOGUE,
    LARGE_TARGETS,
    TRANSFER_TARGETS,
    load,
)
from ncscope.data.images import ImageData
from ncscope.data.names import NAMES
from ncscope.errors import InputError
from tests.data.downstream_on_disk import DOWNSTREAM_WRITERS
from tests.pace import others_slow

MADE = {
    "digits": (10, (1, 8, 8), 1437, 360),
    "warped-digits": (10, (1, 16, 16), 2000, 1000),
    "patterns": (10, (3, 16, 16), 2000, 1000),
    "mnist-5k": (10, (1, 28, 28), 4000, 1000),
    "patterns-20": (20, (3, 16, 16), 2000, 1000),
}

VARIANTS = {
    "warped-digits-6000": (10, (1, 16, 16), 2000, 6000),
    "warped-digits-0-4": (5, (1, 16, 16), 1000, 500),
    "warped-digits-5-9": (5, (1, 16, 16), 1000, 500),
    "clear-patterns": (10, (3, 16, 16), 2000, 1000),
    "patterns-40": (40, (3, 16, 16), 4000, 2000),
    "patterns-100": (100, (3, 16, 16), 2000, 2000),
    "transfer-source": (10, (3, 16, 16), 8000, 3000),
    **dict.fromkeys(list(TRANSFER_TARGETS)[:4], (10, (3, 16, 16), 1000, 3000)),
    "transfer-many": (20, (3, 16, 16), 1000, 3000),
    "gratings": (32, (3, 16, 16), 1984, 1472),
    "gratings-orientation": (8, (3, 16, 16), 1000, 1496),
    "gratings-frequency": (4, (3, 16, 16), 1000, 1500),
    "gratings-colour": (6, (3, 16, 16), 996, 1500),
    "gratings-orientation-colour": (48, (3, 16, 16), 960, 1488),
    "patterns-32": (10, (3, 32, 32), 10_000, 3000),
    "patterns-32-100": (100, (3, 32, 32), 10_000, 3000),
}

LARGE = {
    f"{name}-32": (classes, (3, 32, 32), train, test)
    for name, (classes, _, train, test) in VARIANTS.items()
    if f"{name}-32" in LARGE_TARGETS
}


@cache
def made(name: str) -> ImageData:
    """A set that is made, once for all tests; the largest take seconds."""
    return load(name)


def stacked(images) -> torch.Tensor:
    return torch.stack([images[i][0] for i in range(len(images))])


LONG = {"patterns-32", "patterns-32-100", "transfer-many-32", "gratings-colour-32"}
"""Sets that take seconds to make."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in LONG else name
        for name in [*MADE, *VARIANTS, "transfer-many-32", "gratings-colour-32"]
    ],
)
def test_sizes(name):
    data = made(name)
    found = data.num_classes, data.shape, len(data.train), len(data.test)
    assert found == (MADE | VARIANTS | LARGE)[name]
    assert data.train[0][0].shape == data.test[0][0].shape == data.shape


@pytest.mark.parametrize("name", MADE)
def test_generated_sets_are_standardised_by_their_training_pixels(name):
    pixels = stacked(load(name, seed=1).train)
    torch.testing.assert_close(
        pixels.mean((0, 2, 3)), torch.zeros(len(pixels[0])), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(pixels.std((0, 2, 3)), torch.ones(len(pixels[0])), atol=1e-4, rtol=0)


# MNIST's split is fixed, whatever the seed.
@pytest.mark.parametrize(
    "name", others_slow(sorted(MADE.keys() - {"mnist-5k"}), "warped-digits", "patterns")
)
def test_the_seed_makes_the_set(name):
    one, again, other = (load(name, seed=seed).test for seed in (3, 3, 4))
    assert torch.equal(one[0][0], again[0][0])
    assert not torch.equal(stacked(one), stacked(other))


def test_targets_of_transfer_share_no_pictures() -> None:
    first = {name: made(name).test for name in ("transfer-source", *TRANSFER_TARGETS)}
    pictures = {name: images[0][0] for name, images in first.items()}
    for one in pictures:
        for other in pictures:
            assert (one == other) == torch.equal(pictures[one], pictures[other])


def test_imagenets_normalisation():
    own, theirs = load("patterns"), load("patterns", normalisation="imagenet")
    assert not torch.allclose(own.train[0][0], theirs.train[0][0], atol=0.1)
    with pytest.raises(InputError, match="pass normalisation own"):
        load("digits", normalisation="imagenet")


def test_a_larger_input():
    assert load("digits", size=16).shape == (1, 16, 16)
    with pytest.raises(InputError, match="at least 8 pixels a side for digits, found 7"):
        load("digits", size=7)


def test_an_unknown_name_lists_the_known():
    with pytest.raises(InputError, match=r"found 'imagenett'; pass one of .*imagenet, "):
        load("imagenett")


def test_every_policy_and_statistic_is_of_the_right_kind():
    for name, entry in CATALOGUE.items():
        assert (entry.statistics is None) == (name in MADE | VARIANTS | LARGE)
        assert (entry.native is None) == (name in {"imagenet", *DOWNSTREAM_WRITERS})


def test_names_known_without_torch_are_those_of_the_catalogue() -> None:
    assert list(NAMES) == list(CATALOGUE)
