"""The best classifier on perturbed collapsed features: ``ncscope run perturbed``.

Source: XUFM theorem 5.1. The features are collapsed but for noise. The theorem states by how much
the best classifier on them is shorter than the classifier without noise. A claim holds if the 95 %
interval of the mean over the seeds of the noise lies in the region.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from pydantic import Field

from ncscope.report import panels
from ncscope_lab.claims import Claim, within
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.models.bounds import DifferentSizes, NotNegative, Positive
from ncscope_lab.figures import collect_points, draw_grid
from ncscope_lab.observations import Observation, observations_of
from ncscope_lab.quantities import Run, Runs, average
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.settings import Config
from ncscope_lab.surrogates.measurement import measure_solution
from ncscope_lab.surrogates.perturbed import PerturbedUFM

PART = "growing n"
MARGIN = 0.01  # relative difference from the limit that counts as equal
POWER, POWER_MARGIN = -0.5, 0.1  # power of n by which the distance from the limit falls
ROUNDING = 1e-12  # smaller distances from the limit are zero but for rounding


class PerturbedConfig(Config):
    """Settings of the model, and the sample sizes to compare."""

    num_classes: int = Field(4, ge=2, description="Number of classes K.")
    dim: int = Field(20, ge=2, description="Dimension d of the features, at least K.")
    per_class: DifferentSizes = Field(
        (10, 30, 100, 300, 1000, 3000, 10000), description="Samples n to compare."
    )
    weight_decay: Positive = Field(0.005, description="Decay of the classifier.")
    feature_decay: Positive = Field(0.05, description="N times the decay of the features.")
    noise: NotNegative = Field(0.5, description="Standard deviation of the perturbation.")
    seeds: int = Field(10, ge=2, description="Number of perturbations drawn for each n.")

    @property
    def sizes(self) -> list[int]:
        """The sample sizes, from small to large."""
        return sorted(set(self.per_class))

    def model(self, per_class: int, seed: int) -> PerturbedUFM:
        """Return the model with n samples in each class, and the noise of a seed."""
        decays = self.weight_decay, self.feature_decay
        return PerturbedUFM(self.num_classes, self.dim, per_class, *decays, self.noise, seed)


def list_claims(settings: PerturbedConfig) -> list[Claim]:
    """Return theorem 5.1: the value of the limit, and the convergence to it."""
    n, off = settings.sizes[-1], first_correction(settings) / settings.sizes[-1]
    first, last = settings.sizes[-3:][0], settings.sizes[-1]

    def distance(run: Run) -> float:
        kept, predicted = (value_at(run, n, key) for key in ("kept", "predicted"))
        return (kept - off) / predicted - 1

    def tell_kept(runs: Runs) -> str:
        kept = average([value_at(run, n, "kept") for run in runs])
        return (
            f"relative differences from {value_at(runs[0], n, 'predicted'):.5f} at n = {n:,}, "
            f"after the known term of order 1/n, {off:+.1g}; share kept {kept:.5f}"
        )

    def power(run: Run) -> float:
        start, end = (value_at(run, size, "deviation") for size in (first, last))
        if max(start, end) < ROUNDING:
            return 0.0  # without noise there is no distance that could fall
        if min(start, end) < ROUNDING:
            return math.nan
        return math.log(end / start) / math.log(last / first) - POWER

    def tell_power(runs: Runs) -> str:
        start, end = (
            average([value_at(run, size, "deviation") for run in runs]) for size in (first, last)
        )
        return f"power less {POWER}; {start:.2g} at n = {first:,}, {end:.2g} at n = {last:,}"

    return [
        Claim(
            text="As n grows, the share of W* that the best classifier keeps tends to the "
            f"attenuation that the theorem states, to {MARGIN:.0%}",
            source="XUFM, theorem 5.1",
            where=split_seeds,
            quantity=distance,
            region=within(MARGIN),
            step=ROUNDING,  # without noise all values are alike
            tell=tell_kept,
        ),
        Claim(
            text="The best classifier's distance from its limit falls like a power of n, which "
            f"differs from {POWER} by at most {POWER_MARGIN}",
            source="ours",
            where=split_seeds,
            quantity=power,
            region=within(POWER_MARGIN),
            step=ROUNDING,
            tell=tell_power,
        ),
    ]


def split_seeds(runs: Runs) -> Runs:
    """Return the fits of each seed, of every n."""
    return Runs([runs.find(PART)]).split("seed")


def value_at(run: Run, n: int, key: str) -> float:
    """Return a value of the fit with n samples in each class; NaN without it."""
    return next((float(row[key]) for row in run.rows if row["per_class"] == n), math.nan)


def first_correction(settings: PerturbedConfig) -> float:
    r"""Return the 1/n coefficient of the mean share's deviation from its limit.

    With $C=\frac1NYH^\top$, $G=\frac1NHH^\top+\lambda_WI$, their limits $C_0$ and $G_0$, and their
    deviations $\Gamma$ and $\Delta$ from these limits, the second order of $CG^{-1}$ is
    $$C_0G_0^{-1}\Delta G_0^{-1}\Delta G_0^{-1}-\Gamma G_0^{-1}\Delta G_0^{-1}$$
    The first order has mean zero. The class means have length h. On their span $G_0$ is
    $a=\frac{h^2}K+\sigma^2+\lambda_W$; on the complement it is $b=\sigma^2+\lambda_W$. With
    $t=\frac Ka+\frac{d-K}b$, the code below states the means of the traces with $W^*$.
    """
    k, d, noise = settings.num_classes, settings.dim, settings.noise**2
    ratio = math.sqrt(settings.weight_decay / settings.feature_decay)
    energy = (1 - k * math.sqrt(settings.weight_decay * settings.feature_decay)) * ratio
    off = noise + settings.weight_decay
    on = off + energy / k
    inverse = 1 / on + k / on + (d - k) / off  # 1/a + t
    squared = noise * energy / k * ((2 * k + 2) / on + (d - k) / off) + noise**2 * inverse
    return ratio / (k**2 * on) * (squared / on - noise * inverse)


def draw_figures(settings: PerturbedConfig, runs: Runs) -> list[Drawing]:
    """Draw the share of W* that is kept, and the distance from the limit, against n."""
    caption = (
        f"The best classifier on perturbed features, K = {settings.num_classes}, "
        f"d = {settings.dim}, noise {settings.noise:g}: mean and standard deviation over "
        f"{settings.seeds} seeds, with the limit of theorem 5.1 and a line of slope -1/2."
    )
    row = [partial(draw_against_size, runs.find(PART), key) for key in ("kept", "deviation")]
    return [Drawing("attenuation", caption, draw_grid([row], cell=(4.2, 2.8)))]


def draw_against_size(run: Run, key: str, axes: Axes) -> None:
    """Draw a value against n: its mean and standard deviation, and what the theorem says of it."""
    fits = collect_points(run.path(), "per_class", key)
    means = {n: average(numbers) for n, numbers in fits.items()}
    deviations = [
        math.sqrt(sum((number - means[n]) ** 2 for number in numbers) / (len(numbers) - 1))
        for n, numbers in fits.items()
    ]
    axes.errorbar(
        list(means),
        list(means.values()),
        yerr=deviations,
        fmt="o",
        color=panels.ACCENT,
        markersize=4,
        elinewidth=1,
        capsize=2.5,
        label="fitted",
    )
    theory: dict[str, Any] = {"color": panels.SECOND, "linestyle": panels.DASHED}
    if key == "kept":
        axes.axhline(float(run.rows[0]["predicted"]), label="theorem 5.1", **theory)
        axes.set_title("Share of W* that is kept")
    else:
        *_, largest = means
        line = [means[largest] * math.sqrt(largest / n) for n in means]
        axes.plot(list(means), line, label="slope -1/2", **theory)
        if min(line) > 0:
            axes.set_yscale("log")
        axes.set_title("Relative distance from the limit")
    axes.set_xscale("log")
    axes.set_xlabel("samples n in each class")
    axes.legend()


def list_parts(settings: PerturbedConfig) -> list[Part]:
    """Return the fits of the best classifier for every n and every seed of the perturbation."""
    fits = len(settings.sizes) * settings.seeds
    return [Part(PART, fits, lambda _: fit_classifiers(settings))]


def fit_classifiers(settings: PerturbedConfig) -> Iterator[Observation]:
    r"""Yield one observation per fit: metrics of the perturbed features and the classifier.

    ``kept`` is the multiple of $W^*$ nearest to the fit, ``predicted`` is $\alpha$, and
    ``deviation`` is $\lVert\hat W-\alpha W^*\rVert_F/\lVert\alpha W^*\rVert_F$.
    """
    for n in settings.sizes:
        for seed in range(settings.seeds):
            model = settings.model(n, seed)
            best = model.minimiser()
            (weight,) = best.point
            expected = model.attenuation * model.unperturbed
            kept = (weight * model.unperturbed).sum() / model.unperturbed.square().sum()
            (fit,) = observations_of(measure_solution(model, best.point, 0, ("nc1", "nc3")))
            yield fit.with_values(
                {
                    "per_class": n,
                    "seed": seed,
                    "kept": float(kept),
                    "predicted": model.attenuation,
                    "deviation": float((weight - expected).norm() / expected.norm()),
                    "minimum": best.objective,
                }
            )


EXPERIMENT = Experiment(
    id="perturbed",
    title="Fixed perturbed features",
    question=(
        "Noise on collapsed features only shortens the best classifier: as the number of samples "
        "grows, it tends to a known multiple of the classifier without noise."
    ),
    source="XUFM theorem 5.1",
    scales={"small": PerturbedConfig()},
    cost={"small": "2 seconds on one core"},
    parts=list_parts,
    claims=list_claims,
    figures=draw_figures,
    columns=("per_class", "seed", "kept", "predicted", "deviation", "nc1", "nc3_alignment"),
    unit="step",
)
