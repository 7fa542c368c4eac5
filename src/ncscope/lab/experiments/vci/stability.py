r"""Sweeps of the eigenvalue cut and of noise, under which fuzziness explodes and VCI does not.

Source: VCI section 4.3, abstract, and the remark after corollary 5.4. Fuzziness needs
$\Sigma_B^\dagger$, whose zero eigenvalues are "always occupied with small nonzero values" in a
computer, and whose cut "is a manual task". VCI needs $\Sigma_T^\dagger$.
"""

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.data.draws import generator
from ncscope.lab.observations import Observation
from ncscope.lab.quantities import Run, ratio, values
from ncscope.lab.training.loop import EpochEnd
from ncscope.lab.training.supervised import Bench, measure_images
from ncscope.models.taps import HEAD_INPUT
from ncscope.stats.statistics import ClassStatistics

SIZES = tuple(10.0**power for power in range(-15, 0))
"""Cuts and noises of the sweep, as shares of the largest eigenvalue."""

RANGES = {"cut": 1e-4, "noise": 1e-7}
"""Largest cut and noise that `departure` covers.

Torch's cut is $d\\epsilon$: 1e-13 in double and 5e-5 in single precision for 384 features. Rounding
in single precision has the relative size 1e-7.
"""


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
    row = partial(Observation, end.step, end.epoch, layer=HEAD_INPUT)
    return [
        *(row(split="cut", values=metrics) for metrics in sweep_cuts(stats)),
        *(row(split="noise", values=metrics) for metrics in sweep_noise(stats)),
    ]


def sweep_cuts(stats: ClassStatistics) -> list[dict[str, float]]:
    """Compute fuzziness and VCI from matrices in single precision, for each cut."""
    weighted = weigh_means(stats).float()
    between, within = weighted.mT @ weighted, within_scatter(stats).float()
    exact = compute_exactly(stats)
    return [{"size": size, **compute_both(stats, between, within, size), **exact} for size in SIZES]


def sweep_noise(stats: ClassStatistics) -> list[dict[str, float]]:
    r"""Compute fuzziness and VCI in double precision, with noise on both matrices.

    $\Sigma_B$ and $\Sigma_W$ get symmetric Gaussian noise, whose spectral norm is about a share of
    their largest eigenvalue; $\Sigma_T$ is their sum. The cut is torch's.
    """
    matrices, draws = (between_scatter(stats), within_scatter(stats)), generator(0)
    noise = []
    for matrix in matrices:
        white = torch.randn(stats.dim, stats.dim, generator=draws, dtype=torch.float64)
        symmetric = (white + white.mT) / math.sqrt(8 * stats.dim)  # of spectral norm about 1
        noise.append(torch.linalg.matrix_norm(matrix, 2) * symmetric.to(matrix.device))
    exact, cut = compute_exactly(stats), default_cut(stats)
    rows = []
    for size in SIZES:
        pairs = zip(matrices, noise, strict=True)
        between, within = (matrix + size * white for matrix, white in pairs)
        rows.append({"size": size, **compute_both(stats, between, within, cut), **exact})
    return rows


def compute_exactly(stats: ClassStatistics) -> dict[str, float]:
    """Compute both metrics in double precision with torch's cut, by keys that end in "_exact"."""
    within, cut = within_scatter(stats), default_cut(stats)
    metrics = compute_both(stats, between_scatter(stats), within, cut)
    return {f"{key}_exact": value for key, value in metrics.items()}


def compute_both(
    stats: ClassStatistics, between: Float[Tensor, "d d"], within: Float[Tensor, "d d"], cut: float
) -> dict[str, float]:
    """Compute both metrics as VCI prints them, with a relative cut of the pseudo-inverses."""
    invert = partial(torch.linalg.pinv, rtol=cut, hermitian=True)
    fuzziness = (invert(between) * within).sum()
    explained = (invert(between + within) * between).sum()
    rank = min(stats.dim, stats.k - 1)
    return {"fuzziness": float(fuzziness), "vci": 1 - float(explained) / rank}


def weigh_means(stats: ClassStatistics) -> Float[Tensor, "k d"]:
    """Return the centred class means, times the roots of the classes' shares."""
    return stats.prior.sqrt()[:, None] * stats.centred


def between_scatter(stats: ClassStatistics) -> Float[Tensor, "d d"]:
    r"""Return $\Sigma_B$."""
    weighted = weigh_means(stats)
    return weighted.mT @ weighted


def within_scatter(stats: ClassStatistics) -> Float[Tensor, "d d"]:
    r"""Return $\Sigma_W$."""
    assert stats.within is not None
    return stats.within


def default_cut(stats: ClassStatistics) -> float:
    """Return torch's relative cut in double precision."""
    return torch.finfo(torch.float64).eps * stats.dim


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
