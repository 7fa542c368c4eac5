"""Descent on the features model under cross-entropy: ``ncscope run ufm-cross-entropy``.

Source: PFC (2). A descent and a fast solver begin at one random start, and their ends are compared
with the minimiser in closed form. With fewer than K - 1 dimensions no closed form is known, and
their ends are compared with each other.
"""

from ncscope_lab.claims import Claim, within
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.models.descents import (
    ARRIVED,
    COLUMNS,
    DESCENT_CAPTION,
    DescentConfig,
    claim_arrival,
    claim_solver,
    claim_vanishing,
    draw_descent,
    draw_start,
    list_descent_parts,
    state,
)
from ncscope_lab.quantities import Runs, last
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.surrogates.problem import Minimiser
from ncscope_lab.surrogates.ufm_cross_entropy import CrossEntropyUFM


class CrossEntropyConfig(DescentConfig):
    """Settings of the model and of its descent."""

    @property
    def problem(self) -> CrossEntropyUFM:
        """The model."""
        sizes = self.num_classes, self.dim, self.per_class
        return CrossEntropyUFM(*sizes, self.weight_decay, self.feature_decay)

    @property
    def best(self) -> Minimiser | None:
        """The minimiser in closed form; None if none is known."""
        known = self.problem.c >= 1 or self.dim >= self.num_classes - 1
        return self.problem.minimiser() if known else None


def list_claims(settings: CrossEntropyConfig) -> list[Claim]:
    """Return the closed form's predictions; without a closed form, that both solvers agree."""
    objective = last("objective")
    if settings.best is None:
        return [
            Claim(
                text="Gradient descent and the fast solver end at the same objective, to 1e-6",
                source="ours",
                where="descent",
                quantity=objective
                - objective.of(
                    lambda run: run.experiment.find("fast solver"), "that of the fast solver"
                ),
                region=within(ARRIVED),
                rule="all",
            )
        ]
    claims = [claim_arrival("descent", source="ours"), claim_solver("fast solver")]
    if settings.problem.c >= 1:
        return claims
    zero = {
        "nc1": "NC1: features collapse to their class means",
        "nc2_etf": "NC2: centred class means become a simplex ETF",
        "mean_share": "The global mean of the features vanishes",
        "nc3_alignment": "NC3: the classifier aligns with the class means",
    }
    if settings.per_class == 1:  # then NC1 is zero for all features
        del zero["nc1"]
    if settings.num_classes == 2:  # two centred means are always a simplex
        del zero["nc2_etf"]
    return [*claims, *claim_vanishing("descent", zero, source="PFC, section II-B")]


def draw_figures(settings: CrossEntropyConfig, runs: Runs) -> list[Drawing]:
    """Draw the objective, NC1, NC2 and NC3 along the descent."""
    caption = (
        "Gradient descent on the unconstrained features model under cross-entropy, "
        f"K = {settings.num_classes}. NC2 is the distance to the simplex ETF. {DESCENT_CAPTION}"
    )
    return [Drawing("descent", caption, draw_descent(runs.find("descent"), "nc2_etf"))]


def list_parts(settings: CrossEntropyConfig) -> list[Part]:
    """Return the closed form if there is one, the fast solver, and descent from the same start."""
    problem, best = settings.problem, settings.best
    start = draw_start(problem, settings.seed)
    parts = list_descent_parts(settings, problem, best, start)
    return parts if best is None else [state(problem, best), *parts]


EXPERIMENT = Experiment(
    id="ufm-cross-entropy",
    title="Unconstrained features model, cross-entropy",
    question=(
        "Features and classifier are free. Gradient descent converges to a simplex ETF whose "
        "size is known in closed form."
    ),
    source="PFC (2)",
    scales={"small": CrossEntropyConfig()},
    cost={"small": "6 seconds on one core"},
    parts=list_parts,
    claims=list_claims,
    figures=draw_figures,
    columns=COLUMNS,
    unit="step",
)
