"""Settings of VCI's experiments, and claims on its four metrics over training."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.trained import history, ratio, values
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.report.claims import Claim

METRICS = {
    "fuzziness": "fuzziness",
    "nc1_quotient": "squared distance",
    "cosine_within": "cosine distance",
    "vci": "VCI",
}
"""The paper's names of the four metrics by key, in the order of its figures."""

GROUPS = ("nc1", "nc4", "spectra")
"""Groups of metrics that the experiments measure."""

COLUMNS = ("epoch", *METRICS, "accuracy")
"""Columns of the table of the last measurements."""

PAPER_DESCENT = Optimisation(
    epochs=300,
    optimiser="nesterov",
    weight_decay=8e-5,
    schedule="exponential",
    decay=0.975,
    warmup_epochs=10,
    warmup_rate=1e-5,
)
"""Optimisation of section 6.1, except for batch size and learning rate."""

SMALL_DESCENT = PAPER_DESCENT.model_copy(
    update={
        "epochs": 100,
        "batch_size": 64,
        "weight_decay": 5e-4,
        "decay": 0.975**3,
        "warmup_epochs": 3,
    }
)

_SLACK = 0.1
Trend = Callable[[Sequence[float]], bool]


class VCIRuns(BaseModel):
    """Settings of the recipes that train VCI's networks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")


def retrained(training: Training, **update: Any) -> Training:
    """Return settings with some fields of the optimisation replaced.

    Args:
        training: Settings of a run.
        update: Fields of the optimisation.
    """
    optimisation = training.optimisation.model_copy(update=update)
    return training.model_copy(update={"optimisation": optimisation})


def small_training(rate: float, augmentation: str) -> Training:
    """Return settings of a network of 32 features on handwritten digits, with the step decay.

    Args:
        rate: The learning rate.
        augmentation: Augmentation of the images.
    """
    return Training(
        data="digits",
        network="small-resnet",
        augmentation=augmentation,
        optimisation=SMALL_DESCENT.model_copy(update={"learning_rate": rate}),
        every=5,
        layers=(),
        groups=GROUPS,
    )


def falls(course: Sequence[float]) -> bool:
    """Return whether values end below their start and within a tenth of their least value.

    Example:
        >>> falls([3.0, 1.0, 1.05]), falls([3.0, 1.0, 2.0])
        (True, False)
    """
    return known(course) and course[0] > course[-1] <= (1 + _SLACK) * min(course)


def rises(course: Sequence[float]) -> bool:
    """Return whether values end above their start and within a tenth of their greatest value."""
    return known(course) and course[0] < course[-1] >= (1 - _SLACK) * max(course)


def known(course: Sequence[float]) -> bool:
    """Return whether there are two or more values and all of them are finite."""
    return len(course) > 1 and all(map(isfinite, course))


def trained(rows: Sequence[Observation], run: str, split: str = "train") -> list[Observation]:
    """Select the last layer's rows from the first measurement after a training epoch on.

    The earlier measurement has random weights, and directions of its features hardly differ.

    Args:
        rows: Rows of a study.
        run: Name of the run.
        split: ``"train"`` or ``"test"``.
    """
    return [row for row in history(rows, run, split) if row.epoch != 0]


class Projections(NamedTuple):
    r"""The variance within classes on $V_B$ and on its complement, over training.

    Attributes:
        inside: $\operatorname{Tr}[P\Sigma_W]$ at each measured epoch.
        outside: $\operatorname{Tr}[(I-P)\Sigma_W]$.
        between: $\operatorname{Tr}\Sigma_B$; divided by it, both are parts of the squared distance.
    """

    inside: list[float]
    outside: list[float]
    between: list[float]


def projections(path: Sequence[Observation]) -> Projections:
    """Read the parts of the variance from rows with the metrics of NC1.

    Args:
        path: Rows of one layer over training.
    """
    inside, outside = values(path, "within_in_signal"), values(path, "within_off_signal")
    parts = zip(inside, outside, values(path, "nc1_quotient"), strict=True)
    return Projections(inside, outside, [ratio(a + b, quotient) for a, b, quotient in parts])


class Spectra(NamedTuple):
    """Eigenvalues at the end of training, descending."""

    between: list[float]
    total: list[float]


def spectra(results: Results, run: str) -> Spectra:
    r"""Read the spectra of $\Sigma_B$ and $\Sigma_T$ at the last epoch, on the training set.

    Args:
        results: Results of a study.
        run: Name of the run.
    """
    selected = [each for each in results.measurements if each.run == run and each.split == "train"]
    measured = selected[-1].probe.layers[-1].spectra if selected else {}
    return Spectra(list(measured.get("between", [])), list(measured.get("total", [])))


def trend_claim(
    text: str,
    rows: Sequence[Observation],
    runs: Sequence[str],
    key: str,
    split: str,
    *,
    all_fall: bool,
) -> Claim:
    """Test that a metric falls in every run, or that it does not fall in at least one run.

    Args:
        text: Text of the claim.
        rows: Rows of a study.
        runs: Names of the runs.
        key: Key of the metric.
        split: ``"train"`` or ``"test"``.
        all_fall: Claim that the metric falls in all runs if True; that it does not fall in at least
            one run if False.
    """
    courses = {run: values(trained(rows, run, split), key) for run in runs}
    evidence = "; ".join(f"{run}: {told(course, min)}" for run, course in courses.items())
    judged = len(runs) > 0 and all(map(known, courses.values()))
    held = judged and all(map(falls, courses.values())) == all_fall
    return decided(
        text,
        source="VCI",
        held=held,
        evidence=evidence or "no such run",
    )


def told(course: Sequence[float], extreme: Callable[[Sequence[float]], float]) -> str:
    """Write values over training as text: first, last, and least or greatest value."""
    if not course:
        return "not measured"
    name = "least" if extreme is min else "greatest"
    return f"{course[0]:.3g} to {course[-1]:.3g} ({name} {extreme(course):.3g})"


def projection_claims(rows: Sequence[Observation], run: str) -> list[Claim]:
    """Test section 4.1: the within-class variance on V_B falls, and that off V_B grows.

    Args:
        rows: Rows of a study.
        run: Name of the run.
    """
    projected = projections(trained(rows, run))
    return [
        _projection(
            f"{run}: the variance within classes on V_B falls", projected.inside, projected, falls
        ),
        _projection(f"{run}: the variance off V_B rises", projected.outside, projected, rises),
    ]


def _projection(text: str, course: Sequence[float], projected: Projections, trend: Trend) -> Claim:
    relative = [ratio(value, whole) for value, whole in zip(course, projected.between, strict=True)]
    extreme = min if trend is falls else max
    evidence = f"{told(course, extreme)}; divided by the trace of Sigma_B {told(relative, extreme)}"
    return decided(
        text,
        source="VCI",
        held=trend(course),
        evidence=evidence,
    )


def spectrum_claims(rows: Results, run: str) -> list[Claim]:
    """Test section 4.3: the spectrum of the total covariance is larger and more uniform.

    Args:
        rows: Rows of a study.
        run: Name of the run.
    """
    between, total = spectra(rows, run)
    last = len(between)
    texts = [
        f"{run}: at Sigma_B's last index, Sigma_T's eigenvalue is at least twice Sigma_B's",
        f"{run}: Sigma_T's eigenvalues are more uniform than Sigma_B's",
    ]
    if not 0 < last <= len(total):
        return [
            decided(text, source="VCI", held=False, evidence="no spectra measured")
            for text in texts
        ]
    ends = between[-1], total[last - 1]
    decline = ratio(between[0], ends[0]), ratio(total[0], ends[1])
    beyond = ratio(sum(total[last:]), sum(total))
    size = (
        f"eigenvalue {last}: {ends[0]:.3g} of Sigma_B, {ends[1]:.3g} of Sigma_T; later eigenvalues "
        f"have {beyond:.2%} of Sigma_T's trace"
    )
    shape = (
        f"first eigenvalue over eigenvalue {last}: {decline[0]:.3g} for Sigma_B, {decline[1]:.3g} "
        "for Sigma_T"
    )
    return [
        decided(texts[0], source="VCI", held=ends[1] >= 2 * ends[0] and ends[1] > 0, evidence=size),
        decided(texts[1], source="VCI", held=decline[1] < decline[0], evidence=shape),
    ]
