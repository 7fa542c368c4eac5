"""Names as labels, and marks to leave out, wherever samples come in parts or are compared."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch

import ncscope
from ncscope import ClassMoments
from ncscope.api.measure_files import measure_files
from ncscope.api.transfer import rank_files
from ncscope.cli import main
from ncscope.errors import InputError
from ncscope.integrations.torchmetrics import NeuralCollapse
from ncscope.stats.merging import merge_across_processes
from ncscope.transfer import check_downstream, choose_probe, rank_checkpoints
from ncscope.transfer.ranking import check_with_outputs
from tests.ranks import joined_ranks

N, K, D = 60, 3, 4
NAMES = ("cat", "dog", "emu")
RNG = np.random.default_rng(0)
CLASSES = RNG.permutation(np.arange(N) % K)
WEIGHT = RNG.normal(size=(K, D))
FEATURES = WEIGHT[CLASSES] + 0.7 * RNG.normal(size=(N, D))
WORDS = np.array(NAMES)[CLASSES]
CUTS = (20, 21, 40)
ORDER = ("emu", "cat", "dog")


def batches(labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(np.split(FEATURES, CUTS), np.split(labels, CUTS), strict=True))


def of_moments(labels: np.ndarray, weight: np.ndarray, **options) -> ncscope.Report:
    moments = ClassMoments(K, D, **options)
    for batch in batches(labels):
        moments.update(*batch)
    return ncscope.measure_moments(moments, weight)


def of_merged_moments(labels: np.ndarray, weight: np.ndarray, **options) -> ncscope.Report:
    states = [ncscope.gather([batch], **options) for batch in batches(labels)]
    restored = ClassMoments(**options)
    restored.load_state_dict(sum(states).state_dict())
    return ncscope.measure_moments(restored, weight)


def of_shards(labels: np.ndarray, weight: np.ndarray, **options) -> ncscope.Report:
    return ncscope.measure_shards([[batch] for batch in batches(labels)], weight=weight, **options)


def of_metric(labels: np.ndarray, weight: np.ndarray, **options) -> dict[str, float]:
    metric = NeuralCollapse(K, D, **options)
    for batch in batches(labels):
        metric.update(*batch, weight)
    return {key: float(value) for key, value in metric.compute().items()}


def of_kept_features(labels: np.ndarray, weight: np.ndarray, **options) -> dict[str, float]:
    return of_metric(labels, weight, keep_features=True, groups=["nc1", "nc3", "nc4"], **options)


def of_batches(labels: np.ndarray, weight: np.ndarray, **options) -> dict[str, float]:
    return asdict(ncscope.batch_information(FEATURES, labels, weight, batch_size=8, **options))


ROUTES: dict[str, Callable] = {
    "moments": of_moments,
    "merged moments": of_merged_moments,
    "shards": of_shards,
    "metric": of_metric,
    "metric, features kept": of_kept_features,
    "batches": of_batches,
}
each_route = pytest.mark.parametrize("route", ROUTES)


def marked(*marks: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels with marks, among them a whole batch; and the mask of the others."""
    labels = CLASSES.copy()
    labels[20] = marks[0]
    labels[5::9] = marks[-1]
    return labels, ~np.isin(labels, marks)


@each_route
@pytest.mark.parametrize("marks", [(-1,), (-100, 255)])
def test_marks_are_left_out(route: str, marks: Sequence[int]) -> None:
    labels, keep = marked(*marks)
    found = ROUTES[route](labels, WEIGHT, ignore_index=marks if len(marks) > 1 else marks[0])
    whole = ncscope.measure(FEATURES[keep], CLASSES[keep], WEIGHT)
    if route == "batches":
        kept = ncscope.batch_information(FEATURES[keep], CLASSES[keep], WEIGHT, batch_size=8)
        assert found == asdict(kept)
        return
    assert len(found) > 10
    assert dict(found) == pytest.approx(
        {key: whole[key] for key in found}, rel=1e-9, abs=1e-12, nan_ok=True
    )
    if isinstance(found, ncscope.Report):
        assert found.num_samples == keep.sum() == 52
        said = " or ".join(map(str, marks))
        assert found.notes[0] == f"8 of 60 samples left out: labelled {said}"


@each_route
def test_names_are_rows_of_the_weight(route: str) -> None:
    numbers = np.array([ORDER.index(word) for word in WORDS])
    found = ROUTES[route](WORDS, WEIGHT, class_names=ORDER)
    np.testing.assert_equal(dict(found), dict(ROUTES[route](numbers, WEIGHT)))
    assert dict(found) != dict(ROUTES[route](CLASSES, WEIGHT))
    if isinstance(found, ncscope.Report):
        assert found.class_names == ORDER


@each_route
@pytest.mark.parametrize("options", [{}, {"class_names": NAMES}], ids=["numbers", "names"])
def test_missing_labels_are_one_sentence(route: str, options: dict) -> None:
    labels = np.where(np.arange(N) == 3, np.nan, CLASSES)
    if options:
        labels = np.where(np.arange(N) == 3, None, WORDS)
    with pytest.raises(InputError, match=r"label for each sample, found 1 of \d+ missing.*row 3"):
        ROUTES[route](labels, WEIGHT, **options)


@pytest.mark.parametrize("route", ["moments", "merged moments", "metric", "metric, features kept"])
def test_names_in_a_stream_need_their_order(route: str) -> None:
    with pytest.raises(InputError, match=r"class_names beside labels that are names.*'cat' as a"):
        ROUTES[route](WORDS, WEIGHT)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClassMoments(2, class_names=NAMES), "num_classes=2 classes, found 3 names"),
        (lambda: NeuralCollapse(2, D, class_names=NAMES), "2 classes, .*found 3 names"),
        (lambda: ClassMoments(class_names=["a", "a"]), "'a' twice"),
        (lambda: of_shards(WORDS, WEIGHT, class_names=NAMES[:2]), "3 classes, .*found 2 names"),
        (lambda: of_shards(WORDS, WEIGHT[:2]), "2 classes, .*found 3 names; pass class_names"),
        (lambda: of_shards(WORDS, WEIGHT, class_names=("a", *NAMES[1:])), "found 'cat' at row"),
        (lambda: ClassMoments(class_names=NAMES).merge(ClassMoments(class_names=ORDER)), "named"),
        (
            lambda: ClassMoments(3, ignore_index=-1).merge(ClassMoments(3, ignore_index=[0, 1])),
            r"ignore_index \[-1\], found .* ignore_index \[0, 1\]",
        ),
        (
            lambda: of_shards(np.array([f"{c + 8}" for c in CLASSES]), WEIGHT),
            "texts of numbers, found '10', '8', '9'; pass integers",
        ),
        (
            lambda: ncscope.measure(FEATURES, [f"{c + 8}" for c in CLASSES], WEIGHT),
            "texts of numbers, found '10', '8', '9'; pass integers",
        ),
        (
            lambda: ncscope.measure(FEATURES, [f"{c - 1}" for c in CLASSES], ignore_index=-1),
            "numbers beside ignore_index, found the text '-1'; convert",
        ),
        (
            lambda: ncscope.measure_shards([[(FEATURES, WORDS)], [(FEATURES, CLASSES)]]),
            "labels of one kind, found names and numbers",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_merged_moments_keep_names_and_what_was_left_out() -> None:
    parts = []
    for rows in (slice(0, 30), slice(30, N)):
        part = ClassMoments(class_names=NAMES, ignore_index=0)
        part.update(FEATURES[rows], CLASSES[rows])
        parts.append(part)
    total = sum(parts)
    assert total.class_names == NAMES
    assert int(total.left_out) == (CLASSES == 0).sum()
    counts = total.counts.clone()
    with pytest.raises(InputError, match="finite"):
        total.update(np.full((2, D), np.nan), [0, 1])
    assert int(total.left_out) == (CLASSES == 0).sum()
    assert torch.equal(total.counts, counts)
    with pytest.raises(InputError, match="emu, dog"):
        total.merge(ClassMoments(class_names=("cat", "emu", "dog")))


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
def test_names_are_numbered_the_same_in_all_shards(prior: str, tmp_path) -> None:
    order = np.argsort(WORDS, kind="stable")  # no shard has all names
    parts = [order[:21], order[21:21], order[21:]]
    files = []
    for number, rows in enumerate(parts):
        files.append(str(tmp_path / f"{number}.npz"))
        np.savez(files[-1], features=FEATURES[rows], labels=WORDS[rows])
    wanted = ncscope.measure(FEATURES[order], CLASSES[order], WEIGHT, prior=prior)
    for report in (
        ncscope.measure_shards(files, weight=WEIGHT, prior=prior),
        measure_files(files, work=tmp_path / "work", weight=WEIGHT, prior=prior),
        measure_files(files, work=tmp_path / "work", weight=WEIGHT, prior=prior),  # of the states
    ):
        assert report.class_names == NAMES
        values = {key: wanted[key] for key in report}
        assert dict(report) == pytest.approx(values, rel=1e-9, abs=1e-12, nan_ok=True)
        assert {row["class_name"] for row in report.per_class.rows()} == set(NAMES)


def test_a_state_of_another_mark_is_not_used(tmp_path) -> None:
    labels, keep = marked(-1)
    np.savez(tmp_path / "a.npz", features=FEATURES, labels=np.where(keep, labels, 2))
    for marks in (None, 2):
        options = {"ignore_index": marks, "groups": ["nc4"], "num_classes": K}
        report = measure_files([str(tmp_path / "a.npz")], work=tmp_path / "work", **options)
        assert report.num_samples == (N if marks is None else (np.where(keep, labels, 2) < 2).sum())


def test_a_metric_counts_what_it_left_out() -> None:
    labels = marked(-1)[0]
    for keep_features in (False, True):
        metric = NeuralCollapse(
            K, D, ignore_index=-1, keep_features=keep_features, groups=["nc1", "nc2"]
        )
        for batch in batches(labels):
            metric(*batch)
        metric.compute()
        assert metric.notes[0] == "8 of 60 samples left out: labelled -1"
        metric.reset()
        metric.update(FEATURES, CLASSES)
        metric.compute()
        assert not any("left out: labelled" in note for note in metric.notes)


def merge_ranks(rank: int) -> list[Any]:
    """What a rank with every other sample knows after merging."""
    rows, labels = slice(rank, None, 2), marked(-1)[0]
    options: dict[str, Any] = {"ignore_index": -1, "class_names": NAMES}
    moments = ClassMoments(K, D, **options)
    moments.update(FEATURES[rows], labels[rows])
    merged = ncscope.measure_moments(merge_across_processes(moments))
    metric = NeuralCollapse(K, D, **options)
    metric.update(FEATURES[rows], labels[rows])
    value = metric.compute()["nc1"].item()
    return [merged.notes[0], merged["nc1"], merged.class_names, metric.notes[0], value]


def test_ranks_count_together_what_they_left_out(tmp_path) -> None:
    labels, keep = marked(-1)
    note = "8 of 60 samples left out: labelled -1"
    nc1 = pytest.approx(ncscope.measure(FEATURES[keep], labels[keep])["nc1"])
    for found in joined_ranks(2, tmp_path, merge_ranks):
        assert found == [note, nc1, list(NAMES), note, nc1]


@pytest.mark.slow
def test_checkpoints_are_ranked_alike_by_names_and_without_marks() -> None:
    outputs = np.abs(FEATURES) / np.abs(FEATURES).sum(1, keepdims=True)
    labels, keep = marked(255)
    words = np.where(keep, WORDS, "none")
    found, source = check_with_outputs(FEATURES, labels, outputs, ignore_index=255, class_names=())
    wanted = check_downstream(FEATURES[keep], CLASSES[keep])
    assert all(map(torch.equal, found, wanted))
    assert source is not None
    assert source.probabilities is not None
    np.testing.assert_allclose(source.probabilities, outputs[keep], rtol=1e-14)
    options = {"source_probabilities": {"it": outputs}, "expensive": False}
    by_mark = rank_checkpoints({"it": FEATURES}, labels, ignore_index=255, **options)
    options["source_probabilities"] = {"it": outputs[keep]}
    assert by_mark == rank_checkpoints({"it": FEATURES[keep]}, words[keep], **options)


@pytest.mark.slow
def test_names_of_held_out_samples_are_those_of_training() -> None:
    rows = {"far": FEATURES}
    few = np.flatnonzero(CLASSES > 0)[:20]  # without the first class
    options = {"test_features": {"far": FEATURES[few]}, "expensive": False}
    wanted = rank_checkpoints(rows, CLASSES, test_labels=CLASSES[few], **options)
    assert rank_checkpoints(rows, WORDS, test_labels=WORDS[few], **options) == wanted
    choice = choose_probe(FEATURES, CLASSES, FEATURES[few], CLASSES[few], strengths=[1e-2])
    for labels, held_out in ((WORDS, WORDS[few]), ([WORDS[:9], WORDS[9:]], [WORDS[few]])):
        found = choose_probe(FEATURES, labels, FEATURES[few], held_out, strengths=[1e-2])
        assert found.validation == choice.validation


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([*WORDS[1:], None], "1 of 60 missing"),
        (CLASSES - 1, r"found label -1; .* ignore_index=-1 .* keep = labels != -1 before"),
    ],
)
def test_downstream_labels_that_do_not_do(labels: Sequence, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_downstream(FEATURES, labels)


@pytest.mark.slow
def test_the_command_leaves_out_and_names(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> dict:
        with pytest.raises(SystemExit) as stopped:
            main([*words, "--json"])
        assert stopped.value.code == 0
        return json.loads(capsys.readouterr().out)

    labels, keep = marked(-1, 255)
    np.savez("marked.npz", features=FEATURES, labels=labels)
    np.savez("named.npz", features=FEATURES, labels=WORDS)
    wanted = ncscope.measure(FEATURES[keep], CLASSES[keep])
    marks = ("--ignore-index", "-1", "--ignore-index", "255")
    for files in (["marked.npz"], ["marked.npz", "--work", "states"]):
        found = run("measure", *files, *marks, "--groups", "nc1")
        assert found["metrics"]["nc1"] == pytest.approx(wanted["nc1"])
        assert found["notes"][0] == "8 of 60 samples left out: labelled -1 or 255"
    for files in (["named.npz"], ["named.npz", "--work", "states"]):
        assert run("measure", *files, "--groups", "nc1")["provenance"]["class_names"] == list(NAMES)
    found = run("transfer", "--models", "marked.npz", *marks, "--no-expensive")
    report = rank_files(["marked.npz"], ignore_index=(-1, 255), expensive=False)
    assert found == json.loads(report.to_json())
    assert found["samples"] == keep.sum()
