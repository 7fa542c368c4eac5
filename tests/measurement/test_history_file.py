"""JSON of reports and histories: what loads can be shown, in every way; the rest is refused."""

import copy
import json
import math
import os
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ncscope
from ncscope.api.comparison import read_sources
from ncscope.cli.terminal import Terminal
from ncscope.errors import InputError
from ncscope.measurement.history_file import format_history

pytestmark = pytest.mark.usefixtures("unchecked_signatures")

NAMES = ("cat", "$x$", "=1+1")


@cache
def texts() -> dict[str, str]:
    """A report of features, one of a model and a history of two runs, as JSON."""
    noise = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    features = torch.randn(60, 8, generator=noise) + 3 * torch.eye(8)[labels]
    head = torch.randn(3, 8, generator=noise)
    groups = ["nc1", "nc2", "nc4", "spectra", "per_class"]
    trust = {"uncertainty": True, "baseline": True}
    one = ncscope.measure(features, labels, head, groups=groups, **trust)
    one.class_names = NAMES
    torch.manual_seed(0)
    layers = (nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    model = ncscope.measure_model(
        nn.Sequential(*layers),
        [(features, labels)],
        layers=["0", "2"],
        groups=["nc4", "pfc", "spectra", "per_class"],
        progress=False,
    )
    history = ncscope.History(class_names=NAMES, seed=1)
    for step in (0, 1):
        for run in ("first", ""):
            history.add(model, step=step, run=run, values={"loss": 0.5 - step / 4})
            history.add(one, step=step, run=run, split="test")
    whole = format_history(history.measurements, history.unit, history.provenance)
    return {"features": one.to_json(), "model": model.to_json(), "history": whole}


HOSTILE: tuple[Any, ...] = (
    None, True, 0, -1, 3, 2**63, -(10**400), 10**400, 10**300, 0.5, -0.5, 1e308, -1e308, 5e-324,
    math.nan, math.inf, "nan", "inf", "-inf", "", "x", "\udcff", "$\\x$", "\x00\x1b[31m",
    "x" * 5000, "\u202eabc", "=1+1", "_", "<script>", [], [1], [[1.0]], [[]], ["x", "x"], {},
    {"x": 1}, {"x": "nan"}, {"": {}},
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every field at any depth, as its container and its name or index in it."""
    named = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in list(named):
        yield value, name
        if isinstance(inner, dict | list):
            yield from places(inner)


def change(whole: Any, chosen: random.Random) -> str:
    """Change one field, chosen at random, and return what was done."""
    options = list(places(whole))
    # Of each kind of field one, as numbers of spectra are many and provenance has few fields.
    kinds: dict[Any, list[tuple[Any, Any]]] = {}
    for holder, name in options:
        kind = (type(name), name if isinstance(name, str) else len(holder))
        kinds.setdefault(kind, []).append((holder, name))
    holder, name = chosen.choice(chosen.choice(list(kinds.values())))
    way = chosen.choice(("replace", "replace", "replace", "delete", "duplicate", "rename", "swap"))
    if way == "delete":
        del holder[name]
    elif way == "duplicate" and isinstance(holder, list):
        holder.insert(name, copy.deepcopy(holder[name]))
    elif way == "rename" and isinstance(holder, dict):
        holder[chosen.choice(("x", "nc1", "$", "\udcff", "run", "step", "=1"))] = holder.pop(name)
    elif way == "swap":
        other, there = chosen.choice(options)
        holder[name] = copy.deepcopy(other[there]) if there in _names(other) else None
    else:
        holder[name] = copy.deepcopy(chosen.choice(HOSTILE))
    return f"{way} {name!r:.40}: {holder[name] if name in _names(holder) else '-'!r:.80}"


def _names(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def show(whole: str, kind: str, folder: Path, suffixes: tuple[str, ...]) -> bool:
    """Load JSON and show it in every way; return whether it was loaded."""
    path, other = folder / "a.json", folder / "b.json"
    path.write_text(whole)
    load: Callable[[Any], Any] = ncscope.Report.from_json
    if kind == "history":
        load = ncscope.History.load
    try:
        read = load(path)
        sources = read_sources([path])
    except InputError:
        return False
    repr(read)
    read.rows()
    classes = read.per_class() if kind == "history" else read.per_class
    if classes is not None:
        repr(classes)
        classes.rows()
    for suffix in suffixes:
        saved = read.save(folder / f"o{suffix}")
        if classes is not None and suffix in (".csv", ".tex", ".svg"):
            classes.save(folder / f"c{suffix}")
        if suffix == ".json":
            assert repr(load(saved)) == repr(load(read.save(folder / "again.json")))
    if ".html" in suffixes:
        read._repr_html_()
        table = sources.table()
        with Path(os.devnull).open("w") as nowhere:
            Terminal(file=nowhere).print("none" if table is None else table)
        other.write_text(texts()[kind])
        read_sources([path, other]).save(folder / "both.html")
    if kind == "history":
        read.logs()
        for key in read.keys()[:2] if ".svg" in suffixes else ():
            read.plot(key)
    else:
        np.array([read.interval(key) is None for key in read])
    return True


QUICK = (".json", ".csv")
EVERY = (*QUICK, ".tex", ".html", ".svg")


def try_changes(seed: int, count: int, suffixes: tuple[str, ...], folder: Path) -> None:
    """Change a field, and show what loads; some changes are refused and some are not."""
    chosen, shown = random.Random(seed), 0
    for _ in range(count):
        kind = chosen.choice(list(texts()))
        whole = json.loads(texts()[kind])
        done = change(whole, chosen)
        try:
            shown += show(json.dumps(whole), kind, folder, suffixes)
        except Exception as error:
            error.add_note(f"{kind}, seed {seed}: {done}")
            raise
    assert 0 < shown < count


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_what_loads_can_be_shown(seed: int, tmp_path: Path) -> None:
    try_changes(seed, 40, QUICK, tmp_path)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize(("seed", "count", "suffixes"), [(6, 400, QUICK), (7, 40, EVERY)])
def test_what_loads_after_many_changes_can_be_shown(
    seed: int, count: int, suffixes: tuple[str, ...], tmp_path: Path
) -> None:
    try_changes(seed, count, suffixes, tmp_path)


def of_last(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda whole: change(whole["probe"]["layers"][-1])


def of_probe(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda whole: change(whole["probe"])


CONTRADICTIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a large number": (
        of_last(lambda o: o["metrics"].update(nc1=10**400)),
        "a whole number of 401 digits, beyond the range of float64",
    ),
    "a negative count": (of_last(lambda o: o.update(dim=-1)), "-1 where a count should be"),
    "a huge count": (of_last(lambda o: o.update(num_samples=2**63)), "where a count should be"),
    "a name of a layer": (of_last(lambda o: o.update(layer="x")), "comparable layers that are not"),
    "a comparable name": (
        of_probe(lambda o: o["comparable"].__setitem__(-1, "x")),
        "comparable layers that are not among the layers",
    ),
    "an order": (of_probe(lambda o: o["comparable"].reverse()), "comparable layers that are not"),
    "a dimension": (of_last(lambda o: o.update(dim=9)), "comparable layers of different dim"),
    "a position": (of_probe(lambda o: o["relative_position"].pop()), "positions of 3 comparable"),
    "a layer twice": (
        of_probe(lambda o: o["layers"].append(o["layers"][-1])),
        "twice a layer: 'head input'",
    ),
    "a layer in the summary": (lambda o: o["layers"].popitem(), "a summary and a record of differ"),
    "no summary": (lambda o: o.pop("layers"), "3 layers in a report of features"),
    "a ragged gram": (of_last(lambda o: o["gram"][1].pop()), "that are no square"),
    "a large gram": (of_last(lambda o: o.update(num_classes=2)), "that are no square"),
    "a curve": (of_probe(lambda o: o["geodesic"]["pfc2"].pop()), "numbers beside one of"),
    "classes present": (of_last(lambda o: o.update(num_present=4)), "4 classes present of 3"),
    "chance of nothing": (
        of_last(lambda o: o["baseline"].update(x=1)),
        "baseline of 'x', which was not measured",
    ),
    "a negative error": (
        of_last(lambda o: o["standard_errors"].update({next(iter(o["metrics"])): -1})),
        "a standard error that is negative or not finite",
    ),
    "a class beyond": (
        of_last(lambda o: o.update(gram=None, num_classes=2)),
        "a table with class 2 of 2",
    ),
    "an endless error": (
        of_last(lambda o: o["standard_errors"].update({next(iter(o["metrics"])): "inf"})),
        "a standard error that is negative or not finite",
    ),
    "fewer samples": (of_last(lambda o: o.update(num_samples=1)), "classes beside 1 of 3"),
    "a value beyond its range": (
        of_last(lambda o: o["metrics"].update(accuracy=7.0)),
        "accuracy of 7, beyond its range",
    ),
    "a cosine": (of_last(lambda o: o["gram"][0].__setitem__(1, 1e300)), "a cosine beyond 1"),
    "a line of nothing": (
        of_probe(lambda o: o["geodesic"].update(t=[], pfc1=[], pfc2=[], pfc3=[])),
        "a line of 0 positions",
    ),
    "a version": (lambda o: o.update(schema_version=True), "schema version True"),
    "a text as list": (of_last(lambda o: o.update(notes="abc")), "no JSON list"),
    "a number as text": (of_last(lambda o: o.update(layer=3)), "3 where a text should be"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_fields_that_contradict_each_other_are_named(name: str) -> None:
    change, said = CONTRADICTIONS[name]
    whole = json.loads(texts()["model"])
    change(whole)
    with pytest.raises(InputError, match="a report that ncscope wrote, found the text: ") as caught:
        ncscope.Report.from_json(json.dumps(whole))
    assert said in str(caught.value)


def test_a_name_twice_in_an_object_is_refused() -> None:
    whole = texts()["features"]
    for name in ("schema_version", "nc1", "layer"):
        twice = whole.replace(f'"{name}": ', f'"{name}": 1, "{name}": ', 1)
        with pytest.raises(InputError, match=f"twice a name in an object: '{name}'"):
            ncscope.Report.from_json(twice)
