r"""Sweeps of the eigenvalue cut and of noise, under which fuzziness explodes and VCI does not.

Source: VCI section 4.3, abstract, and the remark after corollary 5.4. Fuzziness needs
$\Sigma_B^\dagger$, whose zero eigenvalues are "always occupied with small nonzero values" in a
computer, and whose cut "is a manual task". VCI needs $\Sigma_T^\dagger$.

The sweeps are shown and not judged: an untrained network's metrics behave alike, since its
$\Sigma_B$ has as many zero eigenvalues and its $\Sigma_T$ as few.
"""

import math
from collections.abc import Mapping
from functools import partial

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from ncscope.data.draws import generator
from ncscope.models.taps import HEAD_INPUT
from ncscope.report import panels
from ncscope.report.tables import Summary
from ncscope.stats.statistics import ClassStatistics
from ncscope_lab.experiments.vci.variability_runs import name_setting
from ncscope_lab.figures import draw_grid, logarithmic_values
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import Run, Runs, geometric_mean, ratio, values
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.supervised import Bench, measure_images

SIZES = tuple(10.0**power for power in range(-15, 0))
"""Cuts and noises of the sweep, as shares of the largest eigenvalue."""

RANGES = {"cut": 1e-4, "noise": 1e-7}
"""Largest cut and noise that `departure` covers.

Torch's cut is $d\\epsilon$: 1e-13 in double and 5e-5 in single precision for 384 features. Rounding
in single precision has the relative size 1e-7.
"""

SWEPT: Mapping[str, str] = {"fuzziness": "fuzziness", "vci": "VCI"}


def measure_stability(bench: Bench, end: EpochEnd) -> list[Observation]:
    """Sweep the cut and the noise on the training features of the last epoch.

    Args:
        bench: The run.
        end: State of training at the end of the epoch.

    Returns:
        An observation for each cut and each noise, with the split ``"cut"`` or ``"noise"``; none at
        other epochs.
    """
    if end.epoch < bench.settings.optimisation.epochs:
        return []
    images = bench.data.train
    if bench.settings.measured is not None:
        images = images.draw_balanced(bench.settings.measured)
    result = measure_images(bench, bench.learner.evaluated, images)
    stats = result.statistics[result.record.layers[-1].layer]
    return [
        Observation(end.step, end.epoch, split, layer=HEAD_INPUT, values=metrics)
        for split, rows in (("cut", sweep_cuts(stats)), ("noise", sweep_noise(stats)))
        for metrics in rows
    ]


def sweep_cuts(stats: ClassStatistics) -> list[dict[str, float]]:
    """Compute fuzziness and VCI from matrices in single precision, for each cut."""
    weighted = weigh_means(stats).float()
    between, within = weighted.mT @ weighted, scatters(stats)[1].float()
    exact = compute_exactly(stats)
    return [{"size": size, **compute_both(stats, between, within, size), **exact} for size in SIZES]


def sweep_noise(stats: ClassStatistics) -> list[dict[str, float]]:
    r"""Compute fuzziness and VCI in double precision, with noise on both matrices.

    $\Sigma_B$ and $\Sigma_W$ get symmetric Gaussian noise, whose spectral norm is about a share of
    their largest eigenvalue; $\Sigma_T$ is their sum. The cut is torch's.
    """
    matrices, draws = scatters(stats), generator(0)
    noise = []
    for matrix in matrices:
        white = torch.randn(stats.dim, stats.dim, generator=draws, dtype=torch.float64)
        symmetric = (white + white.mT) / math.sqrt(8 * stats.dim)  # of spectral norm about 1
        noise.append(torch.linalg.matrix_norm(matrix, 2) * symmetric.to(matrix.device))
    exact, rows = compute_exactly(stats), []
    for size in SIZES:
        pairs = zip(matrices, noise, strict=True)
        between, within = (matrix + size * white for matrix, white in pairs)
        rows.append({"size": size, **compute_both(stats, between, within), **exact})
    return rows


def compute_exactly(stats: ClassStatistics) -> dict[str, float]:
    """Compute both metrics in double precision with torch's cut, by keys that end in "_exact"."""
    metrics = compute_both(stats, *scatters(stats))
    return {f"{key}_exact": value for key, value in metrics.items()}


def compute_both(
    stats: ClassStatistics,
    between: Float[Tensor, "d d"],
    within: Float[Tensor, "d d"],
    cut: float | None = None,
) -> dict[str, float]:
    """Compute both metrics as VCI prints them, with a relative cut of the pseudo-inverses.

    The default cut is torch's in double precision.
    """
    rtol = torch.finfo(torch.float64).eps * stats.dim if cut is None else cut
    invert = partial(torch.linalg.pinv, rtol=rtol, hermitian=True)
    fuzziness = (invert(between) * within).sum()
    explained = (invert(between + within) * between).sum()
    rank = min(stats.dim, stats.k - 1)
    return {"fuzziness": float(fuzziness), "vci": 1 - float(explained) / rank}


def weigh_means(stats: ClassStatistics) -> Float[Tensor, "k d"]:
    """Return the centred class means, times the roots of the classes' shares."""
    return stats.prior.sqrt()[:, None] * stats.centred


def scatters(stats: ClassStatistics) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d d"]]:
    r"""Return $\Sigma_B$ and $\Sigma_W$."""
    assert stats.within is not None
    weighted = weigh_means(stats)
    return weighted.mT @ weighted, stats.within


def read_sweep(run: Run, sweep: str, key: str) -> list[tuple[float, float]]:
    """Read the sizes of the cut or the noise, with a metric over its exact value at each.

    Args:
        run: The run.
        sweep: ``"cut"`` or ``"noise"``.
        key: ``"fuzziness"`` or ``"vci"``.
    """
    path = run.path(sweep)
    pairs = zip(values(path, key), values(path, f"{key}_exact"), strict=True)
    return list(zip(values(path, "size"), [ratio(*pair) for pair in pairs], strict=True))


def departure(run: Run, sweep: str, key: str) -> float:
    """Return the largest relative change of a metric over the range of a sweep.

    Args:
        run: The run.
        sweep: ``"cut"`` or ``"noise"``.
        key: ``"fuzziness"`` or ``"vci"``.

    Returns:
        The largest distance from the exact value, over the exact value; NaN without a sweep, or if
        a value is not finite.
    """
    points = read_sweep(run, sweep, key)
    changes = [abs(value - 1) for size, value in points if size <= RANGES[sweep]]
    return max(changes) if changes and all(map(math.isfinite, changes)) else math.nan


def tabulate_stability(runs: Runs) -> Summary:
    """Show how much each sweep changes fuzziness and VCI."""
    cells = [(sweep, key) for sweep in RANGES for key in SWEPT]
    lines = {
        name: [f"{geometric_mean([departure(run, *cell) for run in group]):.2g}" for cell in cells]
        for name, group in runs.group(name_setting).items()
    }
    limits = ", ".join(f"{sweep} {limit:g}" for sweep, limit in RANGES.items())
    caption = (
        "VCI section 4.3: largest relative change of a metric at the end of training, under a cut "
        "of the pseudo-inverses and under noise on the matrices, up to shares of the largest "
        f"eigenvalue: {limits}; geometric means over seeds"
    )
    columns = [f"{SWEPT[key]}, {sweep}" for sweep, key in cells]
    return Summary(caption, columns, lines, title="Numerical stability")


def draw_stability(runs: Runs) -> Drawing:
    """Draw both metrics over their exact values against the cut and the noise."""

    def panel(sweep: str, axes: Axes) -> None:
        positive: set[float] = set()
        for key, colour in (("fuzziness", panels.SECOND), ("vci", panels.ACCENT)):
            for run in runs:
                points = read_sweep(run, sweep, key)
                sizes = [size for size, _ in points]
                drawn = [abs(value) for _, value in points]
                axes.plot(sizes, drawn, color=colour, linewidth=0.8, label=SWEPT[key])
                positive.update(size for size in sizes if size > 0)
        if len(positive) > 1:  # a logarithmic axis needs a range
            axes.set_xscale("log")
        logarithmic_values(axes)
        axes.axvline(RANGES[sweep], color=panels.SOFT, linestyle=panels.DASHED)
        axes.set_xlabel(f"{sweep}, share of the largest eigenvalue")
        if sweep == "cut":
            axes.set_ylabel("value over exact value")

    return Drawing(
        "stability",
        "Fuzziness and VCI under a cut of the pseudo-inverses (matrices in single precision) and "
        "under noise on the matrices (double precision): absolute value over the exact value, one "
        "curve for each network; left of the dashed line is the range of the table (VCI section "
        "4.3).",
        draw_grid(
            [[partial(panel, sweep) for sweep in RANGES]],
            cell=(4.3, 3.4),
            legend="first",
            share_y=True,
        ),
    )
