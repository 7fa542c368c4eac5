"""Gradient descent on the unconstrained features model under MSE: ``ncscope run ufm``.

Source: XUFM (3), section 6. A descent and a fast solver begin at one random start, and their ends
are compared with the minimiser in closed form. There is one start, so a claim holds if its value
lies in the region.
"""

from typing import Literal

from pydantic import Field

from ncscope_lab.claims import Claim, within
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.models.bounds import Positive
from ncscope_lab.experiments.models.descents import (
    COLUMNS,
    DESCENT_CAPTION,
    FRAMES,
    VANISHED,
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
from ncscope_lab.surrogates.ufm import UFM


class UFMConfig(DescentConfig):
    """Settings of the model and of its descent."""

    bias: Literal["none", "free", "regularised"] = Field("none", description="Kind of bias.")
    bias_decay: Positive = Field(0.1, description="Decay of the bias, if it is regularised.")

    @property
    def problem(self) -> UFM:
        """The model."""
        decays = {"none": None, "free": 0.0, "regularised": self.bias_decay}
        sizes = self.num_classes, self.dim, self.per_class
        return UFM(*sizes, self.weight_decay, self.feature_decay, decays[self.bias])


SOURCES = {
    "none": "XUFM, theorem 3.1",
    "free": "XUFM, theorem 3.2",
    "regularised": "XUFM, section 3, remark on the regularised bias",
}
"""Owner of the claims on the minimisers, by kind of bias."""
BIASES = {"none": "no bias", "free": "free bias", "regularised": "regularised bias"}


def list_claims(settings: UFMConfig) -> list[Claim]:
    """Return the predictions of the closed form."""
    problem, source, share = settings.problem, SOURCES[settings.bias], last("mean_share")
    claims = [claim_arrival("descent", source=source), claim_solver("fast solver")]
    if problem.c < 1:
        claims += claim_vanishing("descent", predict_zeros(problem), source=source)
        if settings.bias == "regularised":
            claims.append(
                Claim(
                    text="The global mean's share of the class means' energy equals the closed "
                    "form's",
                    source="ours",
                    where="descent",
                    quantity=share
                    - share.of(
                        lambda run: run.experiment.find("closed form"), "that in closed form"
                    ),
                    region=within(VANISHED),
                    rule="all",
                )
            )
    return claims


def predict_zeros(problem: UFM) -> dict[str, str]:
    """Return the metrics that fall to zero at the minimiser if c < 1, with the statement of each.

    Metrics that are zero for all features are left out: NC1 of one sample a class, and the distance
    of two classes from a simplex. Without a bias the centred means are a simplex because the means
    are an orthogonal frame (13), so that is no claim.
    """
    k, d, bias = problem.num_classes, problem.dim, problem.bias_decay
    zero = {"nc1": "NC1: features collapse to their class means"} if problem.per_class > 1 else {}
    if bias is None and d >= k:
        zero["nc2_of"] = "NC2: class means become an orthogonal frame"
    if bias is not None and d >= k - 1 and k > 2:
        zero["nc2_etf"] = "NC2: centred class means become a simplex ETF"
    if bias == 0:
        zero["mean_share"] = "The global mean of the features vanishes"
    return zero | {"nc3_alignment": "NC3: the classifier aligns with the class means"}


def draw_figures(settings: UFMConfig, runs: Runs) -> list[Drawing]:
    """Draw the objective, NC1, NC2 and NC3 along the descent."""
    key = "nc2_of" if settings.bias == "none" else "nc2_etf"
    caption = (
        f"Gradient descent on the unconstrained features model, K = {settings.num_classes}, "
        f"{BIASES[settings.bias]}. NC2 is the distance to {FRAMES[key]}. {DESCENT_CAPTION}"
    )
    return [Drawing("descent", caption, draw_descent(runs.find("descent"), key))]


def list_parts(settings: UFMConfig) -> list[Part]:
    """Return the closed form, the fast solver, and descent from the same start."""
    problem = settings.problem
    best = problem.minimiser()
    compact, start = problem.compact(draw_start(problem, settings.seed))
    return [state(problem, best), *list_descent_parts(settings, compact, best, start)]


EXPERIMENT = Experiment(
    id="ufm",
    title="Unconstrained features model, MSE loss",
    question=(
        "Features and classifier are free. Gradient descent converges to a minimiser that is "
        "known in closed form. Its class means are an orthogonal frame without a bias, a simplex "
        "ETF with a free bias, and a frame between the two with a regularised bias."
    ),
    source="XUFM section 3 and figures 1-2",
    scales={"small": UFMConfig()},
    cost={"small": "4 seconds on one core"},
    parts=list_parts,
    claims=list_claims,
    figures=draw_figures,
    columns=COLUMNS,
    unit="step",
)
