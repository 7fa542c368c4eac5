"""Last step of a model: what it does with the outputs of its head."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

Kind: TypeAlias = Literal[
    "none",
    "affine",
    "shift of each row",
    "log-softmax",
    "softmax",
    "sigmoid",
    "log-sigmoid",
    "ReLU",
    "soft cap",
]

Rows: TypeAlias = Float[Tensor, "n k"]

_ROWS_TO_FIT = 4
"""Fewest rows to which a shift of each class is fitted, and fewest numbers to which a factor is."""

_UNEXPLAINED = 0.05
"""Largest share of the variation over rows that a step may leave unexplained."""

_ROUNDED = 0.25
"""The same share where it is rounding, as bfloat16 leaves of small logits beside the log of K."""

_NUMBERS = 16
"""Numbers from which a share of 0.25 is no chance."""


@dataclass(frozen=True)
class LastStep:
    r"""Step from the outputs of the head to the logits or probabilities that a model returns.

    Attributes:
        kind: ``"affine"`` for a scale and a shift, which belong to the logits; the other kinds keep
            the order of the logits in each row.
        scale: Factor of the head's outputs: one number, or one of each class.
        shift: Summand of each class, or None.
        cap: Bound $c$ of a soft cap $c\tanh(z/c)$.
    """

    kind: Kind = "none"
    scale: float | Float[Tensor, " k"] = 1.0
    shift: Float[Tensor, " k"] | None = None
    cap: float = 1.0

    def __call__(self, outputs: Rows) -> Rows:
        """Return what the model makes of rows of the head's outputs."""
        scale = self.scale.to(outputs) if isinstance(self.scale, Tensor) else self.scale
        logits = scale * outputs
        if self.shift is not None:
            logits = logits + self.shift.to(logits)
        if self.kind in ("none", "affine", "shift of each row"):
            return logits
        if self.kind == "soft cap":
            return self.cap * (logits / self.cap).tanh()
        if self.kind == "log-sigmoid":
            return functional.logsigmoid(logits)
        if self.kind == "log-softmax":
            return logits.log_softmax(1)
        if self.kind == "softmax":
            return logits.softmax(1)
        return logits.sigmoid() if self.kind == "sigmoid" else logits.relu()

    def describe(self, outputs: str) -> str:
        """Describe what the model returns.

        Args:
            outputs: Name of the outputs that the step changes.
        """
        words = outputs
        if isinstance(self.scale, Tensor):
            words += " times a factor for each class"
        elif self.scale != 1:
            words += f" times {self.scale:.6g}"
        if self.shift is not None:
            words += " plus a constant for each class"
        return words if self.kind in ("none", "affine") else f"the {self.kind} of {words}"

    def apply_to_affine(
        self, weight: Float[Tensor, "k d"], bias: Float[Tensor, " k"] | None
    ) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"] | None]:
        """Return weight and bias with the scale and the shift in them, in the weight's type.

        The MSE of the logits, and NC3 where classes have factors of their own, are of another head
        without them.
        """
        if isinstance(self.scale, float) and self.scale == 1 and self.shift is None:
            return weight, bias
        wide = torch.float32 if weight.device.type == "mps" else torch.float64
        scale = torch.as_tensor(self.scale, dtype=wide, device=weight.device)
        offset = torch.zeros(len(weight), dtype=wide, device=weight.device)
        if bias is not None:
            offset = bias.to(wide) * scale
        if self.shift is not None:
            offset = offset + self.shift.to(weight.device, wide)
        product = (weight.to(wide) * (scale[:, None] if scale.ndim else scale)).to(weight.dtype)
        plain = bias is None and self.shift is None
        return product, None if plain else offset.to(weight.dtype)


def find_last_step(outputs: Rows, returned: Rows) -> LastStep | None:
    """Find the step that leads from the outputs of a linear layer to what the model returned.

    Args:
        outputs: Rows of the layer's outputs.
        returned: The same rows of the model's output.

    Returns:
        The step; None if no known step, up to the rounding of both types, leads there.

    Example:
        >>> rows = torch.randn(8, 3)
        >>> find_last_step(rows, rows.log_softmax(1)).kind
        'log-softmax'
        >>> round(find_last_step(rows, rows / 9).scale * 9, 6)
        1.0
        >>> find_last_step(rows, rows.square()) is None
        True
    """
    if outputs.shape != returned.shape or not outputs.numel():
        return None
    if torch.equal(outputs.to(returned.dtype), returned):
        return LastStep()
    z, p = (rows.detach().cpu().double() for rows in (outputs, returned))
    if not (z.isfinite().all() and p.isfinite().all()):
        return None
    steps = _propose_steps(z, p, torch.finfo(returned.dtype).tiny)
    return next((step for step in steps if step_leads(step, outputs, returned)), None)


def step_leads(step: LastStep, outputs: Rows, returned: Rows) -> bool:
    """Return whether a step leads from outputs to what was returned, also in how its rows differ.

    Args:
        step: The step.
        outputs: Rows of a layer's outputs.
        returned: The same rows of the model's output.

    Example:
        >>> rows = torch.randn(8, 3)
        >>> step_leads(LastStep("softmax"), rows, rows.softmax(1))
        True
        >>> step_leads(LastStep(), rows, rows + 1)
        False
    """
    z, p = (rows.detach().cpu().double() for rows in (outputs, returned))
    expected, allowed = _apply_with_tolerance(step, z, p, outputs.dtype, returned.dtype)
    if torch.equal(expected, p):
        return True
    gap = expected - p
    # That every entry is near is not enough: a large constant in all of them leaves room for any
    # logits. What varies over the rows must be explained too, apart from a small share. (Of small
    # logits beside a large constant, rounding leaves nothing by which to know a layer.)
    variation = (p - p.mean(0)) if len(p) > 1 else (p - p.mean())
    unit_of_last_place = torch.finfo(returned.dtype).eps * p.abs()
    is_rounding = p.numel() >= _NUMBERS and bool((gap.abs() <= unit_of_last_place).all())
    share = _ROUNDED if is_rounding else _UNEXPLAINED
    if step.kind == "shift of each row":
        variation = variation - variation.mean(1, keepdim=True)
    return bool((gap.abs() <= allowed).all() and gap.norm() <= share * variation.norm())


def step_agrees(step: LastStep, outputs: Rows, returned: Rows) -> Bool[Tensor, ""]:
    """Return whether rows agree with a step that is known, without waiting for an accelerator.

    Rows with NaN or infinity are passed over.

    Args:
        step: The step.
        outputs: Rows of the head's outputs.
        returned: The same rows of the model's output.
    """
    z, p = (rows.detach().double() for rows in (outputs, returned))
    invalid = ~(z.isfinite().all(1) & p.isfinite().all(1))[:, None]
    # One NaN would make the size of all rows NaN.
    z, p = (torch.where(invalid, 0.0, rows) for rows in (z, p))
    expected, allowed = _apply_with_tolerance(step, z, p, outputs.dtype, returned.dtype)
    return (((expected - p).abs() <= allowed) | (expected == p) | invalid).all()


def _apply_with_tolerance(
    step: LastStep, z: Rows, p: Rows, of_outputs: torch.dtype, of_returned: torch.dtype
) -> tuple[Rows, Rows]:
    """Return what a step makes of rows in the type of what was returned, and what rounding allows.

    Args:
        step: The step.
        z: Outputs of the head, in float64.
        p: Rows that the model returned, in float64.
        of_outputs: Type of the outputs.
        of_returned: Type of what was returned.
    """
    result = step(z)
    if step.kind == "shift of each row":  # such as the largest logit, which no row tells
        result = result + (p - result).mean(1, keepdim=True)
    # Rounded as the model's output is: a probability near 1 is 1 there, and its logarithm 0.
    result = result.to(of_returned).double()
    unit = 8 * max(1e-6, *(torch.finfo(dtype).eps for dtype in (of_outputs, of_returned)))
    scale = step.scale.to(z) if isinstance(step.scale, Tensor) else step.scale
    size = torch.maximum(z.abs().amax(), (scale * z).abs().amax()).clamp(min=1)
    if step.kind in ("softmax", "sigmoid"):
        # Rounding of the logits is relative in probabilities; the least ones lose their digits.
        return result, unit * size * torch.maximum(result, p) + torch.finfo(of_returned).tiny
    # A logarithm near 0, of a probability near 1, is a difference of logits and has their rounding.
    # Other steps have none of this size.
    least = size if step.kind in ("log-softmax", "log-sigmoid") else torch.full_like(size, 1e-30)
    return result, unit * torch.maximum(p.abs().amax(), least).expand_as(p)


def _propose_steps(z: Rows, p: Rows, least: float) -> Iterator[LastStep]:
    """Yield the steps that may lead from z to p; where there is a factor, 1 comes first.

    Args:
        z: Outputs of a layer.
        p: Rows that the model returned.
        least: Least number of full precision in the type of what was returned.
    """
    # A constant is affine in anything, and one number is a multiple of any other.
    varies = bool((p != p.flatten()[0]).any()) and p.numel() >= _ROWS_TO_FIT
    if varies and (scale := _factor(z, p)):
        yield LastStep("affine", scale)
    if (p >= 0).all() and (z.amax(1) > 0).all():  # a row of zeros has no order
        yield LastStep("ReLU")
    logarithm = bool((p <= 0).all())
    if z.shape[1] > 1 and (logarithm or ((p >= 0).all() and (p <= 1).all())):
        logs = p if logarithm else p.clamp(min=least).log()
        exact = logs > math.log(least)  # not of probabilities that have lost their digits
        # A softmax forgets a constant of the row: what it keeps are differences to one class.
        top = p.argmax(1, keepdim=True)
        below, lower = (rows - rows.gather(1, top) for rows in (z, logs))
        for factor in (1.0, _factor(below[exact], lower[exact]))[: 1 + varies]:
            if factor > 0:
                yield LastStep("log-softmax" if logarithm else "softmax", factor)
    can_fit_shift = varies and len(z) >= _ROWS_TO_FIT
    if can_fit_shift:  # before a shift of each row, which would hide that it is one number
        yield LastStep("affine", 1.0, (p - z).mean(0))
    if z.shape[1] > 1:
        yield LastStep("shift of each row")
    if logarithm:
        yield LastStep("log-sigmoid")
    elif (p >= 0).all() and (p <= 1).all():
        inside = (p > 1e-6) & (p < 1 - 1e-6)  # a saturated probability tells no logit
        for factor in (1.0, _factor(z[inside], p[inside].logit()))[: 1 + varies]:
            if factor > 0:
                yield LastStep("sigmoid", factor)
    at = z.abs().argmax()
    largest, capped = (float(rows.flatten()[at].abs()) for rows in (z, p))
    if varies and 0 < capped < largest:
        low, high = capped, 1e6 * largest
        for _ in range(200):  # bisection for the c with c tanh(largest / c) = capped
            cap = math.sqrt(low * high)
            if cap * math.tanh(largest / cap) < capped:
                low = cap
            else:
                high = cap
        yield LastStep("soft cap", cap=high)
    # Last, because it has the most freedom: with two numbers for each class, few rows are explained
    # by other outputs too.
    spread = (z - z.mean(0)).square().sum(0)
    if can_fit_shift and (spread > 0).all():
        slopes = ((z - z.mean(0)) * (p - p.mean(0))).sum(0) / spread
        for each in (_factor(z - z.mean(0), p - p.mean(0)), slopes):
            if bool((torch.as_tensor(each, device="cpu") != 0).all()):
                yield LastStep("affine", each, (p - each * z).mean(0))


def _factor(z: Tensor, p: Tensor) -> float:
    """Return the factor of least squares from z to p; 1 if z is zero."""
    square = float((z * z).sum())
    return float((z * p).sum()) / square if square else 1.0
