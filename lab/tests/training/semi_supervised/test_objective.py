"""The loss of a step, put together from the papers' formulas."""

import numpy as np
import pytest
import torch
from lab.tests.training.semi_supervised import restated
from lab.tests.training.semi_supervised.runs import short
from pydantic import ValidationError
from torch import Tensor, nn

from ncscope.losses import head_entropy_difference, head_mutual_information
from ncscope_lab.training.semi_supervised.methods import method
from ncscope_lab.training.semi_supervised.objective import few_labels_objective

CPU = torch.device("cpu")
LABELLED, UNLABELLED, CLASSES = 4, 12, 3


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, CLASSES)).double()


def batch() -> tuple[Tensor, ...]:
    draws = torch.Generator().manual_seed(1)
    sizes = (LABELLED, UNLABELLED, UNLABELLED)
    views = [3 * torch.randn(n, 5, generator=draws, dtype=torch.float64) for n in sizes]
    return *views, torch.arange(UNLABELLED), torch.arange(LABELLED) % CLASSES


def stated(settings, net: nn.Module) -> tuple[float, Tensor, Tensor]:
    """The loss without information terms, the mask and the pseudo-labels."""
    few, weak, strong, _, labels = batch()
    outputs = [restated.softmax(net(x).detach().float().numpy()) for x in (few, weak, strong)]
    loss = -np.log([row[y] for row, y in zip(outputs[0], labels, strict=True)]).mean()
    state = restated.FreeMatch(CLASSES, settings.memory)
    state.update(outputs[1])
    fixed = [bool(max(row) >= settings.threshold) for row in outputs[1]]
    mask = fixed if settings.method == "fixmatch" else state.mask(outputs[1])
    assert 1 < sum(mask) < UNLABELLED
    loss += settings.unlabelled_weight * restated.consistency(*outputs[1:], mask)
    if settings.method == "freematch":
        loss += settings.fairness_weight * restated.fairness(state, outputs[2], mask)
    return float(loss), torch.tensor(mask), torch.tensor(outputs[1].argmax(1))


@pytest.mark.parametrize(
    "settings",
    [
        short("fixmatch", threshold=0.5, unlabelled_weight=0.5),
        short("freematch", memory=0.2, fairness_weight=0.3),
    ],
    ids=["fixmatch", "freematch"],
)
def test_the_loss_is_the_papers(settings) -> None:
    net = model()
    objective = few_labels_objective(settings, method(settings, CLASSES, UNLABELLED), CLASSES, CPU)
    assert float(objective(net, batch()).detach()) == pytest.approx(
        stated(settings, net)[0], rel=1e-5
    )


@pytest.mark.parametrize("view", ["weak", "strong"])
def test_the_information_terms_are_of_the_trusted(view: str) -> None:
    weights = {"mutual_information": 0.4, "entropy_difference": 0.7}
    settings = short(memory=0.2, information_view=view, **weights)
    net = model()
    objective = few_labels_objective(settings, method(settings, CLASSES, UNLABELLED), CLASSES, CPU)
    plain, mask, guesses = stated(settings, net)
    inputs = batch()[1 if view == "weak" else 2]
    features = net[:2](inputs)[mask]
    chosen = features, guesses[mask], net[2].weight
    information = 0.7 * head_entropy_difference(*chosen) - 0.4 * head_mutual_information(*chosen)
    information = information.detach()
    assert abs(float(information)) > 0.01
    expected = plain + float(information)
    assert float(objective(net, batch()).detach()) == pytest.approx(expected, rel=1e-5)


def test_no_gradient_comes_from_weak_views() -> None:
    settings = short(memory=0.2, mutual_information=0.4)
    objective = few_labels_objective(settings, method(settings, CLASSES, UNLABELLED), CLASSES, CPU)
    few, weak, strong, images, labels = batch()
    views = [view.requires_grad_() for view in (few, weak, strong)]
    objective(model(), (*views, images, labels)).backward()
    assert [bool(view.grad.any()) for view in views] == [True, False, True]


IGNORED = {"loss": "mse", "label_smoothing": 0.1, "temperature": 2.0, "mixing": True}


@pytest.mark.parametrize("name", [*IGNORED, "augmentation"])
def test_settings_that_no_step_would_follow_are_refused(name: str) -> None:
    for kind in ("fixmatch", "freematch"):
        with pytest.raises(ValidationError, match=f"{name} as it is by default"):
            short(kind, **{name: ({"augmentation": "crop"} | IGNORED)[name]})


def test_a_supervised_run_follows_all_but_the_augmentation() -> None:
    for name, value in IGNORED.items():
        assert getattr(short("supervised", **{name: value}), name) == value
    with pytest.raises(ValidationError, match="augmentation as it is by default"):
        short("supervised", augmentation="crop")
