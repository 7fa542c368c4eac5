"""Labels of a model's batches: marks to leave out, and names of classes."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset
from torchvision.datasets import ImageFolder
from torchvision.transforms.v2.functional import pil_to_tensor
from transformers import BertConfig, BertForSequenceClassification

import ncscope
from ncscope import InputError, Options
from ncscope.array_checks import IGNORED
from ncscope.models.networks.residual import ResidualNet

from ..ranks import joined_ranks

K, N = 4, 60
NAMES = ["ant", "bee", "cat", "dog"]
Y = torch.arange(N) % K
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(0)).double() + 2 * torch.eye(6)[Y]
LAYERS: dict[str, Any] = {"layers": ["blocks.*"], "layer_groups": ["nc1", "pfc"]}


def network() -> ResidualNet:
    torch.manual_seed(0)
    return ResidualNet(in_features=6, width=5, depth=2, num_classes=K).double()


def batches(labels: Any, size: int = 16) -> list[tuple[Tensor, Any]]:
    parts = range(0, N, size)
    return [(X[at : at + size], labels[at : at + size]) for at in parts]


def measured(loader: Any, model: nn.Module | None = None, **options: Any) -> ncscope.ModelReport:
    return ncscope.measure_model(model or network(), loader, progress=False, **options)


def assert_same(found: ncscope.ModelReport, wanted: ncscope.ModelReport) -> None:
    assert found.num_samples == wanted.num_samples
    for name, layer in wanted.layers.items():
        close = pytest.approx(dict(layer), rel=1e-9, abs=1e-12, nan_ok=True)
        assert dict(found.layers[name]) == close


def marked(mark: int) -> tuple[Tensor, Tensor]:
    """Labels of which some are a mark, a whole batch among them, and which samples are left."""
    labels = Y.clone()
    labels[::7] = mark
    labels[16:32] = mark
    return labels, labels != mark


@pytest.mark.parametrize("mark", [-1, -100, 255])
def test_marks_are_left_out_of_all_layers(mark: int) -> None:
    labels, kept = marked(mark)
    model = network()
    report = measured(batches(labels), model, ignore_index=mark, **LAYERS)
    assert_same(report, measured([(X[kept], Y[kept])], model, **LAYERS))
    inputs: list[Tensor] = []
    model.classifier.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    with torch.no_grad():
        model(X)
    head = model.classifier
    by_hand = ncscope.measure(inputs[0], labels, head.weight, head.bias, ignore_index=mark)
    assert dict(report) == pytest.approx(dict(by_hand), rel=1e-9, abs=1e-12, nan_ok=True)
    assert report.notes[0] == by_hand.notes[0]
    assert report.notes[0] == f"{N - kept.sum()} of {N} samples left out: labelled {mark}"


OPTIONS: dict[str, dict[str, Any]] = {
    "recompute": {"second_pass": "recompute"},
    "all drawn": {"second_pass": 1000},
    "baseline": {"baseline": True},
    "errors": {"uncertainty": True, "groups": ["nc1", "nc4"]},
    "batches": {"information_batch": 10},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPTIONS)
def test_marks_are_left_out_with_every_option(kind: str) -> None:
    options = {"layers": [], "groups": ["nc1", "nc4", "information"], **OPTIONS[kind]}
    labels, kept = Y.repeat(4), torch.ones(4 * N, dtype=torch.bool)
    labels[5:9], labels[40:60] = -1, 255
    kept[5:9] = kept[40:60] = False
    rows = X.repeat(4, 1) + torch.linspace(0, 1, 4 * N)[:, None]
    loader = list(zip(rows.split(20), labels.split(20), strict=True))
    report = measured(loader, ignore_index=[255, -1], **options)
    wanted = measured([(rows[kept], labels[kept])], **options)
    assert_same(report, wanted)
    assert report.baseline.keys() == wanted.baseline.keys()
    close = pytest.approx(wanted.standard_errors, rel=1e-6)
    assert kind == "all drawn" or report.standard_errors == close
    assert report.notes[0] == "24 of 240 samples left out: labelled -1 or 255"


def test_marks_are_left_out_of_passes_of_a_loop() -> None:
    labels, kept = marked(-1)
    model = network().eval()
    with torch.no_grad(), ncscope.watch(model, ignore_index=-1, **LAYERS) as seen:
        for x, y in batches(labels):
            model(x)
            seen.labels(y)
    assert_same(seen.report(), measured([(X[kept], Y[kept])], **LAYERS))
    assert seen.report().notes[0].startswith(f"{N - kept.sum()} of {N} samples left out")


@pytest.mark.slow
def test_marks_are_left_out_in_several_processes(tmp_path: Path) -> None:
    labels, kept = marked(-1)
    wanted = measured([(X[kept], Y[kept])], **LAYERS)

    def program(rank: int) -> Any:
        own = [each for at, each in enumerate(batches(labels)) if at % 3 == rank]
        report = measured(own if rank < 2 else [], ignore_index=-1, **LAYERS)
        with pytest.raises(InputError, match="all 60 labelled 0 or 1 or 2 or 3"):
            measured(batches(Y)[rank::3], ignore_index=range(K))
        return [dict(report), report.notes]

    # Of four batches the first two processes have three, one of which is left out whole.
    for values, notes in joined_ranks(3, tmp_path, program):
        assert notes[0].endswith("samples left out: labelled -1")
        assert values.keys() == wanted.keys()
    rest = [each for at, each in enumerate(batches(labels)) if at % 3 < 2]
    rows, classes = (torch.cat(part) for part in zip(*rest, strict=True))
    wanted = measured([(rows[classes >= 0], classes[classes >= 0])], **LAYERS)
    assert values == pytest.approx(dict(wanted), rel=1e-9, abs=1e-12, nan_ok=True)


class Tagger(nn.Module):
    """A class for every token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(9, 5), nn.Linear(5, K)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embed(ids).cumsum(1))


def test_marks_of_tokens_are_left_out_beside_those_of_torch() -> None:
    ids = torch.randint(9, (6, 7), generator=torch.Generator().manual_seed(1))
    labels = ids % K
    labels[:, 3], labels[0] = IGNORED, -1
    report = measured([(ids, labels)], Tagger(), ignore_index=-1)
    plain = measured([(ids, labels.masked_fill(labels < 0, IGNORED))], Tagger())
    assert dict(report) == dict(plain)
    assert report.notes[0] == "7 of 37 samples left out: labelled -1"
    assert plain.notes == report.notes[1:]
    said = measured([(ids, labels)], Tagger(), ignore_index=[-1, IGNORED])
    assert said.notes[0] == "12 of 42 samples left out: labelled -100 or -1"
    assert dict(said) == dict(plain)


def test_nothing_left_and_lacking_labels_are_refused() -> None:
    with pytest.raises(InputError, match="all 60 labelled -1; check ignore_index"):
        measured(batches(torch.full((N,), -1)), ignore_index=-1)
    lacking = Y.double()
    lacking[3] = torch.nan
    with pytest.raises(InputError, match=r"1 of 16 missing .*ignore_index=-1$") as error:
        measured(batches(lacking))
    assert "labels.nan_to_num(-1)" in error.value.fix
    report = measured(batches(lacking.nan_to_num(-1)), ignore_index=-1)
    assert report.num_samples == N - 1


SOFT = torch.eye(K)[Y] * 0.7 + 0.3 / K
COLUMNS = {
    "shares": SOFT,
    "one-hot": torch.eye(K)[Y],
    "booleans": torch.eye(K)[Y] > 0,
    "a column": Y[:, None],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_advice_on_labels_of_several_columns_gives_the_number(kind: str) -> None:
    loader = batches(COLUMNS[kind])
    with pytest.raises(InputError, match="split_batch=") as error:
        measured(loader)
    function = eval(error.value.fix.partition("split_batch=")[2])
    assert_same(measured(loader, split_batch=function), measured(batches(Y)))


def test_the_advice_on_several_classes_measures_the_samples_of_one() -> None:
    labels = torch.eye(K)[Y]
    labels[::5] = 1
    with pytest.raises(InputError, match="several classes") as error:
        measured(batches(labels))
    assert "ignore_index=-1" in error.value.fix
    function = eval(error.value.fix.partition("split_batch=")[2], {"torch": torch})
    report = measured(batches(labels), split_batch=function, ignore_index=-1)
    kept = torch.arange(N) % 5 != 0
    assert_same(report, measured([(X[kept], Y[kept])]))


WORDS: dict[str, Any] = {
    "lists": [NAMES[label] for label in Y],
    "tuples": tuple(NAMES[label] for label in Y),
    "arrays": np.array(NAMES)[Y],
    "objects": np.array(NAMES, dtype=object)[Y],
}


@pytest.mark.slow
@pytest.mark.parametrize("form", WORDS)
def test_names_are_the_rows_of_the_head(form: str) -> None:
    wanted = measured(batches(Y))
    report = measured(batches(WORDS[form]), class_names=NAMES)
    assert report.record.metrics == wanted.record.metrics
    assert report.class_names == tuple(NAMES)
    assert {row["class_name"] for row in report.per_class.rows()} == set(NAMES)
    assert ncscope.Report.from_json(report.to_json()).class_names == tuple(NAMES)
    turned = measured(batches(WORDS[form]), class_names=NAMES[::-1])
    assert turned.record.metrics == measured(batches(K - 1 - Y)).record.metrics


def test_names_of_a_loop_are_the_rows_of_the_head() -> None:
    model = network().eval()
    with torch.no_grad(), ncscope.watch(model, class_names=NAMES) as seen:
        model(X)
        seen.labels(WORDS["lists"])
    assert dict(seen.report()) == pytest.approx(dict(measured([(X, Y)])), nan_ok=True)
    assert seen.report().class_names == tuple(NAMES)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (WORDS["lists"], {}, "names of classes that are known, found 'ant'; pass class_names="),
        (WORDS["lists"], {"class_names": NAMES[:3]}, r"labels of class_names.*'dog' at row 3"),
        (Y, {"class_names": NAMES[:3]}, "4 class names, as many as rows of the head, found 3"),
        (Y, {"class_names": ["a", "a", "b", "c"]}, "'a' twice"),
        ([*WORDS["lists"][:-1], None], {"class_names": NAMES}, "1 of 12 missing"),
    ],
)
def test_names_that_do_not_fit_are_refused(labels: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        measured(batches(labels), **options)


@pytest.mark.slow
def test_processes_with_other_marks_or_names_are_refused(tmp_path: Path) -> None:
    def program(rank: int) -> Any:
        with pytest.raises(InputError, match="the same names of classes in all processes"):
            measured(DataLoader(Images(NAMES[:: 1 - 2 * rank]), 16))
        with pytest.raises(InputError, match="ignore_index"):
            measured(batches(Y), ignore_index=-1 - rank)
        report = measured(DataLoader(Images(NAMES), 16) if rank else [])
        return report.class_names

    assert joined_ranks(2, tmp_path, program) == [NAMES, NAMES]


class Images(Dataset[Any]):
    """Samples of a data set that knows its classes."""

    def __init__(self, classes: Any, labels: Any = Y) -> None:
        self.classes, self.labels = classes, labels

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        return X[index], self.labels[index]


@pytest.mark.slow
def test_the_names_of_a_data_set_come_along() -> None:
    def measured_simply(loader: Any, **options: Any) -> ncscope.ModelReport:
        return measured(loader, layers=[], groups=["nc1", "nc3", "per_class"], **options)

    wanted, data = measured_simply([(X, Y)]), Images(NAMES)
    for loader in (data, DataLoader(data, 16), DataLoader(Subset(data, range(N)), 16)):
        report = measured_simply(loader)
        assert report.class_names == tuple(NAMES)
        assert_same(report, wanted)
    words = measured_simply(DataLoader(Images(NAMES, WORDS["lists"]), 16))
    assert words.class_names == tuple(NAMES)
    assert_same(words, wanted)
    synonyms = [(name, f"a {name}") for name in NAMES]  # as of torchvision's ImageNet
    assert measured_simply(DataLoader(Images(synonyms), 16)).class_names == tuple(NAMES)
    for dropped in (NAMES[:3], [0, 1, 2, 3], 4, None):  # of another model, or no names
        assert measured_simply(DataLoader(Images(dropped), 16)).class_names == ()
    with pytest.raises(InputError, match=r"4 class names, .* found 5 of the data set"):
        measured_simply(DataLoader(Images([*NAMES, "emu"], WORDS["lists"]), 16))
    named = measured_simply(DataLoader(data, 16), class_names=["a", "b", "c", "d"])
    assert named.class_names == ("a", "b", "c", "d")


def test_the_names_of_an_image_folder_come_along(tmp_path: Path) -> None:
    for index, name in enumerate(NAMES):
        (tmp_path / name).mkdir()
        for copy in range(2):
            pixels = np.full((2, 1, 3), 40 * index + copy, np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{copy}.png")
    folder = ImageFolder(tmp_path, transform=lambda image: pil_to_tensor(image).double().flatten())
    assert measured(folder).class_names == tuple(NAMES)


def of_library(column: str, names: list[str] = NAMES) -> datasets.Dataset:
    pixels = datasets.List(datasets.Value("float32"))
    features = datasets.Features({"pixels": pixels, column: datasets.ClassLabel(names=names)})
    data = {"pixels": X.tolist(), column: Y.tolist()}
    return datasets.Dataset.from_dict(data, features=features)


@pytest.mark.parametrize(("column", "options"), [("label", {}), ("kind", {"split_batch": "kind"})])
def test_the_names_of_features_come_along(column: str, options: Any) -> None:
    data, model = of_library(column).with_format("torch"), network().float()
    report = measured(data, model, **options)
    assert report.class_names == tuple(NAMES)
    assert_same(report, measured([(X.float(), Y)], model))
    assert measured(DataLoader(data, 16), model, **options).class_names == tuple(NAMES)
    with pytest.raises(InputError, match=r"format None; pass dataset.with_format\('torch'\)"):
        measured(of_library(column), **options)


def bert(names: list[str] | None) -> BertForSequenceClassification:
    torch.manual_seed(0)
    named = {} if names is None else {"id2label": dict(enumerate(names))}
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=20, intermediate_size=8, num_labels=K, **size, **named)
    return BertForSequenceClassification(config).eval()


def test_the_names_of_a_model_come_along() -> None:
    ids = torch.randint(20, (N, 3), generator=torch.Generator().manual_seed(0))
    loader = [{"input_ids": ids, "labels": Y}]
    options: dict[str, Any] = {"layers": [], "groups": ["nc1"]}
    assert measured(loader, bert(None), **options).class_names == ()
    report = measured(loader, bert(NAMES), **options)
    assert report.class_names == tuple(NAMES)
    words = [{"input_ids": ids, "labels": WORDS["lists"]}]
    assert dict(measured(words, bert(NAMES), **options)) == dict(report)
    data = datasets.Dataset.from_dict(
        {"input_ids": ids.tolist(), "label": Y.tolist()},
        features=datasets.Features(
            {
                "input_ids": datasets.List(datasets.Value("int64")),
                "label": datasets.ClassLabel(names=NAMES[::-1]),
            }
        ),
    ).with_format("torch")
    other = measured(data, bert(NAMES), **options)
    assert dict(other) == dict(report)
    assert any("in another order than the model's" in each for each in other.warnings)
    assert other.class_names == tuple(NAMES[::-1])


def test_a_part_of_the_classes_under_other_names_gets_a_warning() -> None:
    data = TensorDataset(X.float()[Y < 2], Y[Y < 2])
    data.classes = ["n01", "n02"]  # type: ignore[attr-defined]
    (said,) = [w for w in measured(data, network().float()).warnings if "rows" in w]
    assert said.startswith(
        f"the data set has 2 classes and the head {K} rows: the labels are taken"
    )


@pytest.mark.usefixtures("unchecked_signatures")
def test_options_are_one_object() -> None:
    options = Options(ignore_index=(-1, 255), class_names=NAMES, split_batch="labels")
    loader = [{"input": X, "labels": Y.masked_fill(Y == 3, 255)}]
    network_of_one = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, K)).double()
    report = ncscope.measure_model(network_of_one, loader, options)
    assert report.num_samples == 45
    with pytest.raises(InputError, match="split_batch as text or a function"):
        Options(split_batch=3)


def test_texts_of_a_data_set_are_to_be_tokenised() -> None:
    texts = datasets.Dataset.from_dict({"text": ["a b", "c"], "label": [0, 1]})
    numbers = datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]})
    for data, fix in (
        (texts, "map the model's tokenizer over the column 'text', then"),
        (numbers, ""),
    ):
        with pytest.raises(InputError, match=f"found format None; {fix}.*with_format"):
            ncscope.measure_model(nn.Linear(2, 2), data)
