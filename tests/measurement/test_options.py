"""Options as one object, as keywords, and both."""

import copy
import dataclasses
import pickle
import typing

import pytest
import torch
from torch import nn

import ncscope
from ncscope import InputError, Options
from ncscope.integrations.lightning import NeuralCollapseCallback
from ncscope.measurement.options import OptionFields, merge_options

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
LOADER = [(X, torch.arange(40) % 4)]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).eval()


def test_keywords_are_the_fields_of_the_object() -> None:
    fields = {each.name: each.type for each in dataclasses.fields(Options)}
    assert typing.get_type_hints(OptionFields, include_extras=True) == fields


def test_an_object_and_keywords_give_the_same_report() -> None:
    options = Options(layers=["0"], groups=["nc1"], progress=False)
    by_object = ncscope.measure_model(network(), LOADER, options)
    by_keywords = ncscope.measure_model(
        network(), LOADER, layers=["0"], groups=["nc1"], progress=False
    )
    assert by_object.record == by_keywords.record
    with torch.no_grad(), ncscope.watch(model := network(), options) as seen:
        model(X)
        seen.labels(LOADER[0][1])
    assert dict(seen.report()) == pytest.approx(dict(by_object))


def test_a_keyword_replaces_a_field_of_the_object() -> None:
    options = Options(layers=["0"], groups=["nc1"], progress=False)
    report = ncscope.measure_model(network(), LOADER, options, groups=["nc2"], layers=None)
    assert "nc2_etf" in report
    assert "nc1" not in report
    assert options.groups == ["nc1"]


def test_a_name_alone_is_one_layer() -> None:
    assert Options(layers="13").layers == ("13",)
    report = ncscope.measure_model(network(), LOADER, layers="0", progress=False)
    assert list(report.layers) == ["0", "head input"]


def test_reports_have_tables_of_classes_and_callbacks_only_if_asked() -> None:
    assert ncscope.measure_model(network(), LOADER, progress=False).per_class is not None
    report = ncscope.measure_model(network(), LOADER, by_class=False, progress=False)
    assert report.per_class is None
    assert NeuralCollapseCallback()._recorder.options.by_class is None
    asked = NeuralCollapseCallback(options=Options(by_class=True))
    assert asked._recorder.options.by_class


@pytest.mark.parametrize(
    ("name", "hint"),
    [("laeyrs", "did you mean layers"), ("group", "did you mean process_group or groups"),
     ("wheight_dekay", "weight_decay"), ("zzz", "the options are layers, head")],
)  # fmt: skip
def test_a_field_that_does_not_exist_is_refused_with_the_nearest(name: str, hint: str) -> None:
    for call in (
        lambda: merge_options(None, {name: 1}),
        lambda: ncscope.measure_model(network(), LOADER, **{name: 1}),
        lambda: NeuralCollapseCallback(**{name: 1}),
    ):
        with pytest.raises(InputError, match=rf"a field of Options, found {name}; .*{hint}"):
            call()


def test_options_are_copied_pickled_and_compared_as_objects() -> None:
    options = Options(layers=["a"], class_counts=torch.ones(3))
    assert options == options
    assert options in {options}
    for other in (copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert other.layers == ["a"]
        assert other != options
