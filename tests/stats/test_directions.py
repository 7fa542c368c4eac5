"""Second moments of directions: their products against the explicit joint matrix, and merging."""

import pytest
import torch

from ncscope.stats import directions
from ncscope.stats.directions import DirectionMoments, MomentProduct, RowProduct, unit_rows
from tests.synchronisations import as_accelerator


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 4, generator=generator) + 1
    labels = torch.randint(0, 3, (50,), generator=generator)
    heads = torch.randn(3, 2, generator=generator).double()
    return rows, labels, heads


def explicit(rows, labels, heads, centre=None):
    """The joint matrix as the sum of outer products of head (x) feature, sample by sample."""
    unit = unit_rows(rows, centre)
    vectors = torch.stack([torch.kron(heads[c], h) for c, h in zip(labels, unit, strict=True)])
    return vectors.T @ vectors


@pytest.mark.parametrize("centred", [False, True])
def test_products_equal_the_explicit_matrix(data, centred):
    rows, labels, heads = data
    centre = rows.double().mean(0) if centred else None
    joint = explicit(rows, labels, heads, centre)
    block = torch.randn(8, 5, generator=torch.Generator().manual_seed(1)).double()
    moments = DirectionMoments(3, 4, centre)
    moments.update(rows[:20], labels[:20])
    moments.update(rows[20:], labels[20:])
    through_moments = MomentProduct(moments.second, heads)
    through_rows = RowProduct([(rows[:7], labels[:7]), (rows[7:], labels[7:])], heads, 4, centre)
    torch.testing.assert_close(through_moments.dense(), joint, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(through_moments(block), joint @ block, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(through_rows(block), joint @ block, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_a_product_by_parts_is_the_whole_one(data, monkeypatch, at_once):
    """Of five vectors, some at a time: 3 classes of 4 numbers of 8 bytes each."""
    monkeypatch.setattr(directions, "_BLOCK_BYTES", 8 * 3 * 4 * at_once)
    rows, labels, heads = data
    block = torch.randn(8, 5, generator=torch.Generator().manual_seed(1)).double()
    widths = []

    class Spied(RowProduct):
        def _multiply_within(self, by_class):
            widths.append(by_class.shape[2])
            return super()._multiply_within(by_class)

    found = Spied([(rows, labels)], heads, 4, None)(block)
    torch.testing.assert_close(found, explicit(rows, labels, heads) @ block)
    assert widths == {1: [1, 1, 1, 1, 1], 2: [2, 2, 1], 5: [5]}[at_once]


class Uploads:
    """Batches that count how often they are read."""

    def __init__(self, rows, labels):
        self.parts, self.reads = list(zip(rows.split(20), labels.split(20), strict=True)), 0

    def __iter__(self):
        self.reads += 1
        return iter(self.parts)


@pytest.mark.parametrize(("left", "reads"), [(10**6, 1), (50 * 4 * 8, 1), (50 * 4 * 8 - 1, 3)])
def test_an_accelerator_keeps_the_rows_if_they_fit(data, monkeypatch, left, reads):
    rows, labels, heads = data
    monkeypatch.setattr(directions, "bytes_to_keep", lambda device: left)
    block = torch.randn(8, 5, generator=torch.Generator().manual_seed(1)).double()
    joint, batches = explicit(rows, labels, heads), Uploads(rows, labels)
    with as_accelerator():
        product = RowProduct(batches, heads, 4, None)
        for _ in range(3):
            torch.testing.assert_close(product(block), joint @ block, rtol=1e-12, atol=1e-12)
    assert batches.reads == reads
    on_cpu = Uploads(rows, labels)
    product = RowProduct(on_cpu, heads, 4, None)
    for _ in range(3):
        product(block)
    assert on_cpu.reads == 3


def test_merging_equals_one_stream_and_keeps_row_numbers(data):
    rows, labels, _ = data
    rows = rows.clone()
    rows[[3, 40]] = 0
    whole, first, second = (DirectionMoments(3, 4) for _ in range(3))
    whole.update(rows, labels)
    first.update(rows[:25], labels[:25])
    second.update(rows[25:], labels[25:])
    first.merge(second)
    torch.testing.assert_close(first.second, whole.second, rtol=1e-13, atol=1e-13)
    assert torch.equal(first.counts, whole.counts)
    assert first.zero_rows == whole.zero_rows == [3, 40]
    assert first.zeros == 2


def test_a_row_at_the_centre_up_to_rounding_has_no_direction():
    centre = torch.tensor([3.0, 4.0]).double()
    rows = torch.stack([centre * (1 + 2**-52), centre + torch.tensor([0.5, 0.0])])
    assert unit_rows(rows, centre).tolist() == [[0.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(("apart", "coincides"), [(2.0**-47, True), (2.0**-46, False)])
def test_a_row_has_a_direction_beyond_32_roundings_of_the_centre(apart, coincides):
    centre = torch.tensor([1.0]).double()
    rows = torch.tensor([[1 + apart], [1 - 2 * apart], [3.0]], dtype=torch.float64)
    assert unit_rows(rows, centre).tolist() == [[0.0 if coincides else 1.0], [-1.0], [1.0]]
    assert directions.zero_rows(rows, centre) == ([0] if coincides else [])
