"""Features without labels: from arrays, from moments, in a model, and what reports make of them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ncscope
from ncscope import ClassMoments, History, InputError, Report
from ncscope.metrics.registry import METRICS

pytestmark = pytest.mark.usefixtures("unchecked_signatures")

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(60, 6)) * np.arange(1, 7) + 1
Y = np.arange(60) % 3
W = GENERATOR.normal(size=(3, 6))
SPECTRAL = {key for key, row in METRICS.items() if not row.needs_classes}


def moments_of(features: np.ndarray, parts: int = 1) -> ClassMoments:
    moments = ClassMoments(num_classes=1, statistics=["scatter"])
    for rows in np.array_split(features, parts):
        moments.update(rows, np.zeros(len(rows), dtype=int))
    return moments


def test_a_report_without_labels_holds_the_spectra_alone() -> None:
    report = ncscope.measure(X)
    assert set(report) == SPECTRAL
    assert list(report.spectra) == ["total"]
    values = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
    np.testing.assert_allclose(report.spectra["total"], values, rtol=1e-12)
    assert (report.num_classes, report.num_samples, report.dim) == (0, 60, 6)
    assert report.record.gram is None
    assert not report.warnings
    assert "60 samples, no labels, dimension 6" in repr(report)


def test_labels_change_nothing() -> None:
    labelled, alone = ncscope.measure(X, Y, W), ncscope.measure(X)
    for key in SPECTRAL:
        assert labelled[key] == pytest.approx(alone[key], rel=1e-9)
    np.testing.assert_allclose(labelled.spectra["total"], alone.spectra["total"], rtol=1e-9)


@pytest.mark.parametrize("parts", [1, 7, 60])
def test_a_stream_of_one_class(parts: int) -> None:
    report = ncscope.measure_moments(moments_of(X, parts))
    wanted = ncscope.measure(X)
    assert dict(report) == pytest.approx(dict(wanted), rel=1e-9)
    assert (report.num_classes, report.num_samples) == (0, 60)


def test_one_class_of_several_is_still_refused() -> None:
    moments = ClassMoments(num_classes=3)
    moments.update(X, 0 * Y)
    with pytest.raises(InputError, match="at least two classes"):
        ncscope.measure_moments(moments)
    with pytest.raises(InputError, match="at least two classes"):
        ncscope.measure(X, 0 * Y)


def test_the_note_on_the_fit_is_there_if_there_is_a_fit() -> None:
    """Neither if alpha_req is not asked for, nor if it is undefined."""
    fits = [ncscope.measure(X), ncscope.measure(X, Y, groups=["alpha_req"])]
    none = [
        ncscope.measure(X, groups=["rankme"]),
        ncscope.measure(X[:, :2]),
        ncscope.measure(X[:1]),
    ]
    for report, fitted in [(each, True) for each in fits] + [(each, False) for each in none]:
        (note,) = (note for note in report.notes if note.startswith("covariance: "))
        assert note.endswith("alpha_req is fitted to these") is fitted


def test_groups_and_single_keys() -> None:
    report = ncscope.measure(X, groups=["rankme"])
    assert set(report) == {"rankme"}
    assert not report.spectra
    assert dict(ncscope.measure(X, groups="spectra")) == dict(ncscope.measure(X))


REFUSED = {
    "weight": lambda: ncscope.measure(X, weight=W),
    "bias": lambda: ncscope.measure(X, bias=W[:, 0]),
    "num_classes": lambda: ncscope.measure(X, num_classes=3),
    "prior": lambda: ncscope.measure(X, prior="uniform"),
    "weight_decay": lambda: ncscope.measure(X, weight_decay=0.1),
    "reference": lambda: ncscope.measure(X, reference=ncscope.measure(X, Y)),
    "baseline": lambda: ncscope.measure(X, baseline=True),
    "ood": lambda: ncscope.measure(X, ood=X),
    "features without labels": lambda: ncscope.measure(X, Y, reference=ncscope.measure(X)),
    "weight of moments": lambda: ncscope.measure_moments(moments_of(X), W[:1]),
    "'nc1', 'accuracy'": lambda: ncscope.measure(X, groups=["nc1", "accuracy", "spectra"]),
    "'pfc'": lambda: ncscope.measure_moments(moments_of(X), groups=["pfc"]),
    "shape (0, 6)": lambda: ncscope.measure(X[:0]),
    "shape (6,)": lambda: ncscope.measure(X[0]),
    "moments without samples": lambda: ncscope.measure_moments(ClassMoments(1, 6)),
    "NaN or Inf in 1 of 60": lambda: ncscope.measure(np.where(np.arange(6) > 4, np.nan, X)[:1]),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_needs_labels_is_refused_in_one_sentence(said: str) -> None:
    with pytest.raises(InputError) as caught:
        REFUSED[said]()
    words = said.removesuffix(" of moments").replace("1 of 60", "1 of 1")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_standard_errors_are_those_with_labels_of_one_class_each() -> None:
    """The jackknife by hand: 60 samples are three blocks of 20."""
    report = ncscope.measure(X, uncertainty=True)
    assert set(report.standard_errors) == SPECTRAL - {"alpha_req_r2"}
    place = np.arange(60).reshape(3, 20)
    twice = np.stack([np.roll(block, -1 - b) for b, block in enumerate(place)])
    kept = [np.r_[np.delete(place, g, 1).ravel(), twice[:, g]] for g in range(20)]
    for key in report.standard_errors:
        values = [ncscope.measure(X[rows])[key] for rows in kept]
        wanted = math.sqrt(10 * np.var(values))
        assert report.standard_errors[key] == pytest.approx(wanted, rel=1e-6)
    few = ncscope.measure(X[:10], uncertainty=True)
    assert not few.standard_errors
    assert "20 samples" in few.warnings[0]


def test_moments_without_a_scatter_have_no_spectra() -> None:
    moments = ClassMoments(num_classes=1, statistics=[])
    moments.update(X, 0 * Y)
    assert not ncscope.measure_moments(moments)


@pytest.mark.parametrize("suffix", [".html", ".json", ".csv", ".tex", ".svg"])
def test_every_file_of_a_report_and_of_a_history(suffix: str, tmp_path: Path) -> None:
    report = ncscope.measure(X)
    history = History(data="no labels")
    for step in range(3):
        history.add(ncscope.measure(X * np.arange(1.0, 7.0) ** -step), step=step)
    alone = report.save(tmp_path / f"report{suffix}").read_text()
    both = history.save(tmp_path / f"history{suffix}").read_text()
    assert "0 classes" not in alone + both
    if suffix in (".html", ".csv", ".tex"):
        assert all(
            key.replace("_", "\\_" if suffix == ".tex" else "_") in alone for key in SPECTRAL
        )
    if suffix == ".html":
        assert "no labels" in alone
        assert "no labels" in both
        assert "RankMe" in both.split('id="headlines-heading"')[1].split("</section>")[0]
    if suffix == ".json":
        again = Report.from_json(alone)
        assert (dict(again), again.num_classes) == (dict(report), 0)
        assert json.loads(alone)["num_classes"] == 0
        assert History.load(tmp_path / "history.json")["rankme"].tolist() == (
            history["rankme"].tolist()
        )


def test_labelled_layers_of_a_model_have_them() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    loader = [(torch.tensor(X[i : i + 20]), torch.tensor(Y[i : i + 20])) for i in (0, 20, 40)]
    report = ncscope.measure_model(
        model, loader, layers=["0"], groups=["spectra"], layer_groups=["spectra"], progress=False
    )
    with torch.no_grad():
        hidden = model[0](torch.tensor(X))
    wanted = {"0": ncscope.measure(hidden), "head input": ncscope.measure(hidden.relu())}
    for name, layer in report.layers.items():
        assert dict(layer) == pytest.approx(dict(wanted[name]), rel=1e-9)


def test_a_rank_that_the_number_of_samples_bounds_is_a_warning() -> None:
    rows = torch.randn(96, 12, generator=torch.Generator().manual_seed(0))
    (warning,) = ncscope.measure(rows[:8]).warnings
    assert warning.startswith("8 samples span at most 8 of 12 dimensions, which bounds rankme, ")
    enough = int(warning.rpartition("measure ")[2].removesuffix(" samples"))
    assert enough == 60
    assert ncscope.measure(rows[:enough]).warnings == []
    assert ncscope.measure(rows[:8], groups=["alpha_req"]).warnings == []
