"""Steps after the last layer are told apart, and no step leads from another layer's outputs."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ncscope.models.last_step import LastStep, find_last_step, step_agrees, step_leads

STEPS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "nothing": (lambda z: z, "none"),
    "factor": (lambda z: z / 2, "affine"),
    "negative factor": (lambda z: -3 * z, "affine"),
    "constant": (lambda z: z + torch.arange(z.shape[1]).to(z), "affine"),
    "factors": (lambda z: z * torch.arange(1, z.shape[1] + 1).to(z) + 1, "affine"),
    "largest": (lambda z: z - z.amax(1, keepdim=True), "shift of each row"),
    "log-softmax": (lambda z: z.log_softmax(1), "log-softmax"),
    "temperature": (lambda z: (z / 3).log_softmax(1), "log-softmax"),
    "softmax": (lambda z: z.softmax(1), "softmax"),
    "warm softmax": (lambda z: (z / 3).softmax(1), "softmax"),
    "sigmoid": (lambda z: z.sigmoid(), "sigmoid"),
    "log-sigmoid": (functional.logsigmoid, "log-sigmoid"),
    "cap": (lambda z: 5 * (z / 5).tanh(), "soft cap"),
    "tanh": (lambda z: z.tanh(), "soft cap"),
}
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "squares": lambda z: z.square(),
    "absolute values": lambda z: z.abs(),
    "cut rows": lambda z: (z - 100).relu(),
    "normalised rows": lambda z: functional.normalize(z),
    "permuted classes": lambda z: z.roll(1, 1),
    "constant": torch.ones_like,
    "one minus a sigmoid": lambda z: 1 - z.sigmoid(),
}


def drawn(k: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(8, k, generator=torch.Generator().manual_seed(seed)).to(dtype)


WIDE, NARROW = (torch.float32, torch.float64), (torch.bfloat16, torch.float16)


# In 16 bits a wide cap is a factor within rounding, and many constants hide the logits.
@pytest.mark.parametrize("name", STEPS)
def test_steps_are_found_and_lead_from_no_other_outputs(name: str) -> None:
    step, kind = STEPS[name]
    cases = list(product((2, 3, 10, 1000), WIDE))
    cases += product((2, 3, 10), () if name in ("cap", "constant") else NARROW)
    for k, dtype in cases:
        rows, other = drawn(k, dtype=dtype), drawn(k, seed=1, dtype=dtype)
        found = find_last_step(rows, step(rows))
        assert found is not None, (k, dtype)
        assert found.kind == kind, (k, dtype)
        assert step_leads(found, rows, step(rows)), (k, dtype)
        assert bool(step_agrees(found, rows, step(rows))), (k, dtype)
        assert find_last_step(other, step(rows)) is None, (k, dtype)


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_are_no_step(name: str) -> None:
    for k in (1, 2, 10):
        rows = drawn(k)
        is_same = k == 1 and name == "permuted classes"
        assert is_same or find_last_step(rows, OTHERS[name](rows)) is None, k


def test_factors_and_caps_are_those_of_the_model() -> None:
    rows = drawn(4, dtype=torch.float64)
    assert find_last_step(rows, rows / 9).scale == pytest.approx(1 / 9, rel=1e-12)
    assert find_last_step(rows, (rows / 3).softmax(1)).scale == pytest.approx(1 / 3, rel=1e-9)
    assert find_last_step(rows, 15 * (rows / 15).tanh()).cap == pytest.approx(15, rel=1e-9)
    found = find_last_step(rows, rows * torch.arange(1.0, 5).double() + 2)
    torch.testing.assert_close(found.scale, torch.arange(1.0, 5).double())
    torch.testing.assert_close(found.shift, torch.full((4,), 2.0).double())


def test_a_relu_is_a_step_where_no_row_is_cut() -> None:
    rows = drawn(4)
    rows[:, 0] = 1
    assert find_last_step(rows, rows.relu()).kind == "ReLU"
    rows[0] = -1
    assert find_last_step(rows, rows.relu()) is None


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_of_few_numbers_only_steps_without_a_factor_are_seen(rows: int) -> None:
    one = drawn(1)[:rows]
    assert find_last_step(one, one.sigmoid()) == LastStep("sigmoid")
    for made in (one / 3, (one / 3).sigmoid(), 1 - one.sigmoid(), one.square()):
        assert find_last_step(one, made) is None


def test_saturated_probabilities_lead_from_their_logits() -> None:
    rows = 400 * drawn(4)
    assert find_last_step(rows, rows.softmax(1)).kind == "softmax"
    assert find_last_step(400 * drawn(4, seed=1), rows.softmax(1)) is None


def test_broken_rows_are_passed_over() -> None:
    rows = drawn(4)
    returned = rows.log_softmax(1)
    returned[2] = torch.nan
    assert find_last_step(rows, returned) is None
    assert bool(step_agrees(LastStep("log-softmax"), rows, returned))
    returned[3] += 1e-2
    assert not bool(step_agrees(LastStep("log-softmax"), rows, returned))


@pytest.mark.parametrize("bias", [None, torch.tensor([1.0, -1.0])])
def test_weight_and_bias_hold_scale_and_shift(bias: Tensor | None) -> None:
    weight, features = torch.randn(2, 3), torch.randn(5, 3)
    plain = features @ weight.T + (0 if bias is None else bias)
    for step in (
        LastStep("affine", -2.0),
        LastStep("affine", torch.tensor([1.0, 3]), torch.ones(2)),
    ):
        scaled, offset = step.apply_to_affine(weight, bias)
        made = features @ scaled.T + (0 if offset is None else offset)
        torch.testing.assert_close(made, step(plain))
    assert LastStep("softmax").apply_to_affine(weight, bias) == (weight, bias)
