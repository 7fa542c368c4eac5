"""Settings of VCI's experiments, and claims on its four metrics over training."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import nan
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import above, below, combined, judged
from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.trained import (
    average,
    ends,
    geometric_mean,
    history,
    ratio,
    values,
)
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.report.claims import Claim
from ncscope.report.tables import Summary

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

MEDIUM_IMAGES = 10_000
"""Training images of the medium scale, equally many per class."""

SEEDS = (0, 1, 2)
"""Seeds of every run."""

FACTOR = 1.1
"""Least factor between the first and the last measurement for a value that falls or rises."""

Groups = Mapping[str, Sequence[str]]
"""Names of the runs, one a seed, by the name of what the runs share."""


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


def medium_training(training: Training, epochs: int) -> Training:
    """Return the paper's settings with fewer images and epochs, for one GPU.

    Args:
        training: The paper's settings.
        epochs: Number of epochs; schedule, warm-up and measurements are shortened accordingly.
    """
    optimisation, times = training.optimisation, training.optimisation.epochs / epochs
    shorter = {"epochs": epochs, "batch_size": 128, "decay": optimisation.decay**times}
    shorter["warmup_epochs"] = round(optimisation.warmup_epochs / times)
    every = max(1, round((training.every or epochs) / times))
    update = {"balanced": MEDIUM_IMAGES, "measured": None, "every": every}
    optimisation = optimisation.model_copy(update=shorter)
    return training.model_copy(update=update | {"optimisation": optimisation})


def seeded(runs: Mapping[str, Training], seeds: Sequence[int] = SEEDS) -> dict[str, Training]:
    """Return every run with every seed, named "RUN, seed SEED"; `groups_of` gathers the names.

    Args:
        runs: Runs by name.
        seeds: Seeds.
    """
    return {
        f"{name}, seed {seed}": training.model_copy(update={"seed": seed})
        for name, training in runs.items()
        for seed in seeds
    }


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


def share_off_signal(rows: Sequence[Observation], run: str) -> list[float]:
    r"""Return the share of the variance within classes off $V_B$, from the untrained network on.

    Args:
        rows: Rows of a study.
        run: Name of the run.

    Returns:
        The share at each measured epoch; NaN without rows.
    """
    path = projections(history(rows, run))
    pairs = zip(path.inside, path.outside, strict=True)
    return [ratio(outside, inside + outside) for inside, outside in pairs] or [nan]


class Spectra(NamedTuple):
    """Eigenvalues of Sigma_B, up to its largest possible rank, and of Sigma_T, descending."""

    between: list[float]
    total: list[float]


def spectra(results: Results, run: str, *, untrained: bool = False) -> Spectra:
    r"""Read the spectra of $\Sigma_B$ and $\Sigma_T$ at the last epoch, on the training set.

    Args:
        results: Results of a study.
        run: Name of the run.
        untrained: Read those before training instead.
    """
    selected = [each for each in results.measurements if each.run == run and each.split == "train"]
    if untrained:
        selected = [each for each in selected if each.step == 0]
    measured = selected[-1].model_record.layers[-1].spectra if selected else {}
    return Spectra(list(measured.get("between", [])), list(measured.get("total", [])))


def groups_of(runs: Iterable[str]) -> dict[str, list[str]]:
    """Gather the names of runs that differ by the seed only.

    Args:
        runs: Names of runs, as `seeded` makes them.

    Example:
        >>> groups_of(["a, seed 0", "a, seed 1", "b, seed 0"])
        {'a': ['a, seed 0', 'a, seed 1'], 'b': ['b, seed 0']}
    """
    groups: dict[str, list[str]] = {}
    for run in runs:
        groups.setdefault(run.partition(", seed ")[0], []).append(run)
    return groups


def change(rows: Sequence[Observation], run: str, key: str, split: str = "train") -> float:
    """Return the last value of a metric over the first one after a training epoch.

    Args:
        rows: Rows of a study.
        run: Name of the run.
        key: Key of the metric.
        split: ``"train"`` or ``"test"``.
    """
    first, last = ends(trained(rows, run, split), key)
    return ratio(last, first)


def trend_claim(
    text: str,
    rows: Sequence[Observation],
    groups: Groups,
    key: str,
    *,
    source: str,
    split: str = "train",
    rises: bool = False,
    enough: int | None = None,
    factor: float = FACTOR,
) -> Claim:
    """Test that a metric falls, or rises, by a factor over training.

    Args:
        text: Text of the claim.
        rows: Rows of a study.
        groups: Runs of each network or setting.
        key: Key of the metric.
        source: Owner of the claim.
        split: ``"train"`` or ``"test"``.
        rises: Claim that the metric rises if True.
        enough: Number of groups for which the claim must hold; default all.
        factor: Least factor between the first and the last value.
    """
    claims = {
        name: judged(
            text,
            source=source,
            values=[change(rows, run, key, split) for run in runs],
            region=above(factor) if rises else below(1 / factor),
            scale="ratio",
            evidence=f"from {_mean_ends(rows, runs, key, split)}",
        )
        for name, runs in groups.items()
    }
    return combined(text, source=source, claims=claims, enough=enough, of="settings")


def _mean_ends(rows: Sequence[Observation], runs: Sequence[str], key: str, split: str) -> str:
    pairs = [ends(trained(rows, run, split), key) for run in runs]
    first, last = (average([pair[index] for pair in pairs]) for index in (0, 1))
    return f"{first:.3g} to {last:.3g} in the mean"


def projection_claims(rows: Sequence[Observation], groups: Groups, where: str = "") -> list[Claim]:
    """Test section 4.1: the within-class variance on V_B falls, and that off V_B grows.

    The paper states the direction only, so the factor is 1.

    Args:
        rows: Rows of a study.
        groups: Runs of each network or setting.
        where: Words that end the texts of the claims.
    """
    claim = partial(trend_claim, rows=rows, groups=groups, source="VCI, figure 1", factor=1)
    on, off = (f"the variance within classes {part} V_B" for part in ("on", "off"))
    return [
        claim(f"{on} falls{where}", key="within_in_signal"),
        claim(f"{off} rises{where}", key="within_off_signal", rises=True),
    ]


def spectrum_table(results: Results, groups: Groups) -> Summary:
    """Compare how uniform the eigenvalues of the two covariances are (section 4.3 and figure 2).

    This is no claim: in untrained networks Sigma_T's eigenvalues are the more uniform ones, too.

    Args:
        results: Results of a study.
        groups: Runs of each network or setting.
    """
    lines = {}
    for name, runs in groups.items():
        counts = {len(spectra(results, run).between) for run in runs}
        cells = [", ".join(map(str, sorted(counts)))]
        for untrained in (True, False):
            pairs = [unevenness(spectra(results, run, untrained=untrained)) for run in runs]
            cells += [
                f"{geometric_mean(list(of_runs)):.3g}" for of_runs in zip(*pairs, strict=True)
            ]
        lines[name] = cells
    caption = (
        "VCI section 4.3 and figure 2: largest over smallest of the first eigenvalues of Sigma_B "
        "and of Sigma_T on training images, as many of each as Sigma_B can have, the smaller of d "
        "and K - 1; geometric means over seeds"
    )
    when = ("before training", "at the end")
    columns = [f"{matrix}, {at}" for at in when for matrix in ("Sigma_B", "Sigma_T")]
    return Summary(caption, ["compared", *columns], lines, title="Eigenvalues")


def unevenness(pair: Spectra) -> tuple[float, float]:
    """Return the first over the last of the compared eigenvalues of each covariance.

    Args:
        pair: Both spectra. The eigenvalues of Sigma_B are as many as it can have that are not
            zero; as many of Sigma_T are compared.

    Example:
        >>> unevenness(Spectra(between=[4.0, 1.0], total=[5.0, 4.0, 0.5]))
        (4.0, 1.25)
    """
    count = len(pair.between)
    if not 0 < count <= len(pair.total):
        return nan, nan
    return ratio(pair.between[0], pair.between[-1]), ratio(pair.total[0], pair.total[count - 1])
