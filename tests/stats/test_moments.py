"""Class moments: any split, any merge order, any type; refused batches leave no trace."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from ncscope.errors import InputError
from ncscope.stats.batch import Workspace
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import ClassStatistics, finish

from ..reference.instances import INSTANCES
from ..reference.moments import reference_moments
from .states import with_means


@dataclass(frozen=True)
class Stream:
    features: Tensor
    labels: Tensor
    k: int

    def moments(self, **options) -> ClassMoments:
        counts = torch.bincount(self.labels, minlength=self.k)
        return ClassMoments(self.k, self.features.shape[1], class_counts=counts, **options)

    def gathered(self, pieces: list[Tensor], **options) -> ClassMoments:
        """Moments of the samples whose indices are given, a batch a piece."""
        moments = self.moments(**options)
        for index in pieces:
            moments.update(self.features[index], self.labels[index])
        return moments


@st.composite
def streams(draw) -> Stream:
    n, d, k = draw(st.integers(2, 40)), draw(st.integers(1, 6)), draw(st.integers(2, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    labels = torch.randint(k, (n,), generator=generator)
    labels[:2] = torch.arange(2)
    means = torch.randn(k, d, generator=generator, dtype=torch.float64)
    offset = draw(st.sampled_from([0.0, 1e4]))
    spread = draw(st.sampled_from([1.0, 1e-4])) * (1 + offset / 100)
    noise = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return Stream(means[labels] + spread * noise + offset, labels, k)


priors = st.sampled_from(["empirical", "uniform"])


def assert_same_statistics(found: ClassMoments, expected: ClassMoments, rel: float) -> None:
    """Each statistic to `rel` of its own largest entry; means to `rel` of the features' size."""
    state = with_means(found.state_dict())
    assert found.state_dict().keys() == expected.state_dict().keys()
    for name, wanted in with_means(expected.state_dict()).items():
        scale = float(wanted.abs().max()) if wanted.numel() else 0.0
        torch.testing.assert_close(
            state[name], wanted, rtol=0, atol=rel * scale, msg=lambda m, n=name: n + m
        )


@pytest.mark.slow
@given(streams(), priors, st.data())
def test_any_split_and_any_merge_order_give_the_same(stream: Stream, prior: str, data) -> None:
    whole = stream.gathered([torch.arange(len(stream.labels))], prior=prior)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream.labels)), max_size=6)))
    order = torch.tensor(data.draw(st.permutations(range(len(stream.labels)))))
    pieces = list(order.tensor_split(cuts))
    assert_same_statistics(stream.gathered(pieces, prior=prior), whole, 1e-10)
    parts = [stream.gathered([piece], prior=prior) for piece in pieces]
    while len(parts) > 1:
        i, j = data.draw(st.permutations(range(len(parts))))[:2]
        parts[i].merge(parts[j])
        parts.pop(j)
    assert_same_statistics(parts[0], whole, 1e-10)


@pytest.mark.parametrize("name", INSTANCES)
def test_equal_the_reference(name: str) -> None:
    instance = INSTANCES[name]()
    labels = torch.as_tensor(instance.labels)
    stream = Stream(torch.as_tensor(instance.features), labels, instance.num_classes)
    wanted = reference_moments(
        instance.features, instance.labels, num_classes=instance.num_classes, prior=instance.prior
    )
    for batch in (1, 7, 1000):
        pieces = list(torch.arange(len(labels)).split(batch))
        assert_as_the_reference(finish(stream.gathered(pieces, prior=instance.prior)), wanted)


def assert_as_the_reference(stats: ClassStatistics, wanted: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(stats.classes, wanted["classes"])
    np.testing.assert_array_equal(stats.counts, wanted["counts"])
    traces = np.trace(wanted["class_scatters"], axis1=1, axis2=2)
    pairs = {
        "prior": (stats.prior, wanted["priors"]),
        "means": (stats.means, wanted["means"]),
        "global mean": (stats.global_mean, wanted["grand_mean"]),
        "within": (stats.within, wanted["within"]),
        "class traces": (stats.class_traces, traces),
        "within trace": (stats.within_trace, np.trace(wanted["within"])),
        "between trace": (stats.between_trace, np.trace(wanted["between"])),
    }
    for what, (found, value) in pairs.items():
        scale = np.abs(value).max()
        np.testing.assert_allclose(found, value, rtol=0, atol=1e-11 * scale, err_msg=what)


def test_directions_equal_those_of_the_unit_vectors() -> None:
    features, labels = torch.randn(30, 4, dtype=torch.float64), torch.arange(30) % 3
    features[7] = 0
    moments = Stream(features, labels, 3).gathered(list(torch.arange(30).split(8)))
    stats = finish(moments)
    unit = torch.nn.functional.normalize(features)
    direct = finish(Stream(unit, labels, 3).gathered([torch.arange(30)]))
    torch.testing.assert_close(stats.unit_means, direct.means)
    torch.testing.assert_close(stats.unit_class_traces, direct.class_traces)
    assert stats.zero_vectors == 1


def test_wide_scatter_is_summed_by_blocks() -> None:
    """From 256 dimensions on only the upper blocks are computed."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 259, dtype=torch.float64, generator=generator)
    labels = torch.arange(40) % 3
    moments = Stream(features, labels, 3).gathered(list(torch.arange(40).split(15)))
    centred = features - moments.means[labels]
    torch.testing.assert_close(moments.state_dict()["scatter"], centred.T @ centred)
    torch.testing.assert_close(finish(moments).within, centred.T @ centred / 40)


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
@pytest.mark.parametrize("statistics", [(), ("scatter",), ("directions",), None])
def test_state_survives_a_file_and_gathering_goes_on(prior, statistics, tmp_path) -> None:
    options = {"prior": prior} | ({} if statistics is None else {"statistics": statistics})
    stream = Stream(torch.randn(20, 3, dtype=torch.float64), torch.arange(20) % 4, 4)
    early, late = torch.arange(20).split(11)
    moments = stream.gathered([early], **options)
    save_file(moments.state_dict(), tmp_path / "moments.safetensors")
    restored = stream.moments(**options)
    restored.load_state_dict(load_file(tmp_path / "moments.safetensors"))
    assert_same_statistics(restored, moments, 0)
    for one in (moments, restored):
        one.update(stream.features[late], stream.labels[late])
    assert_same_statistics(restored, moments, 0)


def test_state_is_a_copy() -> None:
    stream = Stream(torch.randn(6, 2), torch.arange(6) % 2, 2)
    moments, other = stream.gathered([torch.arange(6)]), stream.moments()
    state = moments.state_dict()
    other.load_state_dict(state)
    before = {name: value.clone() for name, value in state.items()}
    moments.update(stream.features, stream.labels)
    other.update(stream.features, stream.labels)
    torch.testing.assert_close(state, before, rtol=0, atol=0)


def test_merging_leaves_the_other_as_it_was() -> None:
    stream = Stream(torch.randn(9, 2), torch.arange(9) % 3, 3)
    one, other = (stream.gathered([torch.arange(9)]) for _ in range(2))
    before = other.state_dict()
    one.merge(other)
    torch.testing.assert_close(other.state_dict(), before, rtol=0, atol=0)
    assert one.counts.tolist() == [6, 6, 6]


def test_a_state_of_another_shape_is_refused() -> None:
    state = ClassMoments(2, 3).state_dict()
    for other in (ClassMoments(3, 3), ClassMoments(2, 3, statistics=())):
        with pytest.raises(InputError, match="build the moments alike"):
            other.load_state_dict(state)


@pytest.mark.parametrize("counts", [None, torch.tensor([3, 3, 3])])
def test_the_uniform_prior_needs_class_counts(counts) -> None:
    with pytest.raises(InputError, match=r"class_counts.*bincount"):
        ClassMoments(2, 3, prior="uniform", class_counts=counts)


def test_the_uniform_prior_without_scatter_needs_none() -> None:
    moments = ClassMoments(2, 1, prior="uniform", statistics=())
    moments.update(torch.tensor([[0.0], [2.0], [4.0]]), torch.tensor([0, 0, 1]))
    assert finish(moments).prior.tolist() == [0.5, 0.5]
    assert float(finish(moments).within_trace) == 0.5


def test_class_counts_that_turn_out_wrong_are_refused() -> None:
    counts = torch.tensor([2, 2])
    moments = ClassMoments(2, 1, prior="uniform", class_counts=counts)
    moments.update(torch.tensor([[0.0], [2.0], [4.0]]), torch.tensor([0, 0, 1]))
    with pytest.raises(InputError, match="1 samples of class 1, class_counts says 2"):
        finish(moments)
    moments.update(torch.tensor([[5.0]]), torch.tensor([1]))
    finish(moments)


def test_a_scatter_pooled_for_another_prior_is_refused() -> None:
    moments = ClassMoments(2, 1)
    moments.update(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1]))
    with pytest.raises(InputError, match="prior='uniform'"):
        finish(moments, "uniform")


ALIKE = {"prior": "uniform", "class_counts": torch.tensor([1, 2])}
UNLIKE = [
    (2, 4, ALIKE),
    (3, 3, {**ALIKE, "class_counts": torch.tensor([1, 2, 3])}),
    (2, 3, {**ALIKE, "class_counts": torch.tensor([2, 1])}),
    (2, 3, {"prior": "empirical"}),
    (2, 3, {**ALIKE, "statistics": ("scatter",)}),
    (2, 3, {**ALIKE, "statistics": ()}),
]


@pytest.mark.parametrize(("k", "d", "options"), UNLIKE)
def test_merging_refuses_moments_of_something_else(k: int, d: int, options) -> None:
    moments = ClassMoments(2, 3, **ALIKE)
    with pytest.raises(InputError, match="build both alike"):
        moments.merge(ClassMoments(k, d, **options))
    moments.merge(ClassMoments(2, 3, **ALIKE))


FINE = torch.ones(3, 2)
BAD_BATCHES = {
    "a label too large": (FINE, torch.tensor([0, 1, 5]), "label 5 at row 2"),
    "a negative label": (FINE, torch.tensor([0, -1, 1]), "label -1 at row 1"),
    "a broken label": (FINE, torch.tensor([0.0, 0.5, 1]), "label 0.5 at row 1"),
    "a NaN label": (FINE, torch.tensor([0.0, float("nan"), 1]), r"1 of 3 missing \(NaN\)"),
    "an infinite label": (FINE, torch.tensor([0.0, 1, float("inf")]), "label inf at row 2"),
    "too few labels": (FINE, torch.tensor([0, 1]), r"labels of shape \(2,\) for 3 rows"),
    "labels in a column": (FINE, torch.tensor([[0], [1], [1]]), r"labels of shape \(3, 1\)"),
    "complex labels": (FINE, torch.tensor([1j, 0, 1]), "dtype torch.complex64"),
    "another dimension": (torch.ones(3, 5), torch.tensor([0, 1, 1]), "dimension 5"),
    "one vector": (torch.ones(2), torch.tensor([0, 1]), r"shape \(2,\)"),
    "maps": (torch.ones(3, 2, 2), torch.tensor([0, 1, 1]), r"shape \(3, 2, 2\)"),
    "complex features": (FINE * 1j, torch.tensor([0, 1, 1]), "complex64"),
    "boolean features": (FINE > 0, torch.tensor([0, 1, 1]), "dtype torch.bool"),
    "NaN": (FINE * torch.tensor([[1], [float("nan")], [1]]), torch.tensor([0, 1, 1]), "1 of 3"),
    "infinity": (FINE.index_fill(0, torch.tensor(2), torch.inf), torch.tensor([0, 1, 1]), "row 2"),
    "infinities that cancel": (
        torch.tensor([[torch.inf, 0], [-torch.inf, 0], [0, 0]]),
        torch.tensor([0, 0, 1]),
        "2 of 3 rows, the first is row 0",
    ),
}


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("what", BAD_BATCHES)
def test_a_refused_batch_changes_nothing(what: str) -> None:
    features, labels, message = BAD_BATCHES[what]
    moments = ClassMoments(2, 2)
    moments.update(torch.randn(5, 2), torch.tensor([0, 1, 1, 0, 1]))
    before = moments.state_dict()
    with pytest.raises(InputError, match=message):
        moments.update(features, labels)
    torch.testing.assert_close(moments.state_dict(), before, rtol=0, atol=0)


def test_an_infinity_far_down_a_long_batch_is_refused() -> None:
    """Beyond the first chunk, and in half precision, whose largest value is no infinity."""
    features = torch.full((70_000, 2), 65504.0, dtype=torch.float16)
    moments = ClassMoments(2, 2)
    moments.update(features, torch.arange(70_000) % 2)
    assert moments.means.tolist() == [[65504.0] * 2] * 2
    features[69_999, 1] = torch.inf
    with pytest.raises(InputError, match="in 1 of 70000 rows, the first is row 69999"):
        moments.update(features, torch.arange(70_000) % 2)
    assert int(moments.counts.sum()) == 70_000


def test_an_empty_batch_is_nothing() -> None:
    moments = ClassMoments(2, 3)
    moments.update(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    assert int(moments.counts.sum()) == 0


@pytest.mark.parametrize("samples", [[], [0, 0, 0]])
def test_fewer_than_two_classes_cannot_be_finished(samples: list[int]) -> None:
    moments = ClassMoments(3, 1)
    moments.update(torch.ones(len(samples), 1), torch.tensor(samples, dtype=torch.int64))
    with pytest.raises(InputError, match="at least two classes"):
        finish(moments)


def test_only_what_is_asked_for_is_allocated() -> None:
    d = 20_000  # a d x d matrix would take 3.2 GB
    moments = ClassMoments(3, d, statistics=())
    moments.update(torch.randn(6, d), torch.arange(6) % 3)
    moments.merge(moments)
    stats = finish(moments)
    assert moments.scatter is moments.unit_means is moments.unit_traces is None
    assert stats.within is stats.unit_means is stats.unit_class_traces is None
    assert float(stats.within_trace) > 0
    gc.collect()
    tensors = [o for o in gc.get_objects() if issubclass(type(o), Tensor)]
    assert max(tensor.numel() for tensor in tensors) < d**2


@pytest.mark.parametrize("statistics", [(), ("scatter",), ("directions",)])
def test_gathers_what_is_asked_for(statistics) -> None:
    names = set(ClassMoments(2, 3, statistics=statistics).state_dict())
    wanted = {"counts", "pilot", "offsets", "traces"}
    wanted |= {"scatter"} & set(statistics)
    wanted |= {"unit_means", "unit_traces", "zero_vectors"} if "directions" in statistics else set()
    assert names == wanted


@pytest.mark.usefixtures("unchecked_signatures")
def test_unknown_statistics_and_priors_are_refused() -> None:
    with pytest.raises(InputError, match="median"):
        ClassMoments(2, 3, statistics=("median",))
    with pytest.raises(InputError, match="'balanced'"):
        ClassMoments(2, 3, prior="balanced")


@pytest.mark.usefixtures("unchecked_signatures")
def test_arrays_lists_and_tensors_with_gradients_are_taken():
    rows, labels = [[0.0, 1.0], [2.0, 3.0], [4.0, 9.0]], [0, 1, 1]
    kinds = (rows, np.array(rows), torch.tensor(rows, requires_grad=True))
    for kind in kinds:
        moments = ClassMoments(2, 2)
        moments.update(kind, labels)
        assert moments.means.tolist() == [[0.0, 1.0], [3.0, 6.0]]


def test_statistics_weighted_for_other_counts_are_refused():
    counts = [torch.tensor([10] * 8 + tail) for tail in ([10, 90], [90, 10])]
    one, other = (ClassMoments(10, 2, prior="uniform", class_counts=c) for c in counts)
    with pytest.raises(InputError):
        one.merge(other)
    with pytest.raises(InputError):
        one.load_state_dict(other.state_dict())
    with pytest.raises(InputError):
        ClassMoments(10, 2).load_state_dict(one.state_dict())


def test_another_unit_scales_every_statistic_by_its_power() -> None:
    moments = ClassMoments(3, 4)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    moments.update(features, torch.arange(30) % 3)
    plain = finish(moments)
    scaled = plain.in_unit(plain.exponent - 3)
    assert scaled.exponent == plain.exponent - 3
    assert torch.equal(scaled.means, 8 * plain.means)
    assert torch.equal(scaled.class_traces, 64 * plain.class_traces)
    assert torch.equal(scaled.within, 64 * plain.within)
    assert plain.in_unit(plain.exponent) is plain


def test_a_class_at_the_centre_has_no_direction() -> None:
    moments = ClassMoments(3, 2)
    features = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]).double() + 0.1
    moments.update(features.repeat(4, 1), torch.arange(12) % 3)
    stats = finish(moments)
    for means in (stats.centred, stats.frame):
        assert torch.equal(means[1], torch.zeros(2).double())
        assert means[[0, 2]].norm() == pytest.approx(2**0.5)


@pytest.mark.parametrize(("apart", "coincide"), [(2.0**-46, True), (2.0**-45, False)])
def test_means_as_far_from_their_centre_as_rounding_coincide_with_it(
    apart: float, coincide: bool
) -> None:
    """32 rounding units of the longest mean, 1, are 2^-47: half of the first distance."""
    moments = ClassMoments(2, 1)
    moments.update(torch.tensor([[1.0], [1 - apart]], dtype=torch.float64), torch.arange(2))
    stats = finish(moments)
    expected = [[0.0], [0.0]] if coincide else [[apart / 2], [-apart / 2]]
    assert stats.frame.tolist() == stats.centred.tolist() == expected


@pytest.mark.parametrize("power", [-600, 600])
def test_a_batch_whose_squares_leave_the_range_is_refused(power: int) -> None:
    features = torch.eye(3).double() * 2.0**power
    with pytest.raises(InputError, match="scale them by a power of two"):
        ClassMoments(3, 3).update(features, torch.arange(3))


@pytest.mark.parametrize(("distance", "reads"), [(0.0, 1), (1.0, 1), (3.0, 2), (1e6, 2)])
def test_traces_from_the_first_read_keep_their_digits(
    distance: float, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is read again only where the class means are far larger than the spread."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(120) % 3
    features = torch.randn(120, 5, generator=generator).double()
    features[:, 0] += distance * torch.tensor([5**0.5, -(5**0.5), 0.0]).double()[labels]
    rows = [[Fraction(value) for value in row] for row in features.tolist()]
    expected = []
    for c in range(3):
        columns = list(zip(*rows[c::3], strict=True))
        expected.append(sum(sum((v - sum(x) / 40) ** 2 for v in x) for x in columns))
    seen, chunks = [], Workspace.iterate_chunks

    def spied(space: Workspace, *args: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        seen.append(1)
        return chunks(space, *args)

    monkeypatch.setattr(Workspace, "iterate_chunks", spied)
    moments = ClassMoments(3, 5, statistics=())
    moments.update(features, labels)
    assert len(seen) == reads
    exact = torch.tensor([float(value) for value in expected], dtype=torch.float64)
    torch.testing.assert_close(moments.traces, exact, rtol=2e-15, atol=0)
