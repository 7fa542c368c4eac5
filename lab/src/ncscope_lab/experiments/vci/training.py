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

Section 4.3 is shown in tables and not judged, because untrained networks pass it.
"""

from functools import partial
from math import nan

from matplotlib.axes import Axes

from ncscope.report import panels
from ncscope.report.tables import Summary
from ncscope_lab.claims import Claim, below, one
from ncscope_lab.experiment import Experiment, Trainings, repeat_with_seeds, train_runs
from ncscope_lab.experiments.vci.stability import (
    draw_stability,
    measure_stability,
    tabulate_stability,
)
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
from ncscope_lab.figures import collect_points, draw_band, draw_grid
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import Quantity, Run, Runs, last_over_first, ratio, replace_fields
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.training.settings import Training

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
    on, off = (float(row.get(f"within_{part}_signal", nan)) for part in ("in", "off"))
    return ratio(off, on + off)


def gain_of_share(run: Run) -> float:
    """Return the last share of the variance off V_B over the untrained network's share."""
    shares = [share_off_signal(row) for row in run.path()] or [nan]
    return ratio(shares[-1], shares[0])


SHARE = Quantity("share off V_B at the end over the untrained network's", gain_of_share)

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
    *claim_parts(STEP, TEN),
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
    # Untrained networks differ too, so every network is compared with itself untrained.
    Claim(
        text=(
            "the share of the variance off V_B, over the untrained network's share, is smaller "
            "for 100 classes than for fewer"
        ),
        source="ours",
        quantity=SHARE / in_setting(STEP, SHARE),
        region=below(1),
        scale="ratio",
        where=of_settings(MANY),
    ),
    *(
        Claim(
            text=(
                f"{METRICS[key]}, over the untrained network's, ends lower for 100 classes than "
                "for fewer"
            ),
            source="ours",
            quantity=last_over_first(key) / in_setting(STEP, last_over_first(key)),
            region=below(1),
            scale="ratio",
            where=of_settings(MANY),
        )
        for key in ("nc1_quotient", "cosine_within")
    ),
]


def make_tables(settings: Trainings, runs: Runs) -> list[Summary]:
    """Show section 4.3: properties of the metrics, which an untrained network shares."""
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
    cost={"paper": "16 GPU-hours (estimated)", "small": "45 minutes on one core"},
    parts=partial(train_runs, extra=measure_stability),
    claims=CLAIMS,
    figures=draw_figures,
    tables=make_tables,
    columns=COLUMNS,
)
