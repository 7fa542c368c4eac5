"""Advice on scores: conditions of a ranking, and the order of scores under them."""

import pytest
import torch

from ncscope.api.transfer import TransferReport
from ncscope.report import transfer
from ncscope.transfer import rank_checkpoints
from ncscope.transfer.advice import CONDITIONS, Advice, list_conditions, read_evidence
from tests.pace import others_slow


@pytest.mark.parametrize(
    ("samples", "classes", "dims", "known"),
    [
        (1000, 10, [64], ["usual", "tuned"]),
        (99, 10, [64], ["few", "tuned"]),
        (1000, 10, [64, 1000], ["few", "tuned"]),
        (1000, 20, [64], ["usual", "many", "tuned"]),
        (199, 20, [64], ["few", "few of many", "tuned"]),
        (1000, 30, [64, 29], ["usual", "many", "more classes", "tuned"]),
        (1000, 10, [9], ["usual", "more classes", "tuned"]),
    ],
)
def test_conditions(samples, classes, dims, known):
    assert list_conditions(samples, classes, dims) == known
    assert set(known) <= set(CONDITIONS)


@pytest.mark.parametrize(("samples", "first"), [(1000, "usual"), (200, "few")])
def test_the_order_is_by_the_first_of_the_conditions(samples, first):
    found = Advice(list_conditions(samples, 30, [64, 29]), read_evidence(), reason="")
    values = [read_evidence()[first][key].value for key in found.order]
    assert values == sorted(values, reverse=True)
    assert found.order[0] == "explained_entropy"


@pytest.mark.usefixtures("few_strengths")
@pytest.mark.parametrize(("classes", "dim"), others_slow([(3, 8), (24, 8), (24, 40)], (24, 8)))
def test_a_ranking_shows_the_advice_for_its_own_size(classes, dim):
    labels = torch.arange(12 * classes) % classes
    draws = torch.Generator().manual_seed(0)
    means = torch.randn(classes, dim, generator=draws)
    noise = torch.randn(len(labels), dim, generator=draws)
    checkpoints = {f"noise {scale}": means[labels] + scale * noise for scale in (0.5, 1.0, 2.0)}
    ranking = rank_checkpoints(checkpoints, labels, expensive=False)
    train = len(labels) - round(0.2 * 12) * classes
    known = list_conditions(train, classes, [dim])
    assert ranking.advice is not None
    assert list(ranking.advice.conditions) == known
    shown = [
        each
        for each in transfer._summarise_ranking(ranking)
        if each.title == "Which score to trust"
    ]
    (table,) = shown
    assert list(table.columns) == [CONDITIONS[name] for name in known]
    assert next(iter(table.lines)) == "explained entropy"
    terminal = repr(TransferReport(ranking))
    assert max(map(len, terminal.splitlines())) <= 80
    assert CONDITIONS[known[0]] in " ".join(terminal.split())
