"""VCI sections 4.1, 4.3 and 6.2, figures 1-3, 6 and 8: four metrics while ResNet-18 trains.

The paper trains ResNet-18 on CIFAR-10 under cross-entropy, with AutoAugment after a crop and
mirroring, from three seeds, in three ways: with the step decay, with a cosine schedule, and with a
cosine schedule without weight decay and warm-up. For section 6.2 we repeat the step decay on
CIFAR-100. The paper draws figures 1 and 2 only for ResNet-50 on ImageNet; here they are drawn for
every setting.

The small scale trains a network of 384 features on ten generated classes, 2,000 images and 1,000
held out. The step decay is repeated on 20 classes, and on 100 with 384 and with 32 features, that
is, with more and with fewer features than classes.

Section 4.3 is shown in tables and not judged, because untrained networks pass it.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import nan

from matplotlib.axes import Axes

from ncscope.lab.claims import Claim, below, one
from ncscope.lab.experiment import Experiment, Trainings, train_runs
from ncscope.lab.experiments.vci.stability import (
    RANGES,
    departure,
    measure_stability,
    read_sweep,
)
from ncscope.lab.experiments.vci.variability_runs import (
    COLUMNS,
    METRICS,
    RESNET50,
    change,
    claim_parts,
    claim_trend,
    draw_held_out,
    draw_metrics,
    draw_parts,
    draw_spectra,
    find_twin,
    name_setting,
    of_settings,
    over_setting,
    repeat_with_seeds,
    select_first_seed,
    share_off_signal,
    tabulate_spectra,
)
from ncscope.lab.figures import draw_grid
from ncscope.lab.quantities import Run, Runs, geometric_mean, ratio, replace_fields, values
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.histories import logarithmic_values
from ncscope.lab.training.settings import Training
from ncscope.report import panels
from ncscope.report.tables import Summary

RESNET18 = replace_fields(
    RESNET50,
    data="cifar10",
    network="resnet18",
    normalisation="imagenet",
    measured=None,
    batch_size=256,
    learning_rate=0.1,
)
SMALL_RESNET = replace_fields(
    RESNET18,
    data="patterns",
    network="small-resnet-384",
    augmentation="crop",
    normalisation="own",
    epochs=48,
    batch_size=64,
    learning_rate=0.05,
    decay=0.975**1.5,
    warmup_epochs=1,
    every=4,
)

STEP = "step decay"
WAYS = (STEP, "cosine", "cosine, no decay, no warm-up")
TWENTY = "20 classes"  # K/d is 0.5 in the paper's figure 1, and 0.03 with ten classes here
MANY, NARROW = "100 classes", "100 classes, 32 features"


def vary_ways(base: Training) -> dict[str, Training]:
    """Return the paper's three ways to train; the base has the step decay."""
    cosine = replace_fields(base, schedule="cosine")
    plain = replace_fields(cosine, weight_decay=0.0, warmup_epochs=0)
    return dict(zip(WAYS, (base, cosine, plain), strict=True))


PAPER = Trainings(
    runs=repeat_with_seeds(
        vary_ways(RESNET18) | {MANY: replace_fields(RESNET18, data="cifar100")}, seeds=(0, 1, 2)
    )
)

MANY_PATTERNS = replace_fields(SMALL_RESNET, data="patterns-100", augmentation="none")
SMALL = Trainings(  # settings were selected on seeds 0 to 4
    runs=repeat_with_seeds(
        {STEP: SMALL_RESNET, TWENTY: replace_fields(SMALL_RESNET, data="patterns-20")},
        seeds=(5, 6, 7, 8, 9),
    )
    | repeat_with_seeds(
        {
            MANY: MANY_PATTERNS,
            **{name: way for name, way in vary_ways(SMALL_RESNET).items() if name != STEP},
            NARROW: replace_fields(MANY_PATTERNS, network="small-resnet-32"),
        },
        seeds=(5, 6, 7),
    )
)


def list_claims(settings: Trainings) -> Sequence[Claim]:
    """Return the claims of sections 6.2 and 4.1."""
    names = set(map(name_setting, settings.runs))
    ways = partial(claim_trend, where=of_settings(*WAYS))
    claims = [
        ways(
            "fuzziness falls over training, in every setting",
            "fuzziness",
            source="VCI, figure 3",
        ),
        ways("VCI falls over training, in every setting", "vci", source="VCI, figure 3"),
        ways(
            "VCI falls on held-out images too, in every setting",
            "vci",
            source="VCI, figure 6",
            split="test",
        ),
        *(
            ways(
                f"there is a setting in which {METRICS[key]} rises",
                key,
                source="VCI, figure 3",
                rises=True,
                enough=one,
            )
            for key in ("nc1_quotient", "cosine_within")
        ),
        *claim_parts(STEP),
    ]
    if TWENTY in names:
        claims += claim_parts(TWENTY, f", for {TWENTY}")
    if MANY in names:
        claims += list_claims_for_many()
    return claims


def list_claims_for_many() -> list[Claim]:
    """Return the claims of section 6.2: at smaller d/K less is off V_B, and all metrics fall."""
    return [
        *(
            claim_trend(
                f"{title} falls over training, in every network for 100 classes",
                key,
                source="VCI, section 6.2",
                where=of_settings(MANY, NARROW),
            )
            for key, title in METRICS.items()
        ),
        Claim(
            text=(
                "the share of the variance off V_B, over the untrained network's share, is smaller "
                "for 100 classes than for 10"
            ),
            source="ours",
            quantity=over_setting(STEP, gain_of_share),
            region=below(1),
            scale="ratio",
            where=of_settings(MANY),
            tell=tell_shares,
        ),
        *(
            Claim(
                text=f"{METRICS[key]} falls further for 100 classes than for 10",
                source="ours",
                quantity=over_setting(STEP, change(key)),
                region=below(1),
                scale="ratio",
                where=of_settings(MANY),
            )
            for key in ("nc1_quotient", "cosine_within")
        ),
    ]


def gain_of_share(run: Run) -> float:
    """Return the last share of the variance off V_B over the untrained network's share."""
    shares = share_off_signal(run)
    return ratio(shares[-1], shares[0])


def tell_shares(runs: Runs) -> str:
    """Write the last shares off V_B for 100 and for 10 classes, for each seed."""
    pairs = [(share_off_signal(run), share_off_signal(find_twin(run, STEP))) for run in runs]
    last = "; ".join(f"{many[-1]:.3g}, {ten[-1]:.3g}" for many, ten in pairs)
    return f"last shares for 100 and for 10 classes {last or 'not measured'}"


def make_tables(settings: Trainings, runs: Runs) -> list[Summary]:
    """Show section 4.3: properties of the metrics, which an untrained network shares."""
    return [tabulate_spectra(runs), tabulate_stability(runs)]


SWEPT: Mapping[str, str] = {"fuzziness": "fuzziness", "vci": "VCI"}


def tabulate_stability(runs: Runs) -> Summary:
    """Show how much each sweep changes fuzziness and VCI.

    These are no claims on training: an untrained network's metrics behave alike, since its
    Sigma_B has as many zero eigenvalues and its Sigma_T as few.
    """
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


def draw_figures(settings: Trainings, runs: Runs) -> list[Drawing]:
    """Draw figures 1-3, 6 and 8 for the first seed, and two figures that the paper lacks."""
    every = select_first_seed(runs)
    ways = of_settings(*WAYS)(every)
    groups = runs.group(name_setting)
    unstable = [run for name, group in groups.items() if name != NARROW for run in group]
    off = (
        "Share of the variance within classes off V_B, on training images from the untrained "
        "network on; one curve for each seed (VCI section 6.2)."
    )
    swept = (
        "Fuzziness and VCI under a cut of the pseudo-inverses (matrices in single precision) and "
        "under noise on the matrices (double precision): absolute value over the exact value, one "
        "curve for each network; left of the dashed line is the range of the table (VCI section "
        "4.3)."
    )
    sweeps = [partial(draw_sweep, unstable, sweep) for sweep in RANGES]
    return [
        draw_parts(every),
        draw_spectra(every),
        draw_metrics(3, "for three ways to train", ways),
        *draw_held_out(ways),
        Drawing(
            "shares",
            off,
            draw_grid([[partial(draw_shares, groups)]], cell=(4.8, 3.4), legend="beside"),
        ),
        Drawing(
            "stability", swept, draw_grid([sweeps], cell=(4.3, 3.4), legend="first", share_y=True)
        ),
    ]


def draw_shares(groups: Mapping[str, Runs], axes: Axes) -> None:
    """Draw the share of the variance off V_B over training, one colour a setting."""
    for index, (name, runs) in enumerate(groups.items()):
        colour = panels.SERIES[index % len(panels.SERIES)]
        for run in runs:
            epochs = values(run.path(), "epoch") or [nan]
            drawn = share_off_signal(run)
            axes.plot(epochs, drawn, "o-", color=colour, markersize=2.6, label=name)
    axes.set_ylim(0, 1)
    axes.set_xlabel("epoch")
    axes.set_ylabel("share off $V_B$")


def draw_sweep(runs: Sequence[Run], sweep: str, axes: Axes) -> None:
    """Draw both metrics over their exact values against the cut or the noise."""
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
    cost={"paper": "16 GPU-hours (estimated)", "small": "15 minutes on one core"},
    parts=partial(train_runs, extra=measure_stability),
    claims=list_claims,
    figures=draw_figures,
    tables=make_tables,
    columns=COLUMNS,
)
