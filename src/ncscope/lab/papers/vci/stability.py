r"""Sweeps of the eigenvalue cut and of noise, under which fuzziness explodes and VCI does not.

Source: VCI section 4.3, abstract, and the remark after corollary 5.4. Fuzziness needs
$\Sigma_B^\dagger$, whose zero eigenvalues are "always occupied with small nonzero values" in a
computer, and whose cut "is a manual task". VCI needs $\Sigma_T^\dagger$.
"""

import math
from collections.abc import Sequence
from functools import partial

import matplotlib as mpl
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from ncscope.data.draws import generator
from ncscope.lab.observations import Observation
from ncscope.lab.papers.trained import geometric_mean, history, ratio, values
from ncscope.lab.papers.vci.variability import Groups
from ncscope.lab.report.histories import logarithmic_values
from ncscope.lab.training.loop import EpochEnd
from ncscope.lab.training.supervised import Bench, probed
from ncscope.models.taps import HEAD_INPUT
from ncscope.report import panels
from ncscope.report.tables import Summary
from ncscope.stats.statistics import ClassStatistics

SIZES = tuple(10.0**power for power in range(-15, 0))
"""Cuts and noises of the sweep, as shares of the largest eigenvalue."""

RANGES = {"cut": 1e-4, "noise": 1e-7}
"""Largest cut and noise that the table covers.

Torch's cut is $d\\epsilon$: 1e-13 in double and 5e-5 in single precision for 384 features. Rounding
in single precision has the relative size 1e-7.
"""

KEYS = {"fuzziness": "fuzziness", "vci": "VCI"}


def stability(bench: Bench, end: EpochEnd) -> list[Observation]:
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
    measured = probed(bench, bench.learner.evaluated, images)
    stats = measured.statistics[measured.record.layers[-1].layer]
    row = partial(Observation, end.step, end.epoch, layer=HEAD_INPUT)
    return [
        *(row(split="cut", values=values) for values in sweep_of_cuts(stats)),
        *(row(split="noise", values=values) for values in sweep_of_noise(stats)),
    ]


def sweep_of_cuts(stats: ClassStatistics) -> list[dict[str, float]]:
    """Compute fuzziness and VCI from matrices in single precision, for each cut.

    Args:
        stats: Statistics of the features.
    """
    weighted = (stats.prior.sqrt()[:, None] * stats.centred).float()
    between, within = weighted.mT @ weighted, _within(stats).float()
    exact = _exact(stats)
    return [{"size": size, **_both(stats, between, within, size), **exact} for size in SIZES]


def sweep_of_noise(stats: ClassStatistics) -> list[dict[str, float]]:
    r"""Compute fuzziness and VCI in double precision, with noise on both matrices.

    $\Sigma_B$ and $\Sigma_W$ get symmetric Gaussian noise, whose spectral norm is about a share of
    their largest eigenvalue; $\Sigma_T$ is their sum. The cut is torch's.

    Args:
        stats: Statistics of the features.
    """
    matrices, draws = (_between(stats), _within(stats)), generator(0)
    noise = [
        torch.linalg.matrix_norm(matrix, 2) * _symmetric(stats.dim, draws).to(matrix.device)
        for matrix in matrices
    ]
    exact, cut = _exact(stats), _default_cut(stats)

    def noisy(size: float) -> dict[str, float]:
        between, within = (
            matrix + size * added for matrix, added in zip(matrices, noise, strict=True)
        )
        return _both(stats, between, within, cut)

    return [{"size": size, **noisy(size), **exact} for size in SIZES]


def _exact(stats: ClassStatistics) -> dict[str, float]:
    """Compute both metrics in double precision with torch's cut, by keys that end in "_exact"."""
    values = _both(stats, _between(stats), _within(stats), _default_cut(stats))
    return {f"{key}_exact": value for key, value in values.items()}


def _both(
    stats: ClassStatistics, between: Float[Tensor, "d d"], within: Float[Tensor, "d d"], cut: float
) -> dict[str, float]:
    """Compute both metrics as VCI prints them, with a relative cut of the pseudo-inverses."""
    invert = partial(torch.linalg.pinv, rtol=cut, hermitian=True)
    fuzziness = (invert(between) * within).sum()
    explained = (invert(between + within) * between).sum()
    rank = min(stats.dim, stats.k - 1)
    return {"fuzziness": float(fuzziness), "vci": 1 - float(explained) / rank}


def _between(stats: ClassStatistics) -> Float[Tensor, "d d"]:
    weighted = stats.prior.sqrt()[:, None] * stats.centred
    return weighted.mT @ weighted


def _within(stats: ClassStatistics) -> Float[Tensor, "d d"]:
    assert stats.within is not None
    return stats.within


def _default_cut(stats: ClassStatistics) -> float:
    return torch.finfo(torch.float64).eps * stats.dim


def _symmetric(dim: int, draws: torch.Generator) -> Float[Tensor, "d d"]:
    """Draw a symmetric matrix of spectral norm about 1."""
    white = torch.randn(dim, dim, generator=draws, dtype=torch.float64)
    return (white + white.mT) / math.sqrt(8 * dim)


def departure(rows: Sequence[Observation], run: str, sweep: str, key: str) -> float:
    """Return the largest relative change of a metric over the range of a sweep.

    Args:
        rows: Rows of a study.
        run: Name of the run.
        sweep: ``"cut"`` or ``"noise"``.
        key: ``"fuzziness"`` or ``"vci"``.

    Returns:
        The largest distance from the exact value, over the exact value; NaN without a sweep, or if
        a value is not finite.
    """
    points = [
        one
        for one in history(rows, run, sweep)
        if float(one.get("size", math.nan)) <= RANGES[sweep]
    ]
    changes = [abs(ratio(*_with_exact(one, key)) - 1) for one in points]
    return max(changes) if changes and all(map(math.isfinite, changes)) else math.nan


def _with_exact(row: Observation, key: str) -> tuple[float, float]:
    """Return the value and the exact value of a row, NaN where the row lacks one."""
    return float(row.get(key, math.nan)), float(row.get(f"{key}_exact", math.nan))


def stability_table(rows: Sequence[Observation], groups: Groups) -> Summary:
    """Show how much each sweep changes fuzziness and VCI.

    These are no claims on training: an untrained network's metrics behave alike, since its
    Sigma_B has as many zero eigenvalues and its Sigma_T as few.

    Args:
        rows: Rows of a study.
        groups: Runs of each network or setting.
    """
    cells = [(sweep, key) for sweep in RANGES for key in KEYS]
    lines = {}
    for name, runs in groups.items():
        changes = [[departure(rows, run, *cell) for run in runs] for cell in cells]
        lines[name] = [f"{geometric_mean(each):.2g}" for each in changes]
    limits = ", ".join(f"{sweep} {limit:g}" for sweep, limit in RANGES.items())
    caption = (
        "VCI section 4.3: largest relative change of a metric at the end of training, under a cut "
        "of the pseudo-inverses and under noise on the matrices, up to shares of the largest "
        f"eigenvalue: {limits}; geometric means over seeds"
    )
    columns = [f"{KEYS[key]}, {sweep}" for sweep, key in cells]
    return Summary(caption, columns, lines, title="Numerical stability")


def stability_figure(rows: Sequence[Observation], runs: Sequence[str]) -> Figure:
    """Draw both metrics over their exact values against the cut and the noise.

    Args:
        rows: Rows of a study.
        runs: Names of the runs.
    """
    colours = {"fuzziness": panels.SECOND, "vci": panels.ACCENT}
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(8.6, 3.4), layout="constrained")
        for axes, (sweep, limit) in zip(
            figure.subplots(1, len(RANGES), sharey=True), RANGES.items(), strict=True
        ):
            measured: set[float] = set()
            for key, name in KEYS.items():
                for run in runs:
                    path = history(rows, run, sweep)
                    drawn = [abs(ratio(*_with_exact(one, key))) for one in path]
                    label = name if run == runs[0] else None
                    sizes = values(path, "size")
                    measured.update(size for size in sizes if size > 0)
                    axes.plot(sizes, drawn, color=colours[key], linewidth=0.8, label=label)
            if len(measured) > 1:  # a logarithmic axis needs a range
                axes.set_xscale("log")
            logarithmic_values(axes)
            axes.axvline(limit, color=panels.SOFT, linestyle=panels.DASHED)
            axes.set_xlabel(f"{sweep}, share of the largest eigenvalue")
        figure.axes[0].set_ylabel("value over exact value")
        figure.axes[0].legend()
    return figure
