"""A program that calls the public interface with hostile arguments, a seeded number of times.

``python -m tests.fuzzing --calls 20000`` reports every call that ends in another exception than
`InputError`, in a warning, or in a value that is out of its range or off its reference;
``--call 17`` repeats one of them. The nightly suite makes 400 calls.
"""

import argparse
import json
import math
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import nn

import ncscope
from ncscope import losses, transfer
from ncscope.integrations.torchmetrics import NeuralCollapse
from ncscope.metrics.registry import GROUPS, METRICS
from ncscope.stats.statistics import finish
from tests.losses import brute_force
from tests.reference.collapse import reference_metrics
from tests.reference.multilabel import multilabel
from tests.reference.regression import regression

BY_NAME = {name: row for row in METRICS.values() for name in (row.key, *row.aliases)}
ROUNDING = 1e-9  # of a value at the end of its range
SECONDS = 60
"""Time of the processor after which a call counts as one that hangs."""

LONGEST = 1000
"""Characters of a message that is still one sentence."""

Arguments = dict[str, Any]

SCALARS: list[Any] = [
    None, "", "a", "nc1", "cpu", b"a", -1, 0, 1, 2, 5, 2**40, 2**62, 2**70, 10**400, 0.5, -0.5,
    1e300, 1e-300, 5e-324, math.nan, math.inf, -math.inf, True, False, 1j, "3", "ä\udcff", "a\0b",
]  # fmt: skip
OBJECTS: list[Callable[[], Any]] = [
    object, list, dict, set, tuple, lambda: [None], lambda: ["nc1"], lambda: ["a", 3],
    lambda: {"a": 1.0}, lambda: {1: None}, lambda: np.zeros(0), lambda: np.zeros((2, 2, 2)),
    lambda: np.array(3), lambda: torch.tensor(1.0), lambda: torch.ones(2, 3, device="meta"),
    lambda: torch.eye(3).to_sparse(), lambda: torch.tensor(2.0, requires_grad=True),
    lambda: np.array(["a", None], dtype=object), lambda: iter([1, 2]), lambda: range(3),
    lambda: np.ma.masked_array([1.0, 2.0], [True, False]), lambda: np.int8(1),
    lambda: np.float32(2),
    lambda: (lambda *_, **__: None), lambda: [[1.0], [2.0, 3.0]],
    lambda: np.datetime64("2020-01-01"),
]  # fmt: skip
ARRAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "complex": lambda a: a + 1j,
    "object": lambda a: a.astype(object),
    "text": lambda a: a.astype(str),
    "uint64": lambda a: np.abs(a).astype(np.uint64),
    "float16": lambda a: a.astype(np.float16),
    "float32": lambda a: a.astype(np.float32),
    "bfloat16": lambda a: torch.from_numpy(a.copy()).bfloat16(),
    "long double": lambda a: a.astype(np.longdouble),
    "bool": lambda a: a > 0,
    "tensor": lambda a: torch.from_numpy(a.copy()),
    "gradient": lambda a: torch.from_numpy(a.astype(float)).requires_grad_(),
    "sparse": lambda a: torch.from_numpy(a.copy()).to_sparse(),
    "meta": lambda a: torch.from_numpy(a.copy()).to("meta"),
    "quantised": lambda a: torch.quantize_per_tensor(
        torch.from_numpy(a.astype(np.float32)), 0.1, 0, torch.qint8
    ),
    "list": lambda a: a.tolist(),
    "reversed": lambda a: a[::-1],
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "fortran": np.asfortranarray,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "transposed": lambda a: a.T,
    "one axis less": lambda a: a[0] if len(a) else a.ravel(),
    "one axis more": lambda a: a[..., None],
    "no rows": lambda a: a[:0],
    "one row": lambda a: a[:1],
    "no columns": lambda a: a[..., :0],
    "short": lambda a: a[1:],
    "huge": lambda a: a * 1e300,
    "beyond squares": lambda a: a * 1e160,
    "tiny": lambda a: a * 1e-300,
    "denormal": lambda a: a * 5e-324,
    "mixed": lambda a: a * np.where(np.arange(a.size).reshape(a.shape) % 2, 1e200, 1e-200),
    "offset": lambda a: a + 1e12,
    "constant": lambda a: np.full_like(a, 2),
    "zero": np.zeros_like,
    "equal rows": lambda a: np.repeat(a[:1], len(a), axis=0),
    "twice": lambda a: a[np.arange(len(a)) // 2],
    "NaN": lambda a: np.where(np.arange(a.size).reshape(a.shape) == a.size - 1, math.nan, a),
    "infinite": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, math.inf, a),
    "negative": lambda a: -a,
    "one more": lambda a: a + 1,
    "halves": lambda a: a + 0.5,
    "far apart": lambda a: a * 1000,
    "names": lambda a: [f"class {value}" for value in a.tolist()],
    "one-hot": lambda a: np.eye(9)[np.abs(a.astype(int)) % 9],
}


@dataclass(frozen=True)
class Sample:
    """Features of classes, a classifier and a model, drawn anew for each call."""

    rng: np.random.Generator
    x: np.ndarray
    y: np.ndarray
    w: np.ndarray
    b: np.ndarray

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Sample":
        """Return classes of full rank with distinct means, where no rounding decides a value."""
        k, d = int(rng.integers(2, 5)), int(rng.integers(2, 6))
        sizes = rng.integers(2, 8, k)
        y = rng.permutation(np.repeat(np.arange(k), sizes))
        means = rng.normal(size=(k, d))
        x = means[y] + rng.choice([0.1, 1.0]) * rng.normal(size=(len(y), d))
        return cls(rng, x, y, means + 0.3 * rng.normal(size=(k, d)), rng.normal(size=k))

    @property
    def k(self) -> int:
        return len(self.b)

    @property
    def moments(self) -> ncscope.ClassMoments:
        moments = ncscope.ClassMoments(self.k, self.x.shape[1])
        moments.update(self.x, self.y)
        return moments

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return torch.from_numpy(self.x), torch.from_numpy(self.y), torch.from_numpy(self.w)

    @property
    def model(self) -> nn.Module:
        torch.manual_seed(int(self.rng.integers(2**31)))
        d = self.x.shape[1]
        return nn.Sequential(nn.Linear(d, 4), nn.ReLU(), nn.Linear(4, self.k))

    @property
    def loader(self) -> list[Any]:
        return [(torch.from_numpy(self.x).float(), torch.from_numpy(self.y))]

    @property
    def report(self) -> ncscope.Report:
        return ncscope.measure(self.x, self.y)

    @property
    def history(self) -> ncscope.History:
        history = ncscope.History()
        for step in range(2):
            history.add(self.report, step=step)
        return history

    def one_of(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]


@dataclass(frozen=True)
class Target:
    """A function with good arguments of its own, and what its results must be.

    Attributes:
        call: Function to call.
        draw: Function that returns good arguments.
        check: Check of a result of the good arguments.
        check_any: Check of a result of any arguments.
    """

    call: Callable[..., Any]
    draw: Callable[[Sample], Arguments]
    check: Callable[[Any, Arguments], None] = lambda result, arguments: None
    check_any: Callable[[Any], None] = lambda result: None


def check_report(report: ncscope.Report) -> None:
    """Check that finite values lie in their ranges and that the others are explained."""
    for key, value in report.items():
        low, high = BY_NAME[key].low, BY_NAME[key].high
        slack = ROUNDING * max(1.0, abs(low), abs(high) if math.isfinite(high) else 1.0)
        assert math.isnan(value) or low - slack <= value <= high + slack, (key, value)
        assert not math.isinf(value) or BY_NAME[key].infinite, (key, value)
        if not math.isfinite(value):
            assert any(key in note for note in report.notes), (key, value, report.notes)


def check_regression(report: ncscope.RegressionReport) -> None:
    """Check that values that are not finite are explained."""
    for key, value in report.items():
        if not math.isfinite(value):
            assert any(key in note for note in report.notes), (key, value, report.notes)


def check_multilabel(report: ncscope.MultilabelReport) -> None:
    """Check that values are not negative, and that those that are not finite are explained."""
    for key, value in report.items():
        assert not value < 0 or key.startswith("ml_scale"), (key, value)
        if not math.isfinite(value):
            assert any(key in note for note in report.notes), (key, value, report.notes)


def agree(values: Mapping[str, float], reference: Mapping[str, float]) -> None:
    """Check values against their reference, to nine digits."""
    for key in values.keys() & reference.keys():
        expected = reference[key]
        assert (math.isnan(values[key]) and math.isnan(expected)) or math.isclose(
            values[key], expected, rel_tol=1e-9, abs_tol=1e-11
        ), (key, values[key], expected)


def agree_with_reference(report: ncscope.Report, given: Arguments) -> None:
    """Check a report against the reference in 50 digits, for one call in 20."""
    if given["reference"] is not None or int(abs(given["features"]).sum() * 1e6) % 20:
        return
    reference = reference_metrics(
        given["features"],
        given["labels"],
        given["weight"],
        given["bias"],
        num_classes=given["num_classes"],
        prior=given["prior"],
        weight_decay=given["weight_decay"],
    )
    agree(report, reference)


def agree_with_regression(report: ncscope.RegressionReport, given: Arguments) -> None:
    """Check values against the reference, which is for features of full rank."""
    if len(given["features"]) > given["features"].shape[1] + 1:
        agree(report, regression(**given))


def agree_with_multilabel(report: ncscope.MultilabelReport, given: Arguments) -> None:
    """Check values that are defined against the reference."""
    defined = {key: value for key, value in report.items() if math.isfinite(value)}
    if not any("no sample with that label alone" in note for note in report.notes):
        agree(defined, multilabel(**given))


def agree_with_formula(formula: Callable[..., float], result: Any, given: Arguments) -> None:
    """Check a loss against its formula in NumPy."""
    plain = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    assert math.isclose(float(result), formula(**plain), rel_tol=1e-9, abs_tol=1e-9), result


def run_moments(features: Any, labels: Any, other: Any = None, **options: Any) -> Any:
    """Measure in moments made with options, filled, and merged."""
    moments = ncscope.ClassMoments(**options)
    moments.update(features, labels)
    if other is not None:
        moments.merge(other)
    return ncscope.measure_moments(moments)


def run_watch(labels: Any, **options: Any) -> Any:
    """Measure one pass of a watched model."""
    torch.manual_seed(0)
    model, features = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(12, 3)
    with torch.no_grad(), ncscope.watch(model, **options) as seen:
        model(features)
        seen.labels(labels)
        return seen.report()


def run_metric(features: Any, labels: Any, weight: Any, bias: Any, **options: Any) -> Any:
    """Compute the torchmetrics metric of two batches."""
    metric = NeuralCollapse(**options)
    for _ in range(2):
        metric.update(features, labels, weight, bias)
    return metric.compute()


def run_history(
    report: Any, step: Any, split: Any, run: Any, values: Any, at: Any, log: Any, prefix: Any,
    name: Any, **options: Any,
) -> Any:  # fmt: skip
    """Add to a history, then ask for everything that it gives."""
    history = ncscope.History(**options)
    history.add(report, step=step, split=split, run=run, values=values)
    history.per_class(at)
    history.logs(prefix=prefix, log=log)
    history.split(name)
    with tempfile.TemporaryDirectory() as folder:
        history.save(Path(folder) / "history.csv")
        file = history.save(Path(folder) / "history.json")
        return ncscope.History.load(file).rows()


def run_json(text: str, place: int, value: Any, form: str) -> Any:
    """Read a report or history with one value of its JSON replaced, and show it."""
    content = json.loads(text)
    nodes = list(_places(content))
    holder, key = nodes[place % len(nodes)]
    holder[key] = value
    changed = json.dumps(content)
    with tempfile.TemporaryDirectory() as folder:
        if form == "report":
            report = ncscope.Report.from_json(changed)
            report.save(Path(folder) / "report.csv")
            return report.save(Path(folder) / "report.html")
        file = Path(folder) / "history.json"
        file.write_text(changed)
        return ncscope.History.load(file).save(Path(folder) / "history.html")


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _history_text(sample: Sample) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return sample.history.save(Path(folder) / "history.json").read_text()


def run_file(content: bytes, suffix: str) -> Any:
    """Measure a file of features."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"features{suffix}"
        file.write_bytes(content)
        return ncscope.measure_shards([file])


def _file(sample: Sample) -> Arguments:
    suffix = sample.one_of(".npz", ".pt", ".safetensors")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"features{suffix}"
        arrays = {"features": sample.x, "labels": sample.y}
        if suffix == ".npz":
            np.savez(file, **arrays)
        elif suffix == ".pt":
            torch.save({k: torch.from_numpy(v) for k, v in arrays.items()}, file)
        else:
            from safetensors.numpy import save_file

            save_file(arrays, file)
        content = bytearray(file.read_bytes())
    for _ in range(int(sample.rng.integers(0, 3))):
        content[int(sample.rng.integers(len(content)))] ^= 1 << int(sample.rng.integers(8))
    if sample.rng.random() < 0.2:
        del content[int(sample.rng.integers(len(content))) :]
    return {"content": bytes(content), "suffix": suffix}


def run_module(form: type[nn.Module], options: Arguments, **given: Any) -> Any:
    return form(**options)(**given)


def run_report(key: Any, path: Any, title: Any) -> Any:
    """Ask a report for an interval and save it."""
    with suppress(KeyError):  # as for any mapping
        SAVED.interval(key)
    return SAVED.save(path, title)


SAVED = ncscope.measure([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1], groups=["nc1"])


def _groups(s: Sample) -> Any:
    return s.one_of(None, None, list(s.rng.choice(GROUPS, 2)), "nc1", ["nc2_etf"])


def _measure(s: Sample) -> Arguments:
    head = s.rng.random() < 0.5
    return {
        "features": s.x,
        "labels": s.y,
        "weight": s.w if head else None,
        "bias": s.b if head and s.rng.random() < 0.5 else None,
        "num_classes": s.k,
        "prior": s.one_of("empirical", "uniform"),
        "groups": _groups(s),
        "weight_decay": s.one_of(0.0, 0.01),
        "reference": s.one_of(None, None, s.moments, s.report),
        "baseline": s.one_of(False, True, None),
        "uncertainty": s.rng.random() < 0.1,
        "precision": "float64",
        "ood": s.one_of(None, s.x + 3),
    }


def _model_options(s: Sample) -> Arguments:
    return {
        "layers": s.one_of(None, ["0"], ["*"]),
        "head": s.one_of(None, "2"),
        "groups": s.one_of(None, ["nc1", "nc4"]),
        "layer_groups": s.one_of(("pfc",), None, ["nc1"]),
        "prior": "empirical",
        "class_counts": None,
        "weight_decay": 0.01,
        "pool": None,
        "next_token": False,
        "ignore_index": s.one_of(None, -1),
        "class_names": None,
        "split_batch": None,
        "reference": None,
        "baseline": s.one_of(False, None),
        "uncertainty": False,
        "precision": s.one_of("float64", "blocked"),
        "second_pass": s.one_of("store", 5),
        "memory": 2**20,
        "disk": s.one_of(None, 2**20),
        "process_group": None,
    }


def _batch(s: Sample) -> Arguments:
    x, y, w = s.tensors
    return {"features": x, "labels": y, "weight": w}


def _logits(s: Sample, **options: Any) -> Arguments:
    x, y, w = s.tensors
    return {"logits": x @ w.T, "labels": y, **options}


def _label_sets(s: Sample) -> np.ndarray:
    """Return the classes as columns, and four more samples of two classes."""
    single, pairs = np.eye(s.k, dtype=int), np.zeros((4, s.k), int)
    pairs[:, [0, 1]] = 1
    pairs[2:, [0, 1]] = np.array([0, 1] if s.k == 2 else [1, 0])
    pairs[2:, -1] = 1
    return np.concatenate([single[s.y], pairs])


def _labelled(s: Sample, **options: Any) -> Arguments:
    return {"features": s.x, "labels": s.y, **options}


def _on_samples(function: Callable[..., Any], features: Any, labels: Any, **options: Any) -> Any:
    return function(transfer.check_downstream(features, labels), **options)


def _on_moments(function: Callable[..., Any], features: Any, labels: Any, **options: Any) -> Any:
    moments = ncscope.ClassMoments()
    moments.update(features, labels)
    return function(finish(moments), **options)


def _scores(s: Sample, **options: Any) -> Arguments:
    return {"resamples": 20, "level": 0.9, "seed": 1, **options}


def _probabilities(s: Sample) -> np.ndarray:
    shares = s.rng.random((len(s.y), 3)) + 0.1
    return shares / shares.sum(1, keepdims=True)


def _checkpoints(s: Sample) -> Arguments:
    names = ["a", "b"]
    x = np.concatenate([s.x, s.x + 0.1])
    y = np.concatenate([s.y, s.y])
    return {
        "features": dict.fromkeys(names, x),
        "labels": y,
        "test_features": dict.fromkeys(names, x),
        "test_labels": y,
        "pretraining": s.one_of(None, dict.fromkeys(names, (s.x, s.y))),
        "source_probabilities": None,
        "baselines": s.one_of(None, {"a": {"parameters": 3.0}}),
        "expensive": False,
        "measure": s.one_of("top-1", "mean per class"),
        "seed": 0,
    }


TARGETS: dict[str, Target] = {
    "measure": Target(ncscope.measure, _measure, agree_with_reference, check_report),
    "measure unlabelled": Target(
        ncscope.measure, lambda s: {"features": s.x, "groups": None}, check_any=check_report
    ),
    "measure_moments": Target(
        ncscope.measure_moments,
        lambda s: {"moments": s.moments, "weight": s.w, "bias": s.b, "groups": _groups(s),
                   "weight_decay": 0.1},
        check_any=check_report,
    ),
    "ClassMoments": Target(
        run_moments,
        lambda s: {"features": s.x, "labels": s.y, "other": s.moments, "num_classes": s.k,
                   "dim": s.x.shape[1], "statistics": ("scatter", "directions"),
                   "prior": "empirical", "class_counts": None, "device": "cpu",
                   "precision": "float64"},
        check_any=check_report,
    ),
    "ClassMoments uniform": Target(
        run_moments,
        lambda s: {"features": s.x, "labels": s.y, "num_classes": s.k, "dim": s.x.shape[1],
                   "prior": "uniform", "class_counts": np.bincount(s.y)},
        check_any=check_report,
    ),
    "measure_shards": Target(
        ncscope.measure_shards,
        lambda s: {"shards": [[(s.x, s.y)], [(s.x + 1, s.y)]], "weight": s.w, "bias": s.b,
                   "num_classes": s.k, "groups": _groups(s), "weight_decay": 0.1,
                   "prior": s.one_of("empirical", "uniform"), "precision": "float64", "map": map},
        check_any=check_report,
    ),
    "shard": Target(
        lambda shard: ncscope.measure_shards([shard]),
        lambda s: {"shard": s.one_of([(s.x, s.y)], [{"features": s.x, "labels": s.y}],
                                     lambda: [(s.x, s.y)])},
        check_any=check_report,
    ),
    "batch": Target(
        lambda features, labels: ncscope.measure_shards([[(features, labels)]]),
        lambda s: {"features": s.x, "labels": s.y},
        check_any=check_report,
    ),
    "file": Target(run_file, _file, check_any=check_report),
    "gather": Target(
        ncscope.gather,
        lambda s: {"batches": [(s.x, s.y)], "num_classes": s.k, "dim": None,
                   "statistics": ["scatter"], "prior": "empirical", "class_counts": None,
                   "precision": "float64", "device": "cpu", "second": None},
    ),
    "batch_information": Target(
        ncscope.batch_information,
        lambda s: {"features": s.x, "labels": s.y, "weight": s.w, "batch_size": 2, "seed": 0},
    ),
    "information_between": Target(
        ncscope.information_between, lambda s: {"features": s.x, "others": s.x + 1, "seed": 0}
    ),
    "cka": Target(ncscope.cka, lambda s: {"first": s.x, "second": s.x**2}),
    "CkaMoments": Target(
        lambda pairs, first, second: _cka(pairs, first, second),
        lambda s: {"pairs": [(0, 1)], "first": s.x, "second": s.x**2},
    ),
    "measure_regression": Target(
        ncscope.measure_regression,
        lambda s: {"features": s.x, "targets": s.x[:, :2] + s.rng.normal(size=(len(s.x), 2)),
                   "weight": s.w[:2], "bias": s.b[:2]},
        agree_with_regression,
        check_regression,
    ),
    "measure_multilabel": Target(
        ncscope.measure_multilabel,
        lambda s: {"features": np.concatenate([s.x, s.x[:4]]), "targets": _label_sets(s),
                   "weight": s.w, "bias": s.b},
        agree_with_multilabel,
        check_multilabel,
    ),
    "measure_model": Target(
        partial(ncscope.measure_model, progress=False),
        lambda s: {"model": s.model, "loader": s.loader, **_model_options(s)},
        check_any=check_report,
    ),
    "watch": Target(
        run_watch,
        lambda s: {"labels": torch.arange(12) % 2, **_model_options(s)},
        check_any=check_report,
    ),
    "compare_layers": Target(
        partial(ncscope.compare_layers, progress=False),
        lambda s: {"model": s.model, "loader": s.loader, "layers": None, "head": None,
                   "other": None, "other_layers": None, "other_head": None, "pool": None,
                   "process_group": None},
    ),
    "History": Target(
        run_history,
        lambda s: {"report": s.report, "step": 1, "split": "train", "run": "", "values": {"a": 1.0},
                   "at": None, "log": "all", "prefix": "nc", "name": "train", "unit": "epoch",
                   "model": "", "weights": "", "data": "", "class_names": (), "seed": None},
    ),
    "report methods": Target(
        run_report,
        lambda s: {"key": "nc1", "path": s.one_of("/dev/null/a.csv", "a.xyz"),
                   "title": "a"},
    ),
    "report JSON": Target(
        run_json,
        lambda s: {"text": s.report.to_json(), "place": int(s.rng.integers(2**20)),
                   "value": _json_value(s), "form": "report"},
    ),
    "history JSON": Target(
        run_json,
        lambda s: {"text": _history_text(s), "place": int(s.rng.integers(2**20)),
                   "value": _json_value(s), "form": "history"},
    ),
    "NeuralCollapse": Target(
        run_metric,
        lambda s: {"features": s.x, "labels": s.y, "weight": s.w, "bias": s.b, "num_classes": s.k,
                   "dim": s.x.shape[1], "groups": s.one_of(None, ["nc1"]),
                   "keep_features": s.one_of(True, False), "prior": "empirical",
                   "weight_decay": 0.1, "precision": "float64"},
    ),
    "squared_error": Target(
        losses.squared_error,
        _logits,
        partial(agree_with_formula, partial(brute_force.squared_error, factor=1, target=1)),
    ),
    "rescaled_squared_error": Target(
        losses.rescaled_squared_error,
        lambda s: _logits(s, factor=2.0, target=3.0),
        partial(agree_with_formula, brute_force.squared_error),
    ),
    "temperature_cross_entropy": Target(
        losses.temperature_cross_entropy,
        lambda s: _logits(s, temperature=2.0),
        partial(agree_with_formula, partial(brute_force.cross_entropy, smoothing=0.0)),
    ),
    "smoothed_cross_entropy": Target(
        losses.smoothed_cross_entropy,
        lambda s: _logits(s, smoothing=0.1),
        partial(agree_with_formula, partial(brute_force.cross_entropy, temperature=1.0)),
    ),
    "pick_all_label": Target(
        losses.pick_all_label,
        lambda s: {"logits": s.tensors[0] @ s.tensors[2].T,
                   "targets": nn.functional.one_hot(s.tensors[1], s.k)},
        partial(agree_with_formula, brute_force.pick_all_label),
    ),
    "within_class_cosine": Target(
        losses.within_class_cosine,
        lambda s: {"features": s.tensors[0], "labels": s.tensors[1]},
        partial(agree_with_formula, brute_force.within_class_cosine),
    ),
    "feature_and_classifier_decay": Target(
        losses.feature_and_classifier_decay,
        lambda s: {"features": s.tensors[0], "weight": s.tensors[2], "feature_decay": 0.1,
                   "weight_decay": 0.2},
        partial(agree_with_formula, brute_force.decay),
    ),
    "decay with a bias": Target(
        losses.feature_and_classifier_decay,
        lambda s: {"features": s.tensors[0], "weight": s.tensors[2],
                   "bias": torch.from_numpy(s.b), "feature_decay": 0.1, "weight_decay": 0.2},
    ),
    "mutual_information": Target(
        losses.mutual_information,
        lambda s: {"features": s.tensors[0], "vectors": s.tensors[0] ** 2},
        partial(agree_with_formula, brute_force.mutual_information),
    ),
    "entropy_difference": Target(
        losses.entropy_difference,
        lambda s: {"features": s.tensors[0], "vectors": s.tensors[0] ** 2},
        partial(agree_with_formula, brute_force.entropy_difference),
    ),
    "head_mutual_information": Target(
        losses.head_mutual_information, lambda s: _batch(s) | {"selected": None}
    ),
    "head_entropy_difference": Target(
        losses.head_entropy_difference,
        lambda s: _batch(s) | {"selected": torch.ones(len(s.y), dtype=torch.bool)},
    ),
    "batch_entropy": Target(losses.batch_entropy, lambda s: {"vectors": s.tensors[0]}),
    "matrix_entropy": Target(
        losses.matrix_entropy,
        lambda s: {"matrix": torch.from_numpy(brute_force.gram(s.x)), "samples": len(s.x)},
    ),
    "correlations": Target(
        transfer.correlations,
        lambda s: _scores(s, scores=s.rng.random(5), transfer=s.rng.random(5)),
    ),
    "ranking_quality": Target(
        transfer.ranking_quality,
        lambda s: _scores(s, scores=s.rng.random(5), accuracies=s.rng.random(5), better=1),
    ),
    "mean_log_odds": Target(
        transfer.mean_log_odds_gain,
        lambda s: {"accuracies": [0.5, 0.6], "pretraining_accuracy": 0.7},
    ),
    "fit_logistic": Target(
        transfer.fit_logistic, lambda s: _labelled(s, strength=1.0, tolerance=1e-6)
    ),
    "logistic_path": Target(
        lambda **given: list(transfer.logistic_path(**given)),
        lambda s: _labelled(s, strengths=[1.0, 2.0], tolerance=1e-4),
    ),
    "choose_probe": Target(
        transfer.choose_probe,
        lambda s: _labelled(s, validation_features=s.x, validation_labels=s.y, measure="top-1",
                            strengths=[1.0, 2.0]),
    ),
    "leep": Target(
        partial(_on_samples, transfer.leep), lambda s: _labelled(s, probabilities=_probabilities(s))
    ),
    "nce": Target(
        partial(_on_samples, transfer.nce), lambda s: _labelled(s, predictions=s.y[::-1].copy())
    ),
    "nleep": Target(partial(_on_samples, transfer.nleep), lambda s: _labelled(s, seed=0)),
    **{
        name: Target(partial(_on_samples, getattr(transfer, name)), _labelled)
        for name in ("explained_entropy", "gbc", "gbc_diagonal", "parc", "regularised_h_score",
                     "sfda", "transrate", "ncti_parts")
    },
    **{
        name: Target(partial(_on_moments, getattr(transfer, name)), _labelled)
        for name in ("h_score", "log_me")
    },
    "log_me_targets": Target(
        transfer.log_me_targets, lambda s: {"features": s.x, "targets": s.x[:, :1] + s.y[:, None]}
    ),
    "rank_checkpoints": Target(transfer.rank_checkpoints, _checkpoints),
    "static_ranking": Target(
        transfer.static_ranking,
        lambda s: {"results": {"a": {"x": 0.5, "y": 0.6}, "b": {"x": 0.7, "y": 0.8}}, "seed": 0},
    ),
    "top1_accuracy": Target(
        transfer.top1_accuracy, lambda s: {"predictions": s.tensors[1], "labels": s.tensors[1]}
    ),
    "head_features": Target(
        transfer.head_features, lambda s: {"model": s.model, "loader": s.loader, "has_head": True}
    ),
}  # fmt: skip


def _cka(pairs: Any, first: Any, second: Any) -> Any:
    moments = ncscope.CkaMoments(pairs)
    for _ in range(2):
        moments.update(first, second)
    return moments.cka()


def _json_value(s: Sample) -> Any:
    return s.one_of(
        None, "", "a", "$x^2$", -1, 0, 1, 2**70, 0.5, -0.5, 1e308, True, [], {}, [1, 2], {"a": 1},
        "NaN", [None], [[1.0]],
    )  # fmt: skip


def spoil(value: Any, rng: np.random.Generator) -> tuple[str, Any]:
    """Return a hostile value in place of a good one, and its name."""
    array = value
    if isinstance(value, torch.Tensor) and value.dtype in (torch.float64, torch.int64):
        array = value.detach().numpy() if value.device.type == "cpu" else value
    if isinstance(array, np.ndarray) and rng.random() < 0.8:
        name = list(ARRAYS)[int(rng.integers(len(ARRAYS)))]
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                spoiled = ARRAYS[name](array)
                if isinstance(value, torch.Tensor) and isinstance(spoiled, np.ndarray):
                    spoiled = torch.from_numpy(spoiled.copy())
            return name, spoiled
        except (TypeError, ValueError, IndexError, RuntimeError):  # an array spoiled before
            pass
    if rng.random() < 0.5:
        chosen = SCALARS[int(rng.integers(len(SCALARS)))]
        return repr(chosen)[:20], chosen
    number = int(rng.integers(len(OBJECTS)))
    return f"object {number}", OBJECTS[number]()


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Raise an error in a call that hangs."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(frozen=True)
class Finding:
    """A call that did not end as it should."""

    number: int
    target: str
    spoiled: str
    error: str
    trace: str

    @property
    def kind(self) -> str:
        return f"{self.target}: {self.error[:100]}"


def run_call(seed: int, number: int, only: str = "") -> tuple[str, Finding | None]:
    """Make one call; return how it ended, and what was found."""
    rng = np.random.default_rng([seed, number])
    name = only or list(TARGETS)[int(rng.integers(len(TARGETS)))]
    target = TARGETS[name]
    given = target.draw(Sample.draw(rng))
    hurt: dict[str, str] = {}
    for _ in range(int(rng.choice([0, 1, 1, 1, 2]))):
        place = list(given)[int(rng.integers(len(given)))]
        if name.endswith("JSON") or name == "file":
            continue  # spoiled in themselves
        if place not in hurt:
            hurt[place], given[place] = spoil(given[place], rng)
    try:
        with warnings.catch_warnings(), _limit(SECONDS):
            warnings.simplefilter("error")
            result = target.call(**given)
            target.check_any(result)
            if not hurt:
                target.check(result, given)
    except Exception as error:
        plain = str(error).startswith("expected ") and len(str(error)) < LONGEST
        if isinstance(error, ncscope.InputError) and plain:
            return "refused", None
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        said = ", ".join(f"{place}={how}" for place, how in hurt.items())
        return "found", Finding(number, name, said, text, traceback.format_exc())
    return "value", None


def run_calls(calls: Iterable[int], seed: int = 0, only: str = "") -> Iterator[Finding | str]:
    """Make calls, and yield what was found, or how the call ended."""
    for number in calls:
        end, finding = run_call(seed, number, only)
        yield finding or end


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--call", type=int, help="Number of a call to repeat.")
    parser.add_argument("--only", default="", choices=["", *TARGETS], help="Name of a target.")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.call is not None:
        end, finding = run_call(given.seed, given.call, given.only)
        print(end, "" if finding is None else f"{finding.spoiled}\n{finding.trace}")
        return int(finding is not None)
    ends: Counter[str] = Counter()
    for result in run_calls(range(given.calls), given.seed, given.only):
        kind = result.kind if isinstance(result, Finding) else result
        ends[kind] += 1
        if isinstance(result, Finding) and ends[kind] == 1:
            print(f"call {result.number}, {kind}\n    {result.spoiled}", flush=True)
    print(*(f"{times:6d} x {kind}" for kind, times in ends.most_common()), sep="\n")
    return int(bool(ends.keys() - {"value", "refused"}))


if __name__ == "__main__":
    sys.exit(main())
