"""Loaders of every kind: their samples are measured, or one line says what is wrong with them."""

from collections import UserDict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

import ncscope
from ncscope import InputError
from ncscope.models.networks.residual import ResidualNet
from ncscope.transfer.features import head_features, head_moments

from ..closeness import assert_agree

K, N = 5, 40
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(N) % K
EMPTY = (X[:0], Y[:0])
FIRST, LAST = (X[:20], Y[:20]), (X[20:], Y[20:])


def model() -> ResidualNet:
    torch.manual_seed(0)
    return ResidualNet(in_features=6, width=4, depth=2, num_classes=K)


class ByName(nn.Module):
    """A model that takes its input by name, as those of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = model()

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        return {"logits": self.net(pixels)}


def measured(batches: object, network: nn.Module | None = None) -> ncscope.ModelReport:
    return ncscope.measure_model(network or model(), batches, progress=False)


def once() -> Iterator[tuple[Tensor, Tensor]]:
    yield from (EMPTY, FIRST, LAST)


def first_as(labels: object) -> list[tuple[Tensor, object]]:
    return [(FIRST[0], labels), LAST]


def last_as(labels: object) -> list[tuple[Tensor, object]]:
    return [FIRST, (LAST[0], labels)]


def named(mapping: type, *batches: tuple[Tensor, Tensor]) -> list[object]:
    return [mapping({"pixels": x, "labels": y}) for x, y in batches]


TAKEN = {
    "an empty batch first": [EMPTY, EMPTY, FIRST, LAST],
    "an empty batch between": [FIRST, EMPTY, LAST],
    "an empty batch last": [FIRST, LAST, EMPTY],
    "empty lists": [(X[:0], []), FIRST, ([], []), LAST],
    "a generator": once(),
    "bytes, then int64": first_as(FIRST[1].to(torch.uint8)),
    "int64, then bytes": last_as(LAST[1].to(torch.uint8)),
    "float, then int64": first_as(FIRST[1].float()),
    "int64, then float": last_as(LAST[1].double()),
    "int64, then a list": last_as(LAST[1].tolist()),
    "int64, then a tuple of tensors": last_as(tuple(LAST[1])),
    "a NumPy array, then int64": first_as(FIRST[1].numpy().astype("<i2")),
}


@pytest.mark.parametrize("name", TAKEN)
def test_the_samples_of_a_loader_are_measured(name: str) -> None:
    expected, found = measured([FIRST, LAST]), measured(TAKEN[name])
    assert found.num_samples == N
    assert_agree(found, dict(expected))
    assert found.model_record.geodesic == expected.model_record.geodesic


@pytest.mark.parametrize("mapping", [dict, UserDict])
def test_the_samples_of_mappings_are_measured(mapping: type) -> None:
    found = measured(named(mapping, EMPTY, FIRST, LAST, EMPTY), ByName())
    assert_agree(found, dict(measured([FIRST, LAST])))


def test_the_encodings_of_a_tokenizer_are_measured() -> None:
    BatchEncoding = pytest.importorskip("transformers").BatchEncoding
    assert_agree(measured(named(BatchEncoding, FIRST, LAST), ByName()), dict(measured([(X, Y)])))


class Table(Dataset[Any]):
    """A data set of samples of any form."""

    def __init__(self, *rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


def triples(*order: int) -> list[Any]:
    """Batches of inputs, labels and indices, in an order."""
    parts = (X.split(16), Y.split(16), torch.arange(N).split(16))
    return [tuple(batch[at] for at in order) for batch in zip(*parts, strict=True)]


SAMPLES = [(x, int(y)) for x, y in zip(X, Y, strict=True)]
FORMS = {
    "a data set": TensorDataset(X, Y),
    "a data set of numbers": Table(*SAMPLES),
    "a data set of mappings": Table(*({"image": x, "label": y} for x, y in SAMPLES)),
    "a list of samples": SAMPLES,
    "a list of labels as tensors": [(x, torch.tensor(y)) for x, y in SAMPLES],
    "a list of mappings": [{"image": x, "target": y} for x, y in SAMPLES],
    "a list of triples": [(x, y, f"{at}.png") for at, (x, y) in enumerate(SAMPLES)],
    "label": [{"image": X, "label": Y}],
    "labels": [{"image": X, "labels": Y}],
    "target": [{"image": X, "target": Y}],
    "targets": [{"image": X, "targets": Y}],
    "the name of the model": [{"x": X, "label": Y}],
    "indices": triples(0, 1, 2),
    "paths": [(X, Y, [f"{index}.png" for index in range(N)])],
}


@pytest.mark.parametrize("form", FORMS)
def test_common_forms_are_taken_without_options(form: str) -> None:
    expected, found = measured([(X, Y)]), measured(FORMS[form])
    assert found.num_samples == N
    assert dict(found) == pytest.approx(dict(expected), rel=1e-9, abs=1e-12, nan_ok=True)


SPLITS: dict[str, tuple[Any, list[Any]]] = {
    "function": (lambda batch: (batch[1], batch[2]), [("a", X, Y)]),
    "function of a triple": (lambda batch: (batch[0], batch[2]), triples(0, 2, 1)),
    "key": ("class", [{"x": X, "class": Y}]),
    "one of several keys": ("target", [{"x": X, "target": Y}]),
    "key of samples": ("class", [{"x": x, "class": y} for x, y in SAMPLES]),
}


@pytest.mark.parametrize("form", SPLITS)
@pytest.mark.parametrize("second_pass", ["store", "recompute"])
def test_split_batch_says_what_the_labels_are(form: str, second_pass: str) -> None:
    function, batches = SPLITS[form]
    report = ncscope.measure_model(
        model(), batches, split_batch=function, second_pass=second_pass, progress=False
    )
    expected = ncscope.measure_model(model(), [(X, Y)], second_pass=second_pass, progress=False)
    assert dict(report) == pytest.approx(dict(expected), rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("form", ["indices", "label", "a data set"])
def test_ood_batches_have_the_forms_of_the_loader(form: str) -> None:
    def outside(batches: object, **options: Any) -> dict[str, float]:
        options |= {"layers": [], "groups": ["ood"], "progress": False}
        return dict(ncscope.measure_model(model(), [(X, Y)], ood=batches, **options))

    expected = outside([X])
    assert outside(FORMS[form]) == pytest.approx(expected, nan_ok=True)
    split = {"split_batch": lambda batch: (batch[0], batch[1])}
    for batches in ([X], [(X, Y, "a")]):
        assert outside(batches, **split) == pytest.approx(expected, nan_ok=True)


class TwoInputs(nn.Module):
    """A model of texts and their lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.net = model()

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        return self.net(rows / lengths[:, None])


def test_a_second_input_is_not_taken_for_labels() -> None:
    batches = [(X, Y + 1, torch.arange(N))]
    with pytest.raises(InputError, match="found tuple of 3; pass split_batch"):
        measured(batches, TwoInputs())
    with pytest.raises(InputError, match="found tuple of 3; pass split_batch"):
        measured([(X, torch.arange(N), Y)])  # an index, then the labels
    found = measured([((X, Y + 1), Y)], TwoInputs())
    assert_agree(found, dict(measured([(X / (Y + 1)[:, None], Y)])))


@pytest.mark.parametrize("to_entry", [torch.clone, Tensor.tolist])
def test_a_third_entry_that_may_be_the_labels_is_refused(to_entry: Any) -> None:
    domains, labels = torch.arange(N) % 2, torch.randperm(N)
    batch = (X, domains, to_entry(labels))  # all labels differ, as indices would
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, N))
    with pytest.raises(InputError, match="the second or the third may be the labels"):
        measured([batch], network)
    with pytest.raises(InputError, match="found tuple of 3"):
        measured([(X, domains, (labels % 5).tolist())], network)


@pytest.mark.slow
def test_several_views_are_refused_and_the_advice_measures_each() -> None:
    other = X + 0.1
    pairs = [((x, x + 0.1), y) for x, y in SAMPLES]
    for batches in ([([X, other], Y)], list(DataLoader(Table(*pairs), 16)), Table(*pairs)):
        with pytest.raises(InputError, match="2 views of each sample") as error:
            measured(batches)
        function = eval(error.value.fix.partition("split_batch=")[2], {"torch": torch})
        report = ncscope.measure_model(model(), batches, split_batch=function, progress=False)
        expected = dict(measured([(torch.cat([X, other]), Y.repeat(2))]))
        assert dict(report) == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


def exhausted() -> Iterable[object]:
    batches = once()
    list(batches)
    return batches


def words(labels: Tensor) -> list[str]:
    return [str(int(label)) for label in labels]


REFUSED = {
    "no batch": ([], "found an empty loader"),
    "a generator that was read": (exhausted(), "can be read only once"),
    "a loader of an empty set": (DataLoader(TensorDataset(*EMPTY)), "found an empty loader"),
    "empty batches alone": ([EMPTY, ([], []), EMPTY], "found 3 batches without samples"),
    "no loader": (None, "found None; pass a DataLoader"),
    "a number": (3, "found 3; pass a DataLoader"),
    "a stream of samples": (iter(TensorDataset(X, Y)), r"found a single label; .* DataLoader"),
    "one pair": ((X, Y), r"found Tensor; .*\[\(inputs, labels\)\]"),
    "None": ([None], "found NoneType"),
    "None later": ([FIRST, None], "found NoneType"),
    "None between empty batches": ([EMPTY, None, FIRST], "found NoneType"),
    "a word": (["ab"], "found str"),
    "three parts": ([(X, Y, Y)], "found tuple of 3"),
    "two names": ([{"x": X, "label": Y, "target": Y}], "one entry of labels .* split_batch"),
    "other inputs": ([{"x": X, "path": "a", "label": Y}], "takes: x, found also 'path'; .*split"),
    "items of several": (Table(FIRST, LAST), "found a data set of items with 20 labels; .*=None"),
    "samples of two sizes": ([*SAMPLES[:1], (X[0, :2], 1)], "samples as tensors of one size"),
    "one part": ([[X]], "found list of 1"),
    "no labels": ([{"pixels": X, "class": Y}], "found dict with keys pixels, class; .*split_batch"),
    "labels None": ([(X, None)], "found None as labels; give batches of inputs and labels"),
    "labels None by name": ([{"input": X, "labels": None}], "found None as labels"),
    "a list of None": ([(X, [None] * N)], "found 40 of 40 missing, .*out of the loader"),
    "words": ([(X, words(Y))], "found '0'; pass class_names="),
    "words later": ([FIRST, (X, words(Y))], "found '0'; pass class_names="),
    "words of NumPy": ([(X, np.array(words(Y)))], "found '0'; pass class_names="),
    "ragged": ([(X, [[1], [2, 3]])], "labels with rows of one length, found list of list;"),
    "ragged later": (
        [FIRST, (X, [[1], [2, 3]])],
        "labels with rows of one length, found list of list;",
    ),
    "complex labels later": ([FIRST, (X, Y + 1j)], "found dtype torch.complex64"),
    "scores later": ([FIRST, (X, Y / 7)], "found label 0.14"),
    "a column": ([(X, Y[:, None])], r"labels\[:, 0\]"),
    "a column later": ([FIRST, (X, Y[:, None])], r"labels\[:, 0\]"),
    "one-hot later": ([FIRST, (X, nn.functional.one_hot(Y))], r"labels.argmax\(1\)"),
    "labels without inputs": ([(X[:0], Y)], r"inputs of 40 samples, .* found none"),
    "labels without inputs later": ([FIRST, (X[:0], Y)], r"inputs of 40 samples, .* found none"),
    "inputs without labels": ([(X, Y[:0])], r"labels of shape \(0,\) for 40 rows"),
    "inputs without labels later": ([FIRST, (X, [])], r"labels of shape \(0,\) for 40 rows"),
}


def fails(batch: Any) -> Any:
    raise KeyError(batch)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(
    ("split_batch", "message"),
    [
        (fails, "inputs and labels from split_batch, found KeyError"),
        (lambda batch: batch[0], "inputs and labels from split_batch, found a tensor"),
        ("class", "mappings with 'class', as split_batch says, found tuple"),
    ],
)
def test_a_wrong_split_batch_is_refused(split_batch: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ncscope.measure_model(model(), [(X, Y)], split_batch=split_batch, progress=False)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_measured_is_refused_in_one_line(name: str) -> None:
    batches, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as caught:
        measured(batches)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(
    ("labels", "fix"),
    [
        (Y + 1, "from 0: pass labels - 1$"),
        (Y - 1, r"ignore_index=-1; or pass labels \+ 1, if the classes are numbered from -1$"),
    ],
)
def test_a_label_without_a_row_of_the_head_is_refused_with_what_can_be_done(
    labels: Tensor, fix: str
) -> None:
    for batches in ([(X, labels)], [FIRST, (X, labels)]):
        with pytest.raises(InputError, match=rf"labels in 0\.\.4, found label .*{fix}") as caught:
            measured(batches)
        assert "num_classes" not in str(caught.value)  # measure_model has no such argument


def test_the_features_of_a_loader_with_empty_batches() -> None:
    features, labels = head_features(model(), TAKEN["an empty batch first"])
    expected, _ = head_features(model(), [FIRST, LAST])
    assert torch.equal(features, expected)
    assert torch.equal(labels, Y)
    outputs, _ = head_features(nn.Flatten(), [EMPTY, FIRST, LAST], has_head=False)
    assert torch.equal(outputs, X)
    moments = head_moments(model(), [EMPTY, FIRST, EMPTY, LAST], K)
    assert torch.equal(moments.counts, torch.bincount(Y))


@pytest.mark.usefixtures("unchecked_signatures")
def test_features_and_labels_are_matched_batch_by_batch() -> None:
    shifted = [(X[:20], Y[:19]), (X[20:], Y[19:])]  # as many in all
    with pytest.raises(InputError, match=r"labels of shape \(19,\) for 20 rows"):
        head_features(model(), shifted)
    with pytest.raises(InputError, match="3 batches without samples"):
        head_features(model(), [EMPTY] * 3)


@pytest.mark.parametrize("batched", [True, False])
def test_the_generator_of_a_loader_stays_as_it_was(batched: bool) -> None:
    drawn, data = torch.Generator().manual_seed(0), TensorDataset(X, Y)
    sampler = RandomSampler(data, generator=drawn)
    loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 8, False))
    if not batched:
        loader = DataLoader(data, 8, shuffle=True, generator=drawn)
    before = drawn.get_state()
    measured(loader)
    ncscope.measure_model(model(), [(X, Y)], ood=loader, progress=False)
    ncscope.compare_layers(model(), loader, progress=False)
    head_features(model(), loader)
    assert torch.equal(drawn.get_state(), before)
