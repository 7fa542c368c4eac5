"""gather and measure_shards: equal to measure of everything, whoever runs the parts."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ncscope
from ncscope.api.gather import DecisionPass, gather
from ncscope.api.shards import ShardPass, merge_moments
from ncscope.stats.moments import ClassMoments
from tests.api.shards import D, K, cut, largest_difference, save_shards

ENTROPIES = {"mir", "mir_centered", "hdr", "hdr_centered", "mutual_information"}


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
@pytest.mark.parametrize("scale", [1.0, 1e-60, 1e60])
def test_equal_to_measure_of_all_samples(prior: str, scale: float) -> None:
    samples = cut(scale=scale)
    head = {"weight": samples.weight, "bias": samples.bias}
    whole = ncscope.measure(*samples.whole, **head, prior=prior)
    parts = ncscope.measure_shards([[part] for part in samples.parts], **head, prior=prior)
    assert set(parts) < set(whole)
    assert set(whole) - set(parts) >= ENTROPIES
    assert {"nc4_disagreement", "ncc_accuracy", "accuracy", "nc3_self_duality"} <= set(parts)
    assert largest_difference(parts, whole) < 1e-10
    assert parts.num_samples == whole.num_samples
    assert any("need all samples at once" in note for note in parts.notes)
    assert not any("ask for the group" in note for note in parts.notes)


def test_without_a_classifier_and_with_groups() -> None:
    samples = cut()
    shards = [[part] for part in samples.parts]
    assert (
        largest_difference(ncscope.measure_shards(shards), ncscope.measure(*samples.whole)) < 1e-10
    )
    report = ncscope.measure_shards(shards, groups=["nc1"], num_classes=K + 3)
    assert (report.num_classes, "nc2_etf" in report) == (K + 3, False)
    assert dict(report) == pytest.approx(dict(ncscope.measure(*samples.whole, groups=["nc1"])))


@pytest.mark.slow
def test_a_pool_of_processes_gives_the_same_bytes(tmp_path) -> None:
    samples = cut()
    files = save_shards(tmp_path, samples, (".npz", ".safetensors"))
    here = ncscope.measure_shards(files, weight=samples.weight)
    with ProcessPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        there = ncscope.measure_shards(files, weight=samples.weight, map=pool.map)
        assert there.record == here.record
        with pytest.raises(ncscope.InputError, match=r"found nothing at .*none\.npz"):
            ncscope.measure_shards([*files, "none.npz"], map=pool.map)


def test_functions_mappings_and_lists_are_shards() -> None:
    samples = cut()
    expected = dict(ncscope.measure_shards([[part] for part in samples.parts]))
    makers = [partial(iter, [part]) for part in samples.parts]
    named = [[dict(zip(("features", "labels"), part, strict=True))] for part in samples.parts]
    for shards in (makers, named):
        assert dict(ncscope.measure_shards(shards)) == expected


@pytest.mark.slow
@settings(max_examples=5)
@given(st.integers(3, 12), st.randoms())
def test_the_tree_depends_on_the_order_of_the_shards_alone(count: int, random) -> None:
    samples = cut((5,) * count)
    shards = [[part] for part in samples.parts]

    def at_random(function, given):
        order = list(range(len(given)))
        random.shuffle(order)
        done = {index: function(given[index]) for index in order}
        return [done[index] for index in range(len(given))]

    report = ncscope.measure_shards(shards, map=at_random, groups=["nc4"])
    assert report.record == ncscope.measure_shards(shards, groups=["nc4"]).record


def test_the_tree_merges_parts_of_equal_size() -> None:
    a, b, c, d, e = (gather([part]) for part in cut((5, 6, 7, 8, 9)).parts)
    expected = (((a + b) + (c + d)) + e).state_dict()
    found = merge_moments([a, b, c, d, e]).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_few_states_are_alive(count: int, monkeypatch) -> None:
    alive = most = 0
    merge = ClassMoments.merge

    def count_merge(self, other):
        nonlocal alive
        alive -= 1
        return merge(self, other)

    monkeypatch.setattr(ClassMoments, "merge", count_merge)

    def one_by_one():
        nonlocal alive, most
        for c in range(count):
            part = ClassMoments(2, 1)
            part.update(torch.ones(1, 1), torch.tensor([c % 2]))
            alive += 1
            most = max(most, alive)
            yield part

    total = merge_moments(one_by_one())
    assert int(total.counts.sum()) == count
    assert most <= count.bit_length() + 1


def bad_inputs() -> dict[str, tuple[dict, str]]:
    samples = cut()
    shards = [[part] for part in samples.parts]
    return {
        "no shards": ({"shards": []}, "samples in the shards, found none in 0 shards"),
        "a single path": ({"shards": "a.npz"}, "a list of shards, found a single path; pass a"),
        "a file named twice": (
            {"shards": ["a.npz", "b.npz", "a.npz"]},
            "each file once, found a.npz twice",
        ),
        "empty shards": ({"shards": [[], []]}, "found none in 2 shards"),
        "a generator": (
            {"shards": [iter(shards[0])]},
            "the 50 samples of the first pass in the second, found 0",
        ),
        "a tuple of arrays": ({"shards": [samples.whole]}, "batches of .*, found a ndarray"),
        "three arrays": ({"shards": [[(1, 2, 3)]]}, "found a tuple of 3"),
        "other names": ({"shards": [[{"x": 1}]]}, "a mapping with the entries x; rename"),
        "a label too large": (
            {"shards": shards, "num_classes": 2},
            r"labels in 0\.\.1, found label [23]",
        ),
        "a transposed weight": (
            {"shards": shards, "weight": samples.weight.T},
            f"features of dimension {K}, as the weight has columns, found dimension {D}; pass the",
        ),
        "a bias alone": ({"shards": shards, "bias": samples.bias}, "a weight along with the bias"),
        "an unknown prior": (
            {"shards": shards, "prior": "even"},
            "prior as 'empirical' or 'uniform'",
        ),
        "an unknown group": ({"shards": shards, "groups": ["nc9"]}, "groups among"),
    }


@pytest.mark.parametrize("case", bad_inputs())
@pytest.mark.usefixtures("unchecked_signatures")
def test_bad_input_is_named(case: str) -> None:
    options, message = bad_inputs()[case]
    with pytest.raises(ncscope.InputError, match=message):
        ncscope.measure_shards(**options)


def test_gather_is_a_pure_function_that_pickles() -> None:
    samples = cut()
    shards = [[part] for part in samples.parts]
    passed = pickle.loads(pickle.dumps(gather))
    moments = sum(passed(shard) for shard in shards)
    report = ncscope.measure_moments(moments, samples.weight, samples.bias)
    assert (
        largest_difference(report, ncscope.measure(*samples.whole, samples.weight, samples.bias))
        < 1e-10
    )
    second = DecisionPass.from_moments(moments, samples.weight, samples.bias)
    second = pickle.loads(pickle.dumps(second))
    decisions = sum(passed(shard, second=second) for shard in shards)
    whole = ncscope.measure(*samples.whole, samples.weight, samples.bias)
    assert decisions.nearest_hits / decisions.samples == whole["ncc_accuracy"]
    assert decisions.head_hits / decisions.samples == whole["accuracy"]


def test_files_are_gathered_by_their_paths(tmp_path) -> None:
    samples = cut()
    files = save_shards(tmp_path, samples, (".npz",))
    moments = sum(gather(file) for file in files)
    report = ncscope.measure_moments(moments)
    assert largest_difference(report, ncscope.measure(*samples.whole)) < 1e-10


def test_a_pass_over_a_file_names_the_file_in_an_error(tmp_path) -> None:
    np.savez(tmp_path / "bad.npz", features=np.full((2, 3), np.nan), labels=[0, 1])
    with pytest.raises(ncscope.InputError, match=r"finite features, .*row 0 \(bad\.npz\)"):
        ShardPass()(str(tmp_path / "bad.npz"))


@pytest.mark.parametrize("wrong", [{"weight_decay": -1.0}, {"bias": np.zeros(K + 1)}])
def test_what_is_wrong_with_the_classifier_is_said_before_reading(wrong: dict) -> None:
    def read() -> None:
        raise AssertionError("read")

    with pytest.raises(ncscope.InputError, match=f"{next(iter(wrong))} (as|of)"):
        ncscope.measure_shards([read], weight=np.ones((K, D)), **wrong)


def test_a_map_that_gives_something_else_is_refused() -> None:
    shard = [(np.eye(4), np.arange(4) % 2)]
    maps = {
        "found None": lambda function, parts: None,
        "found 3 as result 1": lambda function, parts: [3, 3],
        "found 1 results of 2 shards": lambda function, parts: [function(parts[0])],
    }
    for said, apply in maps.items():
        with pytest.raises(
            ncscope.InputError, match=f"a map that gives one result a shard, {said}"
        ):
            ncscope.measure_shards([shard, shard], map=apply)
    with pytest.raises(ncscope.InputError, match="expected batches, found None; let the function"):
        ncscope.measure_shards([lambda: None])


def test_messages_on_marked_samples_name_the_option_that_leaves_them_out():
    shards = [[([[0.0], [1.0], [2.0]], [0, -1, 1])], [([[3.0], [4.0]], [0, 1])]]
    for call in (lambda: ncscope.measure_shards(shards), lambda: gather(shards[0])):
        with pytest.raises(ncscope.InputError, match="leave these samples out: ignore_index=-1"):
            call()
    assert ncscope.measure_shards(shards, ignore_index=-1).num_samples == 4
