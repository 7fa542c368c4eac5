"""Descent on the features model under cross-entropy: `ncscope simulate ufm-cross-entropy`.

Source: PFC (2). Cost: 6 seconds on one core. Expected with the settings given here: the objective
within 1e-6 of the closed form, NC1, NC2 and NC3 at 1e-3 or far less.
"""

import math
from collections.abc import Sequence

import torch
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.rows import number, part_of
from ncscope.lab.runs.recipe import Part, Study
from ncscope.lab.simulations import ufm
from ncscope.lab.simulations.bounds import Positive, Seed
from ncscope.lab.surrogates.problem import Minimiser
from ncscope.lab.surrogates.ufm_cross_entropy import CrossEntropyUFM
from ncscope.report.claims import Claim


class CrossEntropyConfig(BaseModel):
    """Settings of the model and of its descent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_classes: int = Field(4, ge=2, description="Number of classes K.")
    dim: int = Field(20, ge=1, description="Dimension d of the features.")
    per_class: int = Field(50, ge=1, description="Samples n in each class.")
    weight_decay: Positive = Field(0.005, description="Decay of the classifier.")
    feature_decay: Positive = Field(0.001, description="Decay of the features.")
    rate: Positive = Field(0.1, description="Step size of gradient descent.")
    steps: int = Field(80_000, ge=1, description="Steps of gradient descent.")
    every: int = Field(5_000, ge=1, description="Steps from one measurement to the next.")
    seed: Seed = Field(0, description="Seed of the start.")


def _parts(config: CrossEntropyConfig) -> list[Part]:
    """Return the closed form if there is one, the fast solver, and descent from the same start."""
    problem, best = _problem(config), _closed_form(config)
    start = problem.start(torch.Generator().manual_seed(config.seed))
    record = ufm.recorded_steps(config.steps, config.every)
    parts = [
        Part("fast solver", 1, lambda _: ufm.fastest(problem, best, start)),
        Part(
            "descent", len(record), lambda _: ufm.descent(problem, best, start, config.rate, record)
        ),
    ]
    if best is None:
        return parts
    stated = Part("closed form", 1, lambda _: iter([ufm.measured(problem, best, best.point, 0)]))
    return [stated, *parts]


def _claims(config: CrossEntropyConfig, rows: Sequence[Observation]) -> list[Claim]:
    """Test the closed form's predictions; without a closed form, that both solvers agree."""
    path, fast = part_of(rows, "descent"), part_of(rows, "fast solver")[-1]
    if math.isnan(number(fast, "minimum")):
        return [_both_agree(path[-1], fast)]
    claims = [ufm.descent_arrives(path, source="ours"), ufm.solver_agrees(fast)]
    if _problem(config).c < 1:
        claims += ufm.vanishing(path, _COLLAPSE, source="PFC, section II-B")
    return claims


_COLLAPSE = {
    "nc1": "NC1: features collapse to their class means",
    "nc2_etf": "NC2: centred class means become a simplex ETF",
    "mean_share": "The global mean of the features vanishes",
    "nc3_alignment": "NC3: the classifier aligns with the class means",
}


def _both_agree(last: Observation, fast: Observation) -> Claim:
    descended, solved = number(last, "objective"), number(fast, "objective")
    return decided(
        "Gradient descent and the fast solver end at the same objective, to 1e-6",
        source="ours",
        held=abs(descended - solved) < 1e-6,
        evidence=f"{descended:.9f} and {solved:.9f}",
    )


def _drawings(config: CrossEntropyConfig, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw the objective, NC1, NC2 and NC3 along the descent."""
    caption = (
        "Gradient descent on the unconstrained features model under cross-entropy, "
        f"K = {config.num_classes}. NC2 is the distance to the simplex ETF."
    )
    figure = ufm.descent_figure(part_of(rows, "descent"), "nc2_etf")
    return [Drawing("descent", caption, figure)]


def _problem(config: CrossEntropyConfig) -> CrossEntropyUFM:
    return CrossEntropyUFM(
        config.num_classes,
        config.dim,
        config.per_class,
        config.weight_decay,
        config.feature_decay,
    )


def _closed_form(config: CrossEntropyConfig) -> Minimiser | None:
    problem = _problem(config)
    known = problem.c >= 1 or config.dim >= config.num_classes - 1
    return problem.minimiser() if known else None


STUDY: Study[CrossEntropyConfig] = Study(
    id="ufm-cross-entropy",
    title="Unconstrained features model, cross-entropy",
    lead=(
        "Features and classifier are free. Gradient descent converges to a simplex ETF whose "
        "size is known in closed form."
    ),
    source="PFC (2)",
    config=CrossEntropyConfig,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    unit="step",
    columns=ufm.COLUMNS,
)
