"""Classes of a reference are those of the same names, not of the same numbers."""

import re

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import TensorDataset

import ncscope
from ncscope.errors import InputError
from ncscope.integrations.recording import Recorder
from ncscope.measurement.model import measure_layers


def draw(names: str = "abc") -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    means = rng.normal(size=(3, 4)) * 3
    return means[y] + rng.normal(size=(60, 4)), np.array(list(names))[y]


def test_names_are_numbered_as_in_the_reference() -> None:
    x, names = draw()
    train, kept = ncscope.measure(x, names), names != "a"
    by_names = ncscope.measure(x[kept], names[kept], reference=train)
    numbers = np.searchsorted(["a", "b", "c"], names[kept])
    by_numbers = ncscope.measure(x[kept], numbers, num_classes=3, reference=train)
    assert by_names["ncc_accuracy"] == by_numbers["ncc_accuracy"] > 0.8
    assert by_names.class_names == ("a", "b", "c")


def test_new_names_come_after_those_of_the_reference() -> None:
    x, names = draw()
    kept = names != "a"
    train = ncscope.measure(x[kept], names[kept])
    with pytest.raises(InputError, match="'a' at row"):
        ncscope.measure(x, names, reference=train)
    with pytest.raises(InputError, match=re.escape("('b', 'c'), with class_names= of that order")):
        ncscope.measure(x, names, class_names=["a", "b", "c"], reference=train)
    ncscope.measure(x, names, class_names=["b", "c", "a"], reference=train)


def test_numbers_beside_names_of_the_reference_get_a_note() -> None:
    x, names = draw()
    train = ncscope.measure(x, names)
    said = "labels taken as the numbers of the reference's classes: a, b, c"
    numbers = np.searchsorted(["a", "b", "c"], names)
    assert said in ncscope.measure(x, numbers, reference=train).notes
    assert said not in ncscope.measure(x, names, reference=train).notes


def test_a_callback_compares_the_names_with_those_of_its_reference() -> None:
    data = TensorDataset(torch.randn(60, 4), torch.arange(60) % 3)
    data.classes = ["a", "b", "c"]  # type: ignore[attr-defined]
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    reference = ncscope.measure_model(model, data, progress=False)
    settings = {"prefix": "nc", "log": "headline", "on_error": "raise", "save": None}
    recorder = Recorder(reference=reference, class_names=["b", "a", "c"], **settings)  # type: ignore[arg-type]
    result = measure_layers(model, data, recorder.options)
    with pytest.raises(InputError, match="'b' for its class 'a'"):
        recorder.run_in_all(lambda: recorder.add(result, 1, "val"))


def test_a_model_whose_data_set_names_other_classes_than_the_reference_is_refused() -> None:
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    train, other = TensorDataset(x, y), TensorDataset(x, y)
    train.classes, other.classes = ["a", "b", "c"], ["b", "c", "d"]  # type: ignore[attr-defined]
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    reference = ncscope.measure_model(model, train, progress=False)
    with pytest.raises(InputError, match="'b' for its class 'a'"):
        ncscope.measure_model(model, other, progress=False, reference=reference)
    with ncscope.watch(model, reference=reference, class_names=other.classes) as seen:  # type: ignore[attr-defined]
        model(x)
        seen.labels(y)
    with pytest.raises(InputError, match="'b' for its class 'a'"):
        seen.report()
    ncscope.measure_model(
        model, other, progress=False, reference=reference, class_names=["a", "b", "c"]
    )
