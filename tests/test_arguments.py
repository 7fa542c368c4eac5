"""The check of arguments: what each annotation admits, and that no public function is without."""

import inspect
import pickle
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, SupportsFloat

import numpy as np
import pytest
import torch
from torch import Tensor

import ncscope
from ncscope import InputError, losses
from ncscope.arguments import Level, Positive, Share, Size, Within, check_arguments, describe
from tests.interface import entries

pytestmark = pytest.mark.usefixtures("unchecked_signatures")


@check_arguments
def take(
    integer: int = 0,
    number: float = 0.0,
    flag: bool = False,
    text: str = "",
    choice: Literal["a", "b"] = "a",
    *,
    size: Size | None = None,
    level: Level = 0.5,
    share: Share = 0.5,
    positive: Positive = 1.0,
    step: Annotated[SupportsFloat, Within(open=True)] = 0,
    loss: SupportsFloat = 0,
    names: Collection[str] = (),
    row: Sequence[float] = (),
    stream: Iterable[float] = (),
    table: Mapping[str, float] = {},
    function: Callable[[], None] = lambda: None,
    path: str | Path = "",
    device: torch.device | str = "cpu",
    tensor: Tensor | None = None,
    pair: tuple[int, str] = (0, ""),
    either: Literal["all"] | Size = "all",
    thread: threading.Thread | None = None,
    anything: Any = None,
) -> dict[str, Any]:
    return dict(locals())


ADMITTED = [
    ("integer", np.int8(3), 3),
    ("integer", torch.tensor(3), 3),
    ("integer", np.array([3]), 3),
    ("integer", -(2**63), -(2**63)),
    ("number", 3, 3.0),
    ("number", np.float16(0.5), 0.5),
    ("number", torch.tensor(0.5), 0.5),
    ("number", Fraction(1, 4), 0.25),
    ("flag", np.bool_(True), True),
    ("flag", torch.tensor(True), True),
    ("choice", np.str_("b"), "b"),
    ("size", None, None),
    ("size", 1, 1),
    ("share", 1, 1.0),
    ("loss", float("inf"), float("inf")),
    ("loss", torch.tensor(2.0, requires_grad=True), 2.0),
    ("names", {"nc1"}, {"nc1"}),
    ("names", "nc1", "nc1"),
    ("names", {"nc1": 1}.keys(), {"nc1"}),
    ("row", np.array([1.0, 2.0]), [1.0, 2.0]),
    ("stream", iter([1, 2]), [1.0, 2.0]),
    ("table", {"a": np.float32(2)}, {"a": 2.0}),
    ("path", Path("a"), Path("a")),
    ("pair", [np.int64(1), "a"], (1, "a")),
    ("either", np.int64(2), 2),
    ("either", "all", "all"),
    ("anything", object, object),
]
REFUSED = [
    ("integer", True, "integer as an integer, found True"),
    ("integer", 3.0, "found 3.0"),
    ("integer", "3", "found '3'"),
    ("integer", 2**63, "found 9223372036854775808; pass a whole number below 2**63"),
    ("integer", 10**5000, "found an integer of 16610 bits"),
    ("integer", torch.tensor(True), "found a tensor of torch.bool and shape ()"),
    ("integer", np.arange(2), r"found an array of int64 and shape (2,)"),
    ("integer", torch.tensor(3, device="meta"), "found a tensor of torch.int64"),
    ("number", None, "number as a finite number, found None"),
    ("number", float("nan"), "found nan"),
    ("number", 10**400, "found an integer of 1329 bits"),
    ("number", True, "found True"),
    ("number", 1j, "found 1j"),
    ("number", "0.1", "found '0.1'; pass a number, such as 0.1"),
    ("number", torch.tensor(1.0, requires_grad=True), "requires a gradient, which would be lost"),
    ("flag", 1, "flag as True or False, found 1"),
    ("flag", None, "found None"),
    ("text", 3, "text as text, found 3; pass text in quotes"),
    ("text", b"a", "found b'a'"),
    ("choice", "c", "choice as 'a' or 'b', found 'c'; choose one of them"),
    ("choice", np.zeros(3), "found an array"),
    ("size", 0, "size as an integer of at least 1 or None, found 0"),
    ("level", 1.0, "level as a finite number between 0 and 1, found 1.0"),
    ("share", 1.5, "share as a finite number from 0 to 1, found 1.5"),
    ("positive", 0.0, "positive as a finite number above 0, found 0.0"),
    ("step", float("inf"), "step as a number that is finite, found inf"),
    ("names", 5, "names as a list (of each: text), found 5; pass a list"),
    ("names", ["nc1", 5], "found 5 in it"),
    ("names", iter(["nc1"]), "found a list_iterator"),
    ("names", b"nc1", "found b'nc1'"),
    ("row", ["a"], "found 'a' in it"),
    ("row", {1.0}, "found {1.0}"),
    ("row", np.zeros(()), "found an array"),
    ("stream", iter([1.0, None]), "found None in it"),
    ("table", None, "table as a dictionary from text to a finite number, found None"),
    ("table", {"a": None}, "found None under 'a'"),
    ("table", {3: 1.0}, "found 3 as a key"),
    ("function", 5, "function as a function, found 5"),
    ("path", "a\0b", r"path as a path, found 'a\x00b'"),
    ("path", 3, "found 3"),
    ("device", "nope", "found 'nope', on which torch cannot compute here"),
    ("device", "meta", "found 'meta'"),
    ("tensor", np.zeros(3), "tensor as a dense torch tensor or None, found an array"),
    ("tensor", torch.eye(2).to_sparse(), "found a sparse tensor"),
    ("tensor", torch.zeros(2, device="meta"), "found a tensor without values (meta device)"),
    ("pair", (1, 2), "pair as a tuple of 2, found (1, 2)"),
    ("pair", (1,), "pair as a tuple of 2, found (1,)"),
    ("either", "some", "either as 'all' or an integer of at least 1, found 'some'"),
    ("either", 0, "found 0"),
    ("thread", object(), "thread as a Thread or None, found an object"),
]


@pytest.mark.parametrize(("name", "value", "taken"), ADMITTED, ids=lambda _: "")
def test_values_that_fit_arrive_as_plain_numbers(name: str, value: object, taken: object) -> None:
    received = take(**{name: value})[name]
    assert received == taken
    if isinstance(taken, int | float | str):
        assert type(received) in (type(taken), np.str_)


@pytest.mark.parametrize(("name", "value", "said"), REFUSED, ids=lambda _: "")
def test_others_are_refused_by_name(name: str, value: object, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        take(**{name: value})
    assert said in str(refusal.value)
    assert str(refusal.value).startswith(f"expected {name} as ")
    assert "\n" not in str(refusal.value)


def test_positions_count_as_names_do() -> None:
    with pytest.raises(InputError, match="expected flag as True or False, found 'yes'"):
        take(1, 2.0, "yes")
    with pytest.raises(TypeError, match="positional"):
        take(1, 2.0, True, "", "a", 6)


def test_values_that_need_no_conversion_are_passed_on_as_they_are() -> None:
    names, table, tensor = ["a"], {"a": 1.0}, torch.ones(2)
    received = take(names=names, table=table, tensor=tensor)
    assert received["names"] is names
    assert received["table"] is table
    assert received["tensor"] is tensor


def test_a_description_is_short_whatever_the_value() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    values = [Broken(), [Broken()] * 99, "x" * 10**6, [10**5000], {"a": Broken()}, list(range(999))]
    for value in values:
        assert len(describe(value)) < 80


def test_signatures_and_names_stay() -> None:
    parameter = inspect.signature(ncscope.measure).parameters["prior"]
    assert parameter.default == "empirical"
    assert ncscope.measure.__doc__ is not None
    assert pickle.loads(pickle.dumps(ncscope.measure)) is ncscope.measure
    assert ncscope.History.__init__.__qualname__ == "History.__init__"


def test_every_public_function_checks_its_arguments() -> None:
    """A function without the check passes only if it has nothing to check."""
    without = []
    for entry in entries():
        has_check = "checks" in vars(entry.call)
        if not has_check and not entry.is_record and check_arguments(entry.call) is not entry.call:
            without.append(entry.name)
    assert without == []


def test_the_walk_reaches_what_a_user_calls() -> None:
    names = {entry.name for entry in entries()}
    expected = {"measure", "History.add", "Report.from_json", "ClassMoments.merge", "gather"}
    expected |= {
        "squared_error",
        "smoothed_cross_entropy",
        "rank_checkpoints",
        "ModelWatch.labels",
    }
    expected |= {"NeuralCollapse.__init__", "NeuralCollapseCallback", "LinearProbe.scores"}
    assert expected <= names


@pytest.mark.parametrize("fullgraph", [True, False])
def test_losses_compile_with_their_check(fullgraph: bool) -> None:
    rows = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)

    def loss(rows: Tensor) -> Tensor:
        return losses.feature_and_classifier_decay(rows, rows, feature_decay=0.1, weight_decay=0.2)

    compiled = torch.compile(loss, fullgraph=fullgraph, backend="eager")
    assert torch.allclose(compiled(rows), loss(rows))
    (gradient,) = torch.autograd.grad(compiled(rows), rows)
    assert torch.allclose(gradient, torch.func.grad(loss)(rows.detach()))
    each = torch.func.vmap(loss)(torch.stack([rows, 2 * rows]))
    assert torch.allclose(each, torch.stack([loss(rows), loss(2 * rows)]))
