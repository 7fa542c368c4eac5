"""The best classifier on perturbed collapsed features: `ncscope simulate perturbed`.

Source: XUFM theorem 5.1. Cost: 2 seconds on one core. Expected with the settings given here: the
classifier shrinks to 0.240 of its length, as the theorem says, and the deviation falls like
n^(-1/2).
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import decided, judged, within
from ncscope.lab.observations import Observation, observations_of
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.rows import number, part_of
from ncscope.lab.runs.recipe import Part, Study
from ncscope.lab.simulations.bounds import (
    DifferentSizes,
    NotNegative,
    Positive,
)
from ncscope.lab.surrogates.perturbed import PerturbedUFM
from ncscope.lab.surrogates.trajectory import measured_point
from ncscope.report import panels
from ncscope.report.claims import Claim

PART = "growing n"
COLUMNS = ("per_class", "seed", "kept", "predicted", "deviation", "nc1", "nc3_alignment")
MARGIN = 0.01
"""Relative difference from the limit that counts as equal."""
POWER, POWER_MARGIN = -0.5, 0.1
"""Power of n by which the distance from the limit falls, and its margin."""
ROUNDING = 1e-12
"""Distances from the limit below this value are zero but for rounding."""


class PerturbedConfig(BaseModel):
    """Settings of the model, and the sample sizes to compare."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_classes: int = Field(4, ge=2, description="Number of classes K.")
    dim: int = Field(20, ge=2, description="Dimension d of the features, at least K.")
    per_class: DifferentSizes = Field(
        (10, 30, 100, 300, 1000, 3000, 10000), description="Samples n to compare."
    )
    weight_decay: Positive = Field(0.005, description="Decay of the classifier.")
    feature_decay: Positive = Field(0.05, description="N times the decay of the features.")
    noise: NotNegative = Field(0.5, description="Standard deviation of the perturbation.")
    seeds: int = Field(10, ge=2, description="Number of perturbations drawn for each n.")


def _parts(config: PerturbedConfig) -> list[Part]:
    """Return the fits of the best classifier for every n and every seed of the perturbation."""
    return [Part(PART, len(config.per_class) * config.seeds, lambda _: fits(config))]


def fits(config: PerturbedConfig) -> Iterator[Observation]:
    r"""Yield one observation per fit: metrics of the perturbed features and the classifier.

    ``kept`` is the multiple of $W^*$ nearest to the fit, ``predicted`` is $\alpha$, and
    ``deviation`` is $\lVert\hat W-\alpha W^*\rVert_F/\lVert\alpha W^*\rVert_F$.
    """
    for per_class in sorted(set(config.per_class)):
        for seed in range(config.seeds):
            model = _model(config, per_class, seed)
            best = model.minimiser()
            (weight,) = best.point
            expected = model.attenuation * model.unperturbed
            kept = (weight * model.unperturbed).sum() / model.unperturbed.square().sum()
            measurement = measured_point(model, best.point, 0, ("nc1", "nc3"))
            (observation,) = observations_of(measurement)
            yield observation.with_values(
                {
                    "per_class": per_class,
                    "seed": seed,
                    "kept": float(kept),
                    "predicted": model.attenuation,
                    "deviation": float((weight - expected).norm() / expected.norm()),
                    "minimum": best.objective,
                }
            )


def _claims(config: PerturbedConfig, rows: Sequence[Observation]) -> list[Claim]:
    """Test theorem 5.1: the value of the limit, and the convergence to it."""
    by_size = grouped(part_of(rows, PART))
    return [_keeps(config, by_size), _rate(by_size)]


def _keeps(config: PerturbedConfig, by_size: Mapping[int, Sequence[Observation]]) -> Claim:
    n = max(by_size)
    predicted = number(by_size[n][0], "predicted")
    off = first_correction(config) / n
    kept = [number(row, "kept") for row in by_size[n]]
    return judged(
        "As n grows, the share of W* that the best classifier keeps tends to the attenuation that "
        f"the theorem states, to {MARGIN:.0%}",
        source="XUFM, theorem 5.1",
        values=[(share - off) / predicted - 1 for share in kept],
        region=within(MARGIN),
        step=ROUNDING,  # without noise all values are alike
        evidence=f"relative differences from {predicted:.5f} at n = {n:,}, after the known term "
        f"of order 1/n, {off:+.1g}; share kept {sum(kept) / len(kept):.5f}",
    )


def first_correction(config: PerturbedConfig) -> float:
    r"""Return the 1/n coefficient of the mean share's deviation from its limit.

    With $C=\frac1NYH^\top$, $G=\frac1NHH^\top+\lambda_WI$, their limits $C_0$ and $G_0$, and their
    deviations $\Gamma$ and $\Delta$ from these limits, the second order of $CG^{-1}$ is
    $$C_0G_0^{-1}\Delta G_0^{-1}\Delta G_0^{-1}-\Gamma G_0^{-1}\Delta G_0^{-1}$$
    The first order has mean zero. The class means have length h. On their span $G_0$ is
    $a=\frac{h^2}K+\sigma^2+\lambda_W$; on the complement it is $b=\sigma^2+\lambda_W$. With
    $t=\frac Ka+\frac{d-K}b$, the code below states the means of the traces with $W^*$.
    """
    k, d, noise = config.num_classes, config.dim, config.noise**2
    ratio = math.sqrt(config.weight_decay / config.feature_decay)
    energy = (1 - k * math.sqrt(config.weight_decay * config.feature_decay)) * ratio
    off = noise + config.weight_decay
    on = off + energy / k
    inverse = 1 / on + k / on + (d - k) / off  # 1/a + t
    squared = noise * energy / k * ((2 * k + 2) / on + (d - k) / off) + noise**2 * inverse
    return ratio / (k**2 * on) * (squared / on - noise * inverse)


def _rate(by_size: Mapping[int, Sequence[Observation]]) -> Claim:
    sizes = sorted(by_size)[-3:]
    first, last = ([number(row, "deviation") for row in by_size[n]] for n in (sizes[0], sizes[-1]))
    text = (
        "The best classifier's distance from its limit falls like a power of n, which differs from "
        f"{POWER} by at most {POWER_MARGIN}"
    )
    told = (
        f"{sum(first) / len(first):.2g} at n = {sizes[0]:,}, {sum(last) / len(last):.2g} at "
        f"n = {sizes[-1]:,}"
    )
    if min(*first, *last) < ROUNDING:
        exact = max(*first, *last) < ROUNDING
        return decided(text, source="ours", held=exact or None, evidence=f"{told}: rounding")
    growth = math.log(sizes[-1] / sizes[0])
    return judged(
        text,
        source="ours",
        values=[
            math.log(end / start) / growth - POWER for start, end in zip(first, last, strict=True)
        ],
        region=within(POWER_MARGIN),
        evidence=f"power less {POWER}; {told}",
    )


def grouped(rows: Sequence[Observation]) -> dict[int, list[Observation]]:
    """Group the rows by n."""
    groups: dict[int, list[Observation]] = {}
    for row in rows:
        groups.setdefault(int(row["per_class"]), []).append(row)
    return groups


def _drawings(config: PerturbedConfig, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw the share of W* that is kept, and the distance from the limit, against n."""
    caption = (
        f"The best classifier on perturbed features, K = {config.num_classes}, d = {config.dim}, "
        f"noise {config.noise:g}: mean and standard deviation over {config.seeds} seeds, with the "
        "limit of theorem 5.1 and a line of slope -1/2."
    )
    return [Drawing("attenuation", caption, attenuation_figure(part_of(rows, PART)))]


def attenuation_figure(rows: Sequence[Observation]) -> Figure:
    """Draw two panels against n: the share kept with its limit, and the distance from it."""
    by_size = grouped(rows)
    sizes = sorted(by_size)
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(8.4, 2.9), layout="constrained")
        kept, deviation = figure.subplots(1, 2)
        for axes, key in ((kept, "kept"), (deviation, "deviation")):
            spread = [_mean_and_deviation([number(row, key) for row in by_size[n]]) for n in sizes]
            means, deviations = zip(*spread, strict=True)
            axes.errorbar(
                sizes, means, yerr=deviations, fmt="o", color=panels.ACCENT, markersize=4,
                elinewidth=1, capsize=2.5, label="fitted",
            )  # fmt: skip
            axes.set_xscale("log")
            axes.set_xlabel("samples n in each class")
        predicted = number(rows[0], "predicted")
        kept.axhline(predicted, color=panels.SECOND, linestyle=panels.DASHED, label="theorem 5.1")
        kept.set_title("Share of W* that is kept")
        line = [means[-1] * math.sqrt(sizes[-1] / n) for n in sizes]
        deviation.plot(
            sizes, line, color=panels.SECOND, linestyle=panels.DASHED, label="slope -1/2"
        )
        if min(line) > 0:
            deviation.set_yscale("log")
        deviation.set_title("Relative distance from the limit")
        kept.legend()
        deviation.legend()
    return figure


def _mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _model(config: PerturbedConfig, per_class: int, seed: int) -> PerturbedUFM:
    return PerturbedUFM(
        config.num_classes,
        config.dim,
        per_class,
        config.weight_decay,
        config.feature_decay,
        config.noise,
        seed,
    )


STUDY: Study[PerturbedConfig] = Study(
    id="perturbed",
    title="Fixed perturbed features",
    lead=(
        "Noise on collapsed features only shortens the best classifier: as the number of samples "
        "grows, it tends to a known multiple of the classifier without noise."
    ),
    source="XUFM theorem 5.1",
    config=PerturbedConfig,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    unit="step",
    columns=COLUMNS,
)
