"""VCI sections 4.1, 4.3 and 6.2, figures 1-3, 6 and 8: four metrics while ResNet-18 trains.

The paper trains ResNet-18 on CIFAR-10 under cross-entropy, with AutoAugment after a crop and
mirroring, from three seeds, in three ways: with the step decay, with a cosine schedule, and with a
cosine schedule without weight decay and warm-up. There are 300 epochs of Nesterov momentum 0.9,
batches of 256, rate 0.1 times 0.975 an epoch, weight decay 8e-5 and a warm-up of 10 epochs. For
section 6.2 we repeat the step decay on CIFAR-100. The paper draws figures 1 and 2 only for
ResNet-50 on ImageNet; here they are drawn for every setting. We have not run the paper's scale.

The small scale trains a network of 384 features on twenty generated classes of 100 images each,
with random crops, for 48 epochs: the same momentum and decay, batches of 64, rate 0.05, which falls
over 48 epochs as the paper's over 72, and one epoch of warm-up. The step decay is repeated on 10
classes of 200 images, and on 100 of 20, without crops, with 384 and with 32 features, that is, with
more and with fewer features than classes. All training and held-out images are measured before
training and after every epoch. Settings were chosen on seeds below 10 and on seed 100; verdicts are
on seeds 10 to 17.

Section 4.3 is about the metrics, so its claims are on every network and have no null test:
untrained networks pass them too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from ncscope.data.draws import generator
from ncscope.models.taps import HEAD_INPUT
from ncscope.report import panels
from ncscope.report.tables import Summary
from ncscope.stats.statistics import ClassStatistics
from ncscope_lab.claims import Claim, above, below, one
from ncscope_lab.experiment import Experiment, Trainings, repeat_with_seeds, train_runs
from ncscope_lab.experiments.vci.variability_runs import (
    COLUMNS,
    FALLS,
    METRICS,
    RESNET50,
    RISES,
    SMALL_RESNET,
    claim_parts,
    claim_trend,
    draw_common,
    draw_metrics,
    in_setting,
    name_setting,
    of_settings,
    tabulate_spectra,
    trend,
)
from ncscope_lab.figures import collect_points, draw_band, draw_grid, logarithmic_values
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import (
    Quantity,
    Run,
    Runs,
    geometric_mean,
    quantity,
    ratio,
    replace_fields,
    values,
)
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Bench, measure_images

STEP = "step decay"
WAYS = (STEP, "cosine", "cosine, no decay, no warm-up")
TEN, MANY, NARROW = "10 classes", "100 classes", "100 classes, 32 features"


def vary_ways(base: Training) -> dict[str, Training]:
    """Return the paper's three ways to train; the base has the step decay."""
    cosine = replace_fields(base, schedule="cosine")
    plain = replace_fields(cosine, weight_decay=0.0, warmup_epochs=0)
    return dict(zip(WAYS, (base, cosine, plain), strict=True))


RESNET18 = replace_fields(
    RESNET50,
    data="cifar10",
    network="resnet18",
    normalisation="imagenet",
    measured=None,
    batch_size=256,
    learning_rate=0.1,
)
PAPER = Trainings(
    runs=repeat_with_seeds(
        vary_ways(RESNET18) | {MANY: replace_fields(RESNET18, data="cifar100")}, seeds=(0, 1, 2)
    )
)

TWENTY_PATTERNS = replace_fields(
    SMALL_RESNET,
    data="patterns-20",
    augmentation="crop",
    epochs=48,
    decay=0.975**1.5,
    warmup_epochs=1,
    every=1,
)
MANY_PATTERNS = replace_fields(TWENTY_PATTERNS, data="patterns-100", augmentation="none")
SMALL = Trainings(
    runs=repeat_with_seeds(
        {
            **vary_ways(TWENTY_PATTERNS),
            TEN: replace_fields(TWENTY_PATTERNS, data="patterns"),
            MANY: MANY_PATTERNS,
            NARROW: replace_fields(MANY_PATTERNS, network="small-resnet-32"),
        },
        seeds=range(10, 18),
    )
)


def share_off_signal(row: Observation) -> float:
    """Return the share of the variance within classes off V_B, the span of the class means."""
    on, off = (float(row.get(f"within_{part}_signal", math.nan)) for part in ("in", "off"))
    return ratio(off, on + off)


@quantity("share off V_B at the end over the untrained network's")
def gain_of_share(run: Run) -> float:
    """Return the last share of the variance off V_B over the untrained network's share."""
    shares = [share_off_signal(row) for row in run.path()] or [math.nan]
    return ratio(shares[-1], shares[0])


# Sweeps of the eigenvalue cut and of noise, under which fuzziness explodes and VCI does not.
# Source: VCI section 4.3, abstract, and the remark after corollary 5.4. Fuzziness needs the
# pseudo-inverse of Sigma_B, whose zero eigenvalues are "always occupied with small nonzero values"
# in a computer, and whose cut "is a manual task". VCI needs that of Sigma_T.

SIZES = tuple(10.0**power for power in range(-15, 0))
"""Cuts and noises of the sweep, as shares of the largest eigenvalue."""

RANGES = {"cut": 1e-4, "noise": 1e-7}
"""Largest cut and noise that `departure` covers.

Torch's cut is $d\\epsilon$: 1e-13 in double and 5e-5 in single precision for 384 features. Rounding
in single precision has the relative size 1e-7.
"""

SWEPT: Mapping[str, str] = {"fuzziness": "fuzziness", "vci": "VCI"}

STEADY, EXPLODED = 0.01, 10.0
"""Relative change below which a metric is stable, and above which it is not."""


def claim_stability() -> list[Claim]:
    """Make the claims of section 4.3, each on the largest change under the cut and under noise."""

    def change(key: str, pick: Callable[[Sequence[float]], float]) -> Quantity:
        return Quantity(
            f"relative change of {SWEPT[key]}",
            lambda run: float(pick([departure(run, sweep, key) for sweep in RANGES])),
        )

    def tell(key: str, runs: Runs) -> str:
        changes = {sweep: [departure(run, sweep, key) for run in runs] for sweep in RANGES}
        words = [f"{name} {min(each):.2g} to {max(each):.2g}" for name, each in changes.items()]
        return f"relative change in {len(runs)} networks: {', '.join(words)}"

    cut, noise = (f"{limit:.0e}".replace("e-0", "e-") for limit in RANGES.values())
    claim = partial(Claim, source="VCI, section 4.3", rule="all", over="networks")
    return [
        claim(
            text=f"no cut of up to {cut}, and no noise of up to {noise}, of the largest eigenvalue "
            f"changes VCI by {100 * STEADY:g} % or more, in every network",
            quantity=change("vci", np.max),
            region=below(STEADY),
            tell=partial(tell, "vci"),
        ),
        claim(
            text=f"some cut of up to {cut}, and some noise of up to {noise}, of the largest "
            f"eigenvalue changes fuzziness by more than {EXPLODED:g} times its value, in every "
            "network with more features than classes",
            quantity=change("fuzziness", np.min),
            region=above(EXPLODED),
            where=of_settings(*WAYS, TEN, MANY),
            tell=partial(tell, "fuzziness"),
        ),
    ]


# A seed gives one value of each setting. A claim on a trend, Spearman's correlation of the metric
# with the epoch, holds of a setting if the 95 % interval of the mean over the seeds lies in the
# region: below -0.5 if it falls, above 0.5 if it rises. It must hold of every setting, or of one at
# least where `enough=one`. Ratios are averaged as logarithms.
CLAIMS = [
    *(
        claim_trend(
            text=f"{METRICS[key]} falls over training, in every setting",
            source="VCI, figure 3",
            quantity=trend(key),
            region=FALLS,
            where=of_settings(*WAYS),
        )
        for key in ("fuzziness", "vci")
    ),
    claim_trend(
        text="VCI falls on held-out images too, in every setting",
        source="VCI, figure 6",
        quantity=trend("vci", "test"),
        region=FALLS,
        where=of_settings(*WAYS),
    ),
    *(
        claim_trend(
            text=f"there is a setting in which {METRICS[key]} rises",
            source="VCI, figure 3",
            quantity=trend(key),
            region=RISES,
            where=of_settings(*WAYS),
            enough=one,
        )
        for key in ("nc1_quotient", "cosine_within")
    ),
    *claim_parts(*WAYS, TEN, MANY),
    *(
        claim_trend(
            text=f"{title} falls over training, in every network for 100 classes",
            source="VCI, section 6.2",
            quantity=trend(key),
            region=FALLS,
            where=of_settings(MANY, NARROW),
        )
        for key, title in METRICS.items()
    ),
    # Settings that differ in nothing but the number of classes that the same number of images has.
    # Untrained networks differ too, so every network is compared with itself untrained.
    Claim(
        text=(
            "the share of the variance off V_B, over the untrained network's share, is smaller "
            "for 20 classes than for 10"
        ),
        source="VCI, section 6.2",
        quantity=gain_of_share / in_setting(TEN, gain_of_share),
        region=below(1),
        scale="ratio",
        where=of_settings(STEP),
    ),
    *claim_stability(),
]


def make_tables(settings: Trainings, runs: Runs) -> list[Summary]:
    """Show the eigenvalues and the sweeps of section 4.3."""
    return [tabulate_spectra(runs), tabulate_stability(runs)]


def draw_figures(settings: Trainings, runs: Runs) -> list[Drawing]:
    """Draw figures 1-3, 6 and 8, and two figures that the paper lacks."""

    def shares(axes: Axes) -> None:
        for index, (name, group) in enumerate(runs.group(name_setting).items()):
            rows = [
                row.with_values({"share": share_off_signal(row)})
                for run in group
                for row in run.path()
            ]
            points = collect_points(rows, "epoch", "share")
            again, colour = divmod(index, len(panels.SERIES))
            draw_band(axes, points, name, panels.SERIES[colour], "--" if again else "-")
        axes.set_ylim(0, 1)
        axes.set_xlabel("epoch")
        axes.set_ylabel("share off $V_B$")

    return [
        *draw_common(runs),
        draw_metrics(3, "for three ways to train", of_settings(*WAYS)(runs)),
        Drawing(
            "shares",
            "Share of the variance within classes off V_B, on training images from the untrained "
            "network on (VCI section 6.2).",
            draw_grid([[shares]], cell=(4.8, 3.4), legend="beside"),
        ),
        draw_stability(Runs(run for run in runs if name_setting(run) != NARROW)),
    ]


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
    stats = result.statistics[result.record.last.layer]
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
        axes.axvline(
            RANGES[sweep], color=panels.SOFT, linestyle=panels.DASHED, label="end of what is judged"
        )
        axes.set_xlabel(f"{sweep}, share of the largest eigenvalue")
        if sweep == "cut":
            axes.set_ylabel("value over exact value")

    return Drawing(
        "stability",
        "Fuzziness and VCI under a cut of the pseudo-inverses (matrices in single precision) and "
        "under noise on the matrices (double precision): absolute value over the exact value, one "
        "curve for each network; claims and table are about sizes left of the dashed line (VCI "
        "section 4.3).",
        draw_grid(
            [[partial(panel, sweep) for sweep in RANGES]],
            cell=(4.3, 3.4),
            legend="first",
            share_y=True,
        ),
    )


EXPERIMENT = Experiment(
    id="vci/training",
    title="Variability collapse while a residual network trains",
    question=(
        "One network is trained with three settings. VCI says that fuzziness and VCI fall with "
        "each of them, but squared and cosine distance need not fall: variability grows in "
        "directions orthogonal to the class means."
    ),
    source="VCI sections 4.1, 4.3, 6.2, figures 1-3, 6, 8",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "16 GPU-hours (estimated)", "small": "1.8 hours on one core"},
    parts=partial(train_runs, extra=measure_stability),
    claims=CLAIMS,
    figures=draw_figures,
    tables=make_tables,
    columns=COLUMNS,
)
