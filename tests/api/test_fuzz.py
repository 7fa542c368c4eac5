"""Random arrays and arguments: a report whose values lie in their ranges, or one InputError.

The nightly suite runs 1,000 examples, and 400 calls of the whole interface with hostile arguments;
``pytest -m nightly tests/api/test_fuzz.py --fuzz 50000`` runs more. The examples are the same in
every run of one number. `tests.fuzzing` names each of the calls, to repeat it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ncscope
from ncscope.metrics.registry import GROUPS
from tests.fuzzing import BY_NAME, Finding, check_report, run_calls

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("unchecked_signatures")]

KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "float64": lambda a: a,
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "bfloat16": lambda a: torch.from_numpy(a).bfloat16(),
    "tensor": torch.from_numpy,
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
    "fortran": np.asfortranarray,
    "big-endian": lambda a: a.astype(">f8"),
    "list": lambda a: a.tolist(),
    "gradient": lambda a: torch.from_numpy(a).requires_grad_(),
}
LABELS: dict[str, Callable[[np.ndarray], Any]] = {
    "int64": lambda y: y,
    "int32": lambda y: y.astype(np.int32),
    "uint8": lambda y: y.astype(np.uint8),
    "float": lambda y: y.astype(np.float64),
    "tensor": torch.from_numpy,
    "list": lambda y: y.tolist(),
}
SPOILED: dict[str, Callable[["Case"], dict[str, Any]]] = {
    "NaN": lambda c: {"features": _with(c.features, math.nan)},
    "infinity": lambda c: {"features": _with(c.features, math.inf)},
    "a label short": lambda c: {"labels": c.labels[1:]},
    "a negative label": lambda c: {"labels": c.labels - 1 - c.labels.max()},
    "names and numbers": lambda c: {"labels": ["class 0", *c.labels[1:].tolist()]},
    "one-hot": lambda c: {"labels": np.eye(c.labels.max() + 1)[c.labels]},
    "half a label": lambda c: {"labels": c.labels + 0.5},
    "three axes": lambda c: {"features": c.features[:, :, None]},
    "no rows": lambda c: {"features": c.features[:0], "labels": c.labels[:0]},
    "one class": lambda c: {"labels": np.zeros_like(c.labels)},
    "complex": lambda c: {"features": c.features + 1j},
    "a column too many": lambda c: {"weight": np.ones((c.classes, c.features.shape[1] + 1))},
    "NaN in the weight": lambda c: {"weight": np.full((c.classes, c.features.shape[1]), np.nan)},
    "negative decay": lambda c: {"weight_decay": -1.0},
    "no such group": lambda c: {"groups": ["nc9"]},
    "no such prior": lambda c: {"prior": "flat"},
}


@dataclass(frozen=True)
class Case:
    """Arguments of one call of measure."""

    features: np.ndarray
    labels: np.ndarray
    classes: int
    weight: np.ndarray | None
    bias: np.ndarray | None
    options: dict[str, Any]

    def measure(self, **changes: Any) -> ncscope.Report:
        given = {"features": self.features, "labels": self.labels, "weight": self.weight}
        given |= {"bias": self.bias, "num_classes": self.classes, **self.options, **changes}
        return ncscope.measure(**given)


@st.composite
def cases(draw: st.DrawFn, largest: float = 300.0) -> Case:
    """Draw features of any shape, rank, offset, collapse and magnitude, and a classifier."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(0, 8), min_size=2, max_size=7))
    dim = draw(st.sampled_from([1, 2, 2, 3, 3, 4, 6, 9]))
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    means = rng.normal(size=(len(sizes), dim))
    shape = draw(st.sampled_from(["free", "rank 1", "equal", "zero", "integers", "alternating"]))
    if shape == "rank 1":
        means = means[:, :1] * rng.normal(size=dim)
    elif shape == "equal":
        means = np.repeat(means[:1], len(sizes), axis=0)
    elif shape == "zero":
        means = np.zeros_like(means)
    elif shape == "integers":
        means = np.round(3 * means)
    elif shape == "alternating":
        means = means[np.arange(len(sizes)) % 2]
    spread = draw(st.sampled_from([0.0, 1e-12, 1e-7, 1e-3, 1.0, 30.0]))
    noise = rng.normal(size=(len(labels), dim))
    noise[:, : draw(st.integers(0, dim))] *= draw(st.sampled_from([1.0, 0.0, 1e-8, 1e5]))
    offset = draw(st.sampled_from([0.0, 0.0, 1.0, 1e4]))
    features = means[labels] + spread * noise + offset
    features = features * 10.0 ** draw(st.sampled_from([0.0, 0.0, 0.0, -largest, largest, 30.0]))
    weight = bias = None
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["means", "random", "zero", "repeated"]))
        weight = {"means": means, "random": rng.normal(size=means.shape)}.get(kind, 0 * means)
        if kind == "repeated":
            weight = np.ones_like(means)
        bias = rng.normal(size=len(sizes)) if draw(st.booleans()) else None
    options: dict[str, Any] = {
        "prior": draw(st.sampled_from(["empirical", "uniform"])),
        "groups": draw(st.one_of(st.none(), st.lists(st.sampled_from(GROUPS), max_size=3))),
        "weight_decay": draw(st.sampled_from([0.0, 0.0, 1e-300, 1e-20, 1e-4, 1.0])),
    }
    return Case(features, labels, len(sizes), weight, bias, options)


def _with(features: np.ndarray, value: float) -> np.ndarray:
    spoiled = features.copy()
    spoiled[-1:, -1] = value
    return spoiled


def report_or_refusal(call: Callable[[], ncscope.Report]) -> ncscope.Report | None:
    """Return the report, None for an InputError in one line; any other exception is a failure."""
    try:
        report = call()
    except ncscope.InputError as error:
        message = str(error)
        assert message.startswith("expected ")
        assert "\n" not in message
        return None
    check_report(report)
    return report


@pytest.fixture(scope="module")
def count(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("--fuzz"))


def fuzz(count: int, strategy: st.SearchStrategy[Any], run: Callable[[Any], None]) -> None:
    """Run a check on so many drawn examples."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
    profile = settings(max_examples=count, deadline=None, derandomize=True, database=None)
    profile = settings(profile, suppress_health_check=quiet)
    profile(given(strategy)(run))()


def test_any_arrays_give_a_report_or_one_line(count: int) -> None:
    kinds = st.tuples(cases(), st.sampled_from(list(KINDS)), st.sampled_from(list(LABELS)))

    def run(drawn: tuple[Case, str, str]) -> None:
        case, kind, labels = drawn
        with np.errstate(over="ignore", under="ignore"):
            features = KINDS[kind](case.features)
        report_or_refusal(
            lambda: case.measure(features=features, labels=LABELS[labels](case.labels))
        )

    fuzz(count * 2 // 5, kinds, run)


def test_spoiled_arguments_are_refused(count: int) -> None:
    spoiled = st.tuples(cases(largest=30.0), st.sampled_from(list(SPOILED)))

    def run(drawn: tuple[Case, str]) -> None:
        case, how = drawn
        if len(case.labels):
            changes = SPOILED[how](case)
            if how == "no such group" or "weight" not in changes or case.bias is None:
                assert report_or_refusal(lambda: case.measure(**changes)) is None, how

    fuzz(count // 5, spoiled, run)


RATIO_FLOOR = 1e-6
"""Rounding of MIR in [0, 1]: a difference of entropies over the smaller, which is 5e-7 for two rows
that are opposite up to an angle of 3e-4. Errors of 1e-15 of the difference become 3e-9."""


def agree(one: ncscope.Report, other: ncscope.Report, rel: float, abs_tol: float) -> None:
    assert set(one) == set(other)
    for key, value in one.items():
        same = value == other[key] or (math.isnan(value) and math.isnan(other[key]))
        near = max(abs_tol, RATIO_FLOOR) if key.startswith("mir") else abs_tol
        assert same or math.isclose(value, other[key], rel_tol=rel, abs_tol=near), (
            key,
            value,
            other[key],
        )


def scale_free(key: str, has_bias: bool) -> bool:
    """Return whether a metric stays when the features are scaled and the classifier is not."""
    row = BY_NAME[key]
    decided = has_bias and bool({"decisions", "hits"} & row.needs) and "head" in row.needs
    return row.degree == 0 and row.group != "mse" and not decided


def test_scaling_by_a_power_of_two_changes_no_bit(count: int) -> None:
    drawn_pairs = st.tuples(cases(largest=0.0), st.integers(-900, 900))

    def run(drawn: tuple[Case, int]) -> None:
        case, exponent = drawn
        case = replace(case, options=case.options | {"weight_decay": 0.0})
        small = np.abs(case.features[case.features != 0]).min(initial=1.0)
        if 2.0**exponent * small < 1e-290:  # digits would be lost before anything is measured
            return
        half = exponent // 2
        features = case.features * 2.0**half * 2.0 ** (exponent - half)
        plain = report_or_refusal(case.measure)
        scaled = report_or_refusal(lambda: case.measure(features=features))
        assert (plain is None) == (scaled is None)
        if plain is None or scaled is None:
            return
        for key in (key for key in plain if scale_free(key, case.bias is not None)):
            assert plain[key] == scaled[key] or math.isnan(plain[key] + scaled[key]), key

    fuzz(count // 5, drawn_pairs, run)


@st.composite
def tame(draw: st.DrawFn) -> Case:
    """Draw cases whose values no rounding decides: full rank, distinct means, no ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(2, 8), min_size=2, max_size=5))
    dim = draw(st.integers(1, 6))
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    means = rng.normal(size=(len(sizes), dim))
    features = means[labels] + draw(st.sampled_from([0.1, 1.0])) * rng.normal(
        size=(len(labels), dim)
    )
    weight = means + 0.3 * rng.normal(size=means.shape)
    bias = draw(st.sampled_from([None, rng.normal(size=len(sizes))]))
    options = {
        "prior": draw(st.sampled_from(["empirical", "uniform"])),
        "weight_decay": draw(st.sampled_from([0.0, 0.01])),
    }
    return Case(features, labels, len(sizes), weight, bias, options)


def test_order_names_and_copies_of_samples_do_not_matter(count: int) -> None:
    """All three at a time; tests/metrics/test_invariances.py changes one after the other."""

    def run(case: Case) -> None:
        rng = np.random.default_rng(len(case.labels))
        plain = case.measure()
        check_report(plain)
        order = rng.permutation(np.repeat(np.arange(len(case.labels)), 2))
        names = rng.permutation(case.classes)
        changed = {"features": case.features[order], "labels": names[case.labels[order]]}
        changed["weight"] = np.empty_like(case.weight)
        changed["weight"][names] = case.weight
        if case.bias is not None:
            changed["bias"] = np.empty_like(case.bias)
            changed["bias"][names] = case.bias
        agree(plain, case.measure(**changed), rel=1e-8, abs_tol=1e-11)

    fuzz(count // 5, tame(), run)


def test_hostile_calls_end_in_a_value_or_one_line(count: int) -> None:
    ends = list(run_calls(range(count * 2 // 5)))
    assert [end for end in ends if isinstance(end, Finding)] == []
    assert min(ends.count("value"), ends.count("refused")) > count // 10  # neither is missed
