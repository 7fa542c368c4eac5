"""Checkpoints whose order is known, ranked, drawn and saved."""

import io
import json

import pytest
import torch
from rich.console import Console

from ncscope.api.measure import measure
from ncscope.api.transfer import rank_checkpoints
from ncscope.errors import InputError
from ncscope.report.transfer import ranking_figure, ranking_table
from ncscope.transfer.ranking import SCORES, hold_out
from tests.transfer.samples import blobs


@pytest.fixture(scope="module")
def checkpoints():
    """The same samples under more and more noise."""
    features, labels = blobs(150, 6, 3, seed=0)
    draws = torch.Generator().manual_seed(1)
    noise = torch.randn(features.shape, generator=draws, dtype=torch.float64)
    return {f"noise {size}": 2 * features + size * noise for size in (8, 0, 3)}, labels


@pytest.fixture(scope="module")
def report(checkpoints):
    features, labels = checkpoints
    pretraining = {name: (rows, labels) for name, rows in features.items()}
    return rank_checkpoints(features, labels, pretraining=pretraining)


def test_the_order_is_that_of_the_noise(report):
    assert report.order == ["noise 0", "noise 3", "noise 8"]
    found = report.ranking.correlations
    for key, score in SCORES.items():
        assert found[key]["spearman"].value == pytest.approx(score.better)


def test_the_scores_are_those_of_measure_on_the_training_samples(report, checkpoints):
    features, labels = checkpoints
    train = ~hold_out(labels, seed=0)
    for each in report.ranking.checkpoints:
        known = measure(features[each.name][train], labels[train], groups=["nc1"])
        whole = measure(features[each.name], labels, groups=["nc1"])
        for key in ("vci", "fuzziness", "nc1_quotient", "cosine_within", "cdnv"):
            assert each.scores[key] == pytest.approx(known[key], rel=1e-9)
            assert each.scores[f"pretraining_{key}"] == pytest.approx(whole[key], rel=1e-9)
        assert each.scores["h_score"] == pytest.approx(2 * (1 - known["vci"]))


def test_held_out_samples_of_ones_own(checkpoints):
    features, labels = checkpoints
    given = {
        "test_features": {name: rows[::3] for name, rows in features.items()},
        "test_labels": labels[::3] * 0,  # all of class 0: the accuracy says how often 0 is said
    }
    with pytest.raises(InputError, match="two classes"):
        rank_checkpoints(features, labels, **given)
    given["test_labels"] = 2 - labels[::3]
    with pytest.raises(InputError, match="one label a sample"):
        rank_checkpoints(features, labels, **given | {"test_labels": labels[:5]})


def test_a_fifth_of_each_class_is_held_out():
    labels = torch.arange(40) % 4
    mask = hold_out(labels, seed=3)
    assert torch.bincount(labels[mask]).tolist() == [2, 2, 2, 2]
    assert not torch.equal(mask, hold_out(labels, seed=4))


def test_the_record_the_table_and_the_figure(report, tmp_path):
    record = json.loads(report.save(tmp_path / "ranking.json").read_text())
    assert [each["name"] for each in record["checkpoints"]] == report.order
    assert set(record["correlations"]["vci"]["pearson"]) == {"value", "low", "high"}
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(ranking_table(report.ranking))
    text = console.export_text()
    assert all(name in text for name in (*report.order, "LogME", "Kendall"))
    figure = ranking_figure(report.ranking)
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
    assert len(titles) == len(report.ranking.scores)
    for axes, key in zip(figure.axes, report.ranking.scores, strict=False):
        points = [float(value) for line in axes.lines for value in line.get_xydata()[0]]
        known = [
            v for each in report.ranking.checkpoints for v in (each.scores[key], each.accuracy)
        ]
        assert points == pytest.approx(known)
    assert report.save(tmp_path / "ranking.png").stat().st_size > 10_000
    with pytest.raises(InputError, match=r"\.json or \.png"):
        report.save(tmp_path / "ranking.txt")


def test_bad_input_is_refused(checkpoints):
    features, labels = checkpoints
    for given, said in (
        ({"measure": "top-5"}, "'top-1', 'mean per class'"),
        ({"test_labels": labels}, "both or neither"),
        ({"pretraining": {}}, "pretraining samples of every checkpoint"),
    ):
        with pytest.raises(InputError, match=said):
            rank_checkpoints(features, labels, **given)
    with pytest.raises(InputError, match="at least one checkpoint"):
        rank_checkpoints({}, labels)
    with pytest.raises(InputError, match="one label a sample"):
        rank_checkpoints(features, labels[:-1])
