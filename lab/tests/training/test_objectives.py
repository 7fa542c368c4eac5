"""The losses that settings ask for: their sums, their gradients, on one process and on two."""

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.losses import (
    head_entropy_difference,
    head_mutual_information,
    temperature_cross_entropy,
    within_class_cosine,
)
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.objectives import objective
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training
from tests.ranks import in_two_processes

CPU = torch.device("cpu")
DRAWS = torch.Generator().manual_seed(0)
IMAGES, LABELS = torch.randn(12, 1, 2, 3, generator=DRAWS), torch.arange(12) % 3
TERMS = {"mutual_information": 0.3, "entropy_difference": 0.5, "within_class_cosine": 2.0}


def settings(**given) -> Training:
    return Training(data="digits", network="small-resnet", **given)


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def summed(model: nn.Sequential, images: Tensor, labels: Tensor) -> Tensor:
    """The loss with all terms, at a temperature, written out."""
    features, weight = model[:3](images), model[3].weight
    return (
        temperature_cross_entropy(model(images), labels, 0.5)
        - 0.3 * head_mutual_information(features, labels, weight)
        + 0.5 * head_entropy_difference(features, labels, weight)
        + 2.0 * within_class_cosine(features, labels)
    )


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def test_the_cosine_term_in_groups_does_not_depend_on_the_processes() -> None:
    model, wanted = network(), settings(within_class_cosine=2.0, cosine_group=3)
    whole = objective(wanted, 3, CPU)(model, (IMAGES, LABELS))
    halves = [
        objective(wanted, 3, CPU)(model, (IMAGES[part], LABELS[part]))
        for part in (slice(0, 6), slice(6, 12))
    ]
    torch.testing.assert_close(whole, torch.stack(halves).mean())
    one_group = objective(settings(within_class_cosine=2.0), 3, CPU)(model, (IMAGES, LABELS))
    assert not torch.allclose(whole, one_group)


def test_a_batch_that_does_not_divide_into_groups_is_refused() -> None:
    wanted = settings(within_class_cosine=2.0, cosine_group=5)
    with pytest.raises(InputError, match="fewer devices"):
        objective(wanted, 3, CPU)(network(), (IMAGES, LABELS))


def test_terms_add_up_with_their_signs_and_reach_every_parameter() -> None:
    model, wanted = network(), settings(temperature=0.5, **TERMS)
    value = objective(wanted, 3, CPU)(model, (IMAGES, LABELS))
    expected = summed(model, IMAGES, LABELS)
    torch.testing.assert_close(value, expected)
    plain = objective(settings(), 3, CPU)(model, (IMAGES, LABELS))
    torch.testing.assert_close(plain, nn.functional.cross_entropy(model(IMAGES), LABELS))
    found, wanted_gradients = gradients(model, value), gradients(model, expected)
    torch.testing.assert_close(found, wanted_gradients)


def test_in_half_precision_the_terms_are_those_of_the_rounded_features() -> None:
    half = Optimisation(precision="bf16-mixed")
    model = network()
    value = objective(settings(optimisation=half, mutual_information=1.0), 3, CPU)
    plain = objective(settings(optimisation=half), 3, CPU)
    term = value(model, (IMAGES, LABELS)) - plain(model, (IMAGES, LABELS))
    with torch.autocast("cpu", torch.bfloat16):
        features = model[:3](IMAGES)
    expected = -head_mutual_information(features, LABELS, model[3].weight)
    assert term.dtype == torch.float32
    torch.testing.assert_close(term, expected, atol=1e-5, rtol=1e-5)
    exact = -head_mutual_information(model[:3](IMAGES), LABELS, model[3].weight)
    assert not torch.allclose(expected, exact, atol=1e-5)


@pytest.mark.slow
def test_two_processes_step_by_the_mean_of_their_shares(tmp_path: Path) -> None:
    wanted = settings(temperature=0.5, **TERMS)

    def program(rank: int) -> None:
        fabric = Resources(devices=2).fabric
        model = network()
        wrapped = fabric.setup(model)
        loss = objective(wanted, 3, CPU)(wrapped, (IMAGES[rank::2], LABELS[rank::2]))
        fabric.backward(loss)
        torch.save([p.grad for p in model.parameters()], tmp_path / f"{rank}.pt")

    assert in_two_processes(program) == [0, 0]
    shares = [
        gradients(model, summed(model, IMAGES[rank::2], LABELS[rank::2]))
        for rank, model in enumerate((network(), network()))
    ]
    expected = [(one + other) / 2 for one, other in zip(*shares, strict=True)]
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "given",
    [
        {"mixing": True, "mutual_information": 0.1},
        {"mixing": True, "loss": "mse"},
        {"loss": "mse", "temperature": 0.5},
        {"loss": "mse", "label_smoothing": 0.1},
        {"temperature": 0.0},
    ],
)
def test_losses_that_do_not_go_together_are_refused(given: dict) -> None:
    with pytest.raises(ValidationError):
        settings(**given)
