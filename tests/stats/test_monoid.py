"""Class moments are a monoid: neutral element, order and grouping, growth, pickles, files."""

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ncscope.errors import InputError
from ncscope.stats.directions import DirectionMoments
from ncscope.stats.moments import ClassMoments
from ncscope.stats.paths import CrossMoments
from tests.stats.test_moments import Stream, assert_same_statistics, streams

TOLERANCE = 1e-10


def thirds(stream: Stream, cuts: tuple[int, int], grows: bool) -> list[ClassMoments]:
    """Moments of three parts of a stream, of a fixed size or as large as each part asks for."""
    parts = []
    for index in torch.arange(len(stream.labels)).tensor_split(sorted(cuts)):
        part = ClassMoments() if grows else ClassMoments(stream.k, stream.features.shape[1])
        part.update(stream.features[index], stream.labels[index])
        parts.append(part)
    return parts


few = settings(max_examples=12)
cuts = st.tuples(st.integers(0, 40), st.integers(0, 40))


@few
@given(streams(), cuts, st.booleans())
def test_grouping_and_order_do_not_matter(stream: Stream, cuts, grows: bool) -> None:
    a, b, c = thirds(stream, cuts, grows)
    before = [part.state_dict() for part in (a, b, c)]
    assert_same_statistics((a + b) + c, a + (b + c), TOLERANCE)
    assert_same_statistics(a + b, b + a, TOLERANCE)
    assert_same_statistics(sum([a, b, c]), a + b + c, 0)
    for part, state in zip((a, b, c), before, strict=True):
        assert all(torch.equal(part.state_dict()[name], value) for name, value in state.items())


@few
@given(streams(), st.booleans())
def test_moments_without_samples_are_neutral_to_the_last_bit(stream: Stream, grows: bool) -> None:
    moments, _, _ = thirds(stream, (40, 40), grows)
    for none in (moments.like(), ClassMoments()):
        assert_same_statistics(none + moments, moments, 0)
        assert_same_statistics(moments + none, moments, 0)
    assert_same_statistics(sum([moments]), moments, 0)
    assert sum([moments]) is not moments


@few
@given(streams(), cuts)
def test_moments_that_grow_become_those_of_a_known_size(stream: Stream, cuts) -> None:
    known, grown = (sum(thirds(stream, cuts, grows)) for grows in (False, True))
    seen = int(stream.labels.max()) + 1
    assert (grown.num_classes, grown.dim) == (seen, stream.features.shape[1])
    # Beside moments of the known size they take this size.
    assert_same_statistics(grown + known.like(), known, TOLERANCE)
    assert_same_statistics(known.like() + grown, known, TOLERANCE)


def filled(k: int | None, largest: int, dim: int | None = None) -> ClassMoments:
    moments = ClassMoments(k, dim)
    moments.update(torch.randn(4, 3), torch.tensor([0, 1, 0, largest]))
    return moments


def test_a_known_number_of_classes_stays_and_refuses_more() -> None:
    assert (filled(5, 2) + filled(None, 3)).num_classes == 5
    assert (filled(None, 3) + filled(None, 8)).num_classes == 9
    merged = filled(None, 3).merge(filled(5, 2))
    with pytest.raises(InputError, match=r"labels in 0\.\.4, found label 5"):
        merged.update(torch.randn(1, 3), torch.tensor([5]))
    for one, other in [(filled(5, 2), filled(None, 6)), (filled(5, 2), filled(6, 2))]:
        for a, b in ((one, other), (other, one)):
            with pytest.raises(InputError, match="build both alike"):
                a.merge(b)


def test_the_dimension_is_that_of_the_first_batch() -> None:
    moments = filled(4, 2)
    assert moments.dim == 3
    with pytest.raises(InputError, match="features of dimension 3, found dimension 2"):
        moments.update(torch.randn(1, 2), torch.tensor([0]))
    with pytest.raises(InputError, match="build both alike"):
        moments.merge(ClassMoments(4, 2))


@pytest.mark.parametrize("value", [float("nan"), 1e300])
def test_a_refused_batch_does_not_grow_the_moments(value: float) -> None:
    moments = ClassMoments()
    rows = torch.full((2, 3), value, dtype=torch.float64)
    with pytest.raises(InputError):
        moments.update(rows, torch.tensor([0, 7]))
    assert (moments.num_classes, moments.dim) == (0, 0)
    with pytest.raises(InputError, match=r"bytes of memory for the means of 4,611,686,018,427,387"):
        moments.update(torch.randn(1, 3), torch.tensor([2**62]))
    with pytest.raises(InputError, match="found label -1 at row 0"):
        moments.update(torch.randn(1, 3), torch.tensor([-1]))
    moments.update(torch.randn(0, 3), torch.tensor([], dtype=torch.int64))
    assert (moments.num_classes, moments.dim) == (0, 3)


@pytest.mark.parametrize("k", [None, 9])
def test_a_file_and_a_pickle_hold_all(k: int | None, tmp_path) -> None:
    moments = filled(k, 3)
    save_file(moments.state_dict(), tmp_path / "m.safetensors")
    restored = moments.like()
    restored.load_state_dict(load_file(tmp_path / "m.safetensors"))
    for copied in (restored, pickle.loads(pickle.dumps(moments))):
        assert_same_statistics(copied, moments, 0)
        more = filled(k, 4)
        assert_same_statistics(copied + more, moments + more, 0)
    with pytest.raises(InputError, match="a state of"):
        ClassMoments(2, 3).load_state_dict(moments.state_dict())


def test_only_moments_add() -> None:
    for other in (1, "x", None):
        with pytest.raises(TypeError):
            filled(4, 2) + other
        with pytest.raises(TypeError):
            other + filled(4, 2)


def test_other_accumulators_return_themselves_too() -> None:
    for one in (CrossMoments(2, 3), DirectionMoments(2, 3)):
        assert one.merge(type(one)(2, 3)) is one
