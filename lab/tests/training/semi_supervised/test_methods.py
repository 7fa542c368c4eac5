"""Every method's loss from its formula in NumPy, its schedules, and its state over steps."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from lab.tests.training.semi_supervised import restated
from lab.tests.training.semi_supervised.runs import short
from pydantic import ValidationError
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope_lab.training.learner import moving_average
from ncscope_lab.training.semi_supervised.method import Method, Outputs, anneal_threshold, ramp
from ncscope_lab.training.semi_supervised.methods import MeanTeacher, PiModel, method
from ncscope_lab.training.semi_supervised.objective import few_labels_objective
from ncscope_lab.training.semi_supervised.settings import FewLabels

B, N, K = 5, 12, 3
BATCHES = 6  # of `short`: two epochs of three steps


def outputs(seed: int = 0, images: Tensor | None = None) -> Outputs:
    draws = torch.Generator().manual_seed(seed)
    few, weak, strong = (
        2 * torch.randn(n, K, generator=draws, dtype=torch.float64) for n in (B, N, N)
    )
    return Outputs(few, torch.arange(B) % K, weak, strong, torch.arange(N))


def built(name: str, **given: Any) -> Method:
    made = method(short(name, **given), K, N)
    assert made is not None
    return made.double()


def supervised(given: Outputs) -> float:
    rows = restated.softmax(given.labelled.numpy())
    return float(np.mean([-math.log(row[y]) for row, y in zip(rows, given.labels, strict=True)]))


def hard(given: Outputs, mask: list[bool], trained: Tensor | None = None) -> float:
    q = restated.softmax(given.target.numpy())
    strong = restated.softmax((given.trained if trained is None else trained).numpy())
    assert 0 < sum(mask) < N
    return float(restated.consistency(q, strong, mask))


def above(given: Outputs, threshold: float) -> list[bool]:
    return [max(row) >= threshold for row in restated.softmax(given.target.numpy())]


def apart(given: Outputs) -> float:
    q, strong = (restated.softmax(z.numpy()) for z in (given.target, given.trained))
    return sum((a - b) ** 2 for x, y in zip(q, strong, strict=True)
               for a, b in zip(x, y, strict=True)) / (N * K)  # fmt: skip


def sharpened(given: Outputs, temperature: float, threshold: float) -> float:
    targets = restated.softmax(given.target.numpy() / temperature)
    logs = np.log(restated.softmax(given.trained.numpy()))
    costs = [-sum(s * log for s, log in zip(*rows, strict=True))
             for rows in zip(targets, logs, strict=True)]  # fmt: skip
    mask = above(given, threshold)
    assert 0 < sum(mask) < N
    return sum(cost for cost, sure in zip(costs, mask, strict=True) if sure) / N


@pytest.mark.parametrize(
    ("name", "unlabelled"),
    [
        ("pi-model", apart),
        ("mean-teacher", apart),
        ("pseudo-label", lambda given: hard(given, above(given, 0.7))),
        ("uda", lambda given: sharpened(given, 0.4, 0.7)),
        ("fixmatch", lambda given: hard(given, above(given, 0.7))),
    ],
)
def test_the_loss_of_a_step_is_the_formula(
    name: str, unlabelled: Callable[[Outputs], float]
) -> None:
    made = built(name, threshold=0.7, unlabelled_weight=3.0, ramp=0.5)
    given = outputs()
    rises = name in ("pi-model", "mean-teacher", "pseudo-label")
    for batch in range(BATCHES):
        factor = min(batch / BATCHES / 0.5, 1.0) if rises else 1.0
        expected = supervised(given) + 3 * factor * unlabelled(given)
        assert float(made(given).loss) == pytest.approx(expected, rel=1e-9)


def test_weights_ratios_and_thresholds_are_those_of_the_method_unless_given() -> None:
    for name, wanted in {
        "pi-model": (10, 1, 0.95),
        "pseudo-label": (1, 1, 0.95),
        "mean-teacher": (50, 1, 0.95),
        "uda": (1, 7, 0.8),
        "fixmatch": (1, 7, 0.95),
        "flexmatch": (1, 7, 0.95),
        "freematch": (1, 7, 0.95),
        "softmatch": (1, 7, 0.95),
    }.items():
        given = short(name).model_dump()
        del given["ratio"], given["unlabelled_weight"], given["threshold"]
        again = FewLabels.model_validate(given)
        assert (again.unlabelled_weight, again.ratio, again.threshold) == wanted
    assert short("uda", threshold=0.5).threshold == 0.5
    assert short("mean-teacher", ratio=3, unlabelled_weight=2.0).unlabelled_weight == 2


def test_the_ramp_is_linear_up_to_its_end() -> None:
    assert [ramp(t, 0.4) for t in (0.0, 0.2, 0.4, 1.0)] == pytest.approx([0, 0.5, 1, 1])


@pytest.mark.parametrize(
    ("annealing", "values"),
    [
        ("none", [1, 1, 1]),
        ("linear", [0.1, 0.55, 1]),
        ("log", [0.1, 0.1 + 0.9 * (1 - math.exp(-2.5)), 0.1 + 0.9 * (1 - math.exp(-5))]),
        ("exp", [0.1 + 0.9 * math.exp(-5), 0.1 + 0.9 * math.exp(-2.5), 1]),
    ],
)
def test_annealing_starts_at_chance_and_ends_at_one(annealing: Any, values: list[float]) -> None:
    limits = [anneal_threshold(annealing, t, num_classes=10) for t in (0.0, 0.5, 1.0)]
    assert limits == pytest.approx(values)


def test_annealing_leaves_out_labelled_images_that_are_learnt() -> None:
    made = built("uda", annealing="linear", unlabelled_weight=0.0)
    given = outputs(3)
    right = [row[y] for row, y in zip(restated.softmax(given.labelled.numpy()), given.labels,
                                      strict=True)]  # fmt: skip
    kept_counts = []
    for batch in range(BATCHES):
        kept = [p for p in right if p <= 1 / K + batch / BATCHES * (1 - 1 / K)]
        expected = np.mean([-math.log(p) for p in kept]) if kept else 0.0
        assert float(made(given).loss) == pytest.approx(float(expected), rel=1e-9)
        kept_counts.append(len(kept))
    assert len(set(kept_counts)) > 1


def test_annealing_without_a_labelled_image_left_has_no_loss() -> None:
    made = built("uda", annealing="exp", unlabelled_weight=0.0)
    sure = torch.eye(K, dtype=torch.float64)[torch.arange(B) % K] * 20
    assert float(made(replace(outputs(), labelled=sure)).loss) == 0


def one(labels: list[int], confidence: float) -> Tensor:
    """Logits with one confidence, of three classes."""
    rest = (1 - confidence) / 2
    rows = torch.full((len(labels), K), rest)
    rows[torch.arange(len(labels)), torch.tensor(labels)] = confidence
    return rows.log()


def test_flexmatch_by_hand() -> None:
    made = built("flexmatch", threshold=0.9)
    strong = torch.zeros(4, K)
    few = torch.zeros(B, K)

    def seen(logits: Tensor, images: list[int]) -> list[bool]:
        given = Outputs(few, torch.arange(B) % K, logits, strong, torch.tensor(images))
        return made(given).trusted.tolist()

    def thresholds(*betas: float) -> list[float]:
        return pytest.approx([0.9 * beta / (2 - beta) for beta in betas])

    assert made.thresholds.tolist() == thresholds(0, 0, 0)
    assert seen(one([0, 0, 0, 1], 0.95), [0, 1, 2, 3]) == [True] * 4
    assert made.thresholds.tolist() == thresholds(3 / 8, 1 / 8, 0)  # 8 of 12 images are not met
    # Class 0 needs 0.9 * 0.375 / 1.625 = 0.21, class 1 0.06: a confidence of 0.4 is enough.
    assert seen(one([0, 1, 2, 2], 0.4), [4, 5, 6, 7]) == [True] * 4
    assert made.thresholds.tolist() == thresholds(3 / 8, 1 / 8, 0)  # below 0.9: not counted
    assert seen(one([0, 0, 0, 0], 0.95), [4, 5, 6, 7]) == [True] * 4
    assert made.thresholds.tolist() == thresholds(1, 1 / 7, 0)  # 7 of class 0, 4 not met
    assert seen(one([0, 0, 1, 2], 0.6), [8, 9, 10, 11]) == [False, False, True, True]
    assert seen(one([2, 2, 2, 2], 0.95), [4, 5, 6, 3]) == [True] * 4  # labels are replaced
    assert made.thresholds.tolist() == thresholds(1, 0, 1)


def test_flexmatch_over_steps_is_the_papers_formulas() -> None:
    made = built("flexmatch", threshold=0.6)
    labels, kinds = [-1] * N, set()
    for step in range(12):
        given = outputs(step)
        q = restated.softmax(given.target.numpy())
        counts = [labels.count(c) for c in range(K)]
        most = max(*counts, N - sum(counts))
        levels = [0.6 * (c / most) / (2 - c / most) for c in counts]
        mask = [max(row) >= levels[int(np.argmax(row))] for row in q]
        found = made(given)
        assert found.trusted.tolist() == mask
        plain = float(restated.consistency(q, restated.softmax(given.trained.numpy()), mask))
        assert float(found.loss) == pytest.approx(supervised(given) + plain, rel=1e-9)
        kinds |= set(mask)
        labels = [int(np.argmax(row)) if max(row) >= 0.6 else old
                  for row, old in zip(q, labels, strict=True)]  # fmt: skip
    assert kinds == {True, False}


def test_softmatch_over_steps_is_the_papers_formulas() -> None:
    made = built("softmatch", memory=0.8)
    mean, variance, p = 1 / K, 1.0, np.full(K, 1 / K)
    for step in range(8):
        given = outputs(step)
        q = restated.softmax(given.target.numpy())
        p = 0.8 * p + 0.2 * q.mean(0)
        aligned = [(row / p / (row / p).sum()).max() for row in q]
        mean = 0.8 * mean + 0.2 * float(np.mean(aligned))
        variance = 0.8 * variance + 0.2 * float(np.var(aligned, ddof=1))
        weights = [1.0 if a >= mean else math.exp(-((a - mean) ** 2) * 2 / variance)
                   for a in aligned]  # fmt: skip
        strong = restated.softmax(given.trained.numpy())
        costs = [-math.log(row[int(np.argmax(g))]) for row, g in zip(strong, q, strict=True)]
        found = made(given)
        expected = supervised(given) + float(np.dot(weights, costs)) / N
        assert float(found.loss) == pytest.approx(expected, rel=1e-6)
        assert found.trusted.tolist() == [a >= mean for a in aligned]
        assert made.thresholds.tolist() == pytest.approx([mean] * K)


def networks() -> tuple[nn.Module, nn.Module]:
    """A network with a batch norm, and its moving average after two steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, K)).double()
    average = moving_average(model, 0.9)
    average.update_parameters(model)  # the first update copies
    first = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p))
    average.update_parameters(model)
    for old, new, mixed in zip(first, model.parameters(), average.module.parameters(), strict=True):
        torch.testing.assert_close(mixed, 0.9 * old + 0.1 * new)
    return model, average.module


def test_targets_of_the_mean_teacher_are_the_averaged_networks() -> None:
    settings = short("mean-teacher", ramp=0.1)
    model, teacher = networks()
    made = method(settings, K, N)
    assert isinstance(made, MeanTeacher)
    made.progress.seen += 3  # past the ramp
    loss = few_labels_objective(settings, made, K, torch.device("cpu"), teacher)
    few, one_view, other = (torch.randn(n, 4, dtype=torch.float64) for n in (B, N, N))
    labels = torch.arange(B) % K
    statistics = {name: b.clone() for name, b in teacher.named_buffers()}
    total = loss(model, (few, one_view, other, torch.arange(N), labels))
    assert all(torch.equal(b, statistics[name]) for name, b in teacher.named_buffers())
    student, target = model(torch.cat([few, other])).detach(), teacher(one_view).detach()
    given = Outputs(student[:B], labels, target, student[B:], torch.arange(N))
    expected = supervised(given) + settings.unlabelled_weight * apart(given)
    assert float(total.detach()) == pytest.approx(expected, rel=1e-5)
    total.backward()
    assert all(p.grad is None for p in teacher.parameters())


def test_a_mean_teacher_needs_an_average() -> None:
    without = short().optimisation.model_copy(update={"average": 0.0})
    with pytest.raises(ValidationError, match=r"optimisation\.average above 0"):
        short("mean-teacher", optimisation=without)
    settings = short("mean-teacher")
    with pytest.raises(InputError, match="a moving average of the network"):
        few_labels_objective(settings, method(settings, K, N), K, torch.device("cpu"))


def test_pseudo_labels_are_learnt_from_the_view_that_gives_them() -> None:
    settings = short("pseudo-label", threshold=0.0, ramp=0.1)
    made = method(settings, K, N)
    assert made is not None
    made(outputs())  # past the ramp
    model, _ = networks()
    few, only = (torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (B, N))
    batch = few, only, torch.arange(N), torch.arange(B) % K
    total = few_labels_objective(settings, made, K, torch.device("cpu"))(model, batch)
    logits = model(torch.cat([few, only])).detach()
    given = Outputs(logits[:B], batch[-1], logits[B:], logits[B:], batch[2])
    rows = restated.softmax(given.target.numpy())
    expected = supervised(given) - float(np.mean(np.log(rows.max(1))))
    assert float(total.detach()) == pytest.approx(expected, rel=1e-5)
    total.backward()
    assert only.grad.any()


STATEFUL: dict[str, dict[str, Any]] = {
    "pi-model": {},
    "pseudo-label": {"threshold": 0.6},
    "mean-teacher": {},
    "uda": {"annealing": "linear"},
    "flexmatch": {"threshold": 0.8},
    "freematch": {"memory": 0.5},
    "softmatch": {"memory": 0.5},
}


@pytest.mark.parametrize("name", STATEFUL)
def test_a_method_goes_on_from_its_saved_state(name: str) -> None:
    whole, stopped, resumed, fresh = (built(name, **STATEFUL[name]) for _ in range(4))
    for step in range(3):
        for made in (whole, stopped):
            made(outputs(step))
    resumed.load_state_dict(stopped.state_dict())
    losses = [float(made(outputs(3)).loss) for made in (whole, resumed, fresh)]
    assert losses[0] == losses[1] != losses[2]


def test_all_pseudo_labels_of_the_pi_model_are_trusted() -> None:
    made = built("pi-model")
    assert isinstance(made, PiModel)
    assert made(outputs()).trusted.all()
    assert made.thresholds.tolist() == [0.0] * K
