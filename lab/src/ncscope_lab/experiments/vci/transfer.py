r"""VCI section 6.3, figure 7, tables 1 and 2: four metrics in pretraining against transfer.

Two groups of networks are pretrained: one with softmax temperatures $\tau$ from 0.1 to 1, and one
with $\lambda$ times a penalty added to the loss, with $\lambda$ from 2.5 to 10: the average cosine
similarity within a class over the class's number of images in the batch, averaged over classes.
Logistic regressions are fitted to their frozen features on other data sets.
Transfer is measured by MLOG, the mean log odds of the regressions' accuracies (MLO) minus the log
odds of the pretraining accuracy.

The paper trains ResNet-50 on ImageNet as in ``vci/imagenet``, with one seed, and measures four
metrics on 50,000 training images; here it has three seeds. It computes the penalty on each of four
devices with 256 images; here it is computed on 256 images at a time, so that its effect does not
depend on the number of devices. Probes are on ten data sets. We have not run the paper's scale.

The small scale trains a residual network (8, 32 and 384 channels) on ten classes of generated
patterns, 8,000 images and 3,000 held out, at five values of each setting. They should all reach a
training accuracy of .999 in 20 epochs, which the evidence tells and no claim judges; else the
claims would be about the length of training. Probes are on five sets of other generated patterns,
with 1,000 training and 3,000 held-out images each. A seed draws the images too.

Networks of a group should have the same held-out accuracy in pretraining too, whose log odds MLOG
subtracts: the paper's accuracies differ by 2.5 points. With 2,000 images in 40 epochs all networks
fitted their images, but their held-out accuracy fell from 65 % at temperature 1 to 48 % at 0.1
(seeds 10 to 17). Our reading: at a small temperature the classifier fits the images before features
have been learnt, and from few images nothing is left to learn. On seed 100, with 8,000 images in 10
epochs, held-out accuracies were .842 at 1 and .756 at .1, and training accuracies .97 and .96, as
the rate fell too fast. In 20 epochs held-out accuracies were .884 at 1 and .880 at .3, and training
accuracies 1; at .1 it was .832 after half of the epochs, 5 points less than at 1. So temperatures
begin at .3. These accuracies alone chose the settings, on seeds below 10 and seed 100; verdicts are
on seeds 20 to 27.

Every claim is judged on one value for each seed, a coefficient over the settings of a group: the
networks of a seed share all images, so what the images do to all of them is left out.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic import Field
from torch import Tensor

from ncscope.data.catalogue import TRANSFER_TARGETS, load
from ncscope.data.downstream_sets import prepare_like
from ncscope.data.images import ImageData, Images
from ncscope.data.loaders import make_measurement_loader
from ncscope.models.taps import HEAD_INPUT
from ncscope.report import panels
from ncscope.report.tables import Summary
from ncscope.transfer import (
    choose_probe,
    head_features,
    mean_log_odds,
)
from ncscope.transfer.correlations import correlate_rows
from ncscope.transfer.probes.linear_probe import MEASURES
from ncscope.transfer.ranking import hold_out
from ncscope_lab.claims import Claim, above, below, within
from ncscope_lab.experiment import Experiment, Part, Trainings, repeat_with_seeds, train_each
from ncscope_lab.experiments.vci.published import DOWNSTREAM, REGULARISED, TEMPERATURES
from ncscope_lab.experiments.vci.variability_runs import (
    COLUMNS,
    METRICS,
    RESNET50,
    SMALL_RESNET,
)
from ncscope_lab.figures import draw_grid
from ncscope_lab.intervals import mean_interval
from ncscope_lab.observations import Event, Heartbeat, Observation, Results, Value
from ncscope_lab.quantities import (
    Quantity,
    Run,
    Runs,
    average,
    last,
    quantity,
    replace_fields,
    values,
)
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Bench, bench_events, prepare_bench

TEMPERATURE, PENALTY = "temperature", "cosine penalty"


class Pretrainings(Trainings):
    """Settings of the experiment."""

    downstream: tuple[str, ...] = Field(
        min_length=1, description="Sets to probe on, by their names in the catalogue."
    )


def vary(
    base: Training, temperatures: Sequence[float], penalties: Sequence[float]
) -> dict[str, Training]:
    """Return the base settings at every temperature and every penalty."""
    return {
        **{f"{TEMPERATURE} {x:g}": replace_fields(base, temperature=x) for x in temperatures},
        **{f"{PENALTY} {x:g}": replace_fields(base, within_class_cosine=x) for x in penalties},
    }


# 300 epochs of SGD with Nesterov momentum .9, batches of 1,024, rate .4 times .975 an epoch, weight
# decay 8e-5, warm-up of 10 epochs, AutoAugment. Measured before training and at its end.
PAPER_BASE = replace_fields(RESNET50, every=300, groups=("nc1", "nc4"), cosine_group=256)
PAPER_SETTINGS = vary(
    PAPER_BASE,
    temperatures=list(TEMPERATURES),  # .1, .2, .4, .6, .8 and 1
    penalties=list(REGULARISED),  # 2.5, 3.75, 5, 7.5 and 10, at temperature 1
)
PAPER = Pretrainings(
    runs=repeat_with_seeds(PAPER_SETTINGS, seeds=(0, 1, 2)), downstream=tuple(DOWNSTREAM)
)

# As above, but batches of 64, rate .05 and no augmentation; the rate falls over 20 epochs as the
# paper's over 300. Weight decay, warm-up and clipped gradients are ours: without clipping, networks
# at temperature .1 ended with training accuracies of .12 to .86. The penalty is computed on 32
# images at a time, half a batch (the paper's 256 are a quarter). Measured likewise.
SMALL_BASE = replace_fields(
    SMALL_RESNET,
    data="transfer-source",
    groups=("nc1", "nc4"),
    epochs=20,
    weight_decay=5e-4,
    decay=0.975**15,
    warmup_epochs=2,
    clip=1.0,
    cosine_group=32,
    every=20,
)
SMALL = Pretrainings(
    runs=repeat_with_seeds(
        vary(SMALL_BASE, temperatures=(0.3, 0.4, 0.55, 0.75, 1), penalties=list(REGULARISED)),
        seeds=range(20, 28),
    ),
    downstream=tuple(TRANSFER_TARGETS),
)


def name_group(run: Run) -> str:
    """Return the name of the setting that the run's group varies."""
    return PENALTY if run.settings.within_class_cosine else TEMPERATURE


@quantity("setting")
def value_of_setting(run: Run) -> float:
    """Return the value of the setting that the run's group varies."""
    return float(run.settings.within_class_cosine or run.settings.temperature)


def select_seeds(*groups: str) -> Callable[[Runs], Runs]:
    """Return the function that selects one run of each seed of some groups.

    A `coefficient` of any run is that of all settings with its seed.
    """

    def select(runs: Runs) -> Runs:
        firsts: dict[tuple[str, int], Run] = {}
        for run in runs:
            firsts.setdefault((name_group(run), run.settings.seed), run)
        return Runs(run for (group, _), run in firsts.items() if group in groups)

    return select


@quantity("mean accuracy of the probes")
def probe_accuracy(run: Run) -> float:
    """Return the mean accuracy of the probes on held-out images; NaN without probes."""
    return average(values(select_probes(run), "accuracy"))


def select_probes(run: Run) -> list[Observation]:
    """Return the rows of the probes."""
    return [row for row in run.rows if row.split not in ("train", "test")]


def write_accuracies(runs: Runs) -> str:
    """Write the means over seeds of three accuracies at every setting, in per cent."""
    told = last("accuracy"), last("accuracy", "test"), probe_accuracy
    words = []
    for name, group in runs.group(name_group).items():
        means = [average_seeds(group, accuracy) for accuracy in told]
        for value in means[0]:
            trained, held_out, probes = (100 * each[value] for each in means)
            words.append(f"{name} {value:g}: {trained:.1f}, {held_out:.1f} and {probes:.1f} %")
    kinds = "accuracy in pretraining on training and on held-out images, and of probes"
    return f"{kinds}: {', '.join(words)}"


@quantity("rise of the held-out accuracy in pretraining")
def rise_of_accuracy(run: Run) -> float:
    """Return the held-out accuracy in pretraining at the largest setting less at the smallest.

    The settings are those of the run's group and seed.
    """
    group = run.experiment.group(name_group)[name_group(run)].where(seed=run.settings.seed)
    ordered = sorted(group, key=value_of_setting)
    return last("accuracy", "test")(ordered[-1]) - last("accuracy", "test")(ordered[0])


def log_odds(accuracies: Sequence[float]) -> float:
    """Return the mean log odds; infinite for an accuracy of 0 or 1, NaN if one is missing."""
    return math.nan if any(map(math.isnan, accuracies)) else mean_log_odds(accuracies)


@quantity("MLO")
def mlo(run: Run) -> float:
    """Return the mean log odds of the probes; NaN without probes."""
    return log_odds(values(select_probes(run), "accuracy") or [math.nan])


@quantity("pretraining log odds")
def pretraining_odds(run: Run) -> float:
    """Return the log odds of the held-out accuracy in pretraining."""
    return log_odds([last("accuracy", "test")(run)])


MLOG = mlo - pretraining_odds


def beyond_pretraining(metric: Quantity) -> Quantity:
    r"""Return the quantity of MLO without its share due to the pretraining accuracy.

    The share is $b$ times the pretraining log odds $o$, from the fit $a m + b o + c_s$ to the MLO
    of all runs of the group, with a constant $c_s$ for each seed $s$. MLOG takes $b=1$. All seeds
    share $b$, and intervals over seeds leave its error out.

    Args:
        metric: The metric $m$.
    """

    def compute(run: Run) -> float:
        by_seed = [
            np.array([[each(other) for each in (metric, pretraining_odds, mlo)] for other in group])
            for group in run.experiment.group(name_group)[name_group(run)].group("seed").values()
        ]
        if not np.isfinite(np.concatenate(by_seed)).all():
            return math.nan
        rows = np.concatenate([group - group.mean(0) for group in by_seed])
        coefficients, *_ = np.linalg.lstsq(rows[:, :2], rows[:, 2])
        return mlo(run) - float(coefficients[1]) * pretraining_odds(run)

    return Quantity("MLO beyond the pretraining accuracy", compute)


def coefficient(first: Quantity, second: Quantity) -> Quantity:
    """Return the quantity of Pearson's coefficient of two, over all settings of a group and seed.

    The coefficient is NaN for fewer than two settings, or if a value is not finite.
    """

    def compute(run: Run) -> float:
        group = run.experiment.group(name_group)[name_group(run)].where(seed=run.settings.seed)
        pairs = np.array([[each(other) for other in group] for each in (first, second)])
        if len(group) < 2 or not np.isfinite(pairs).all():
            return math.nan
        return float(correlate_rows(pairs[:1], pairs[1:])[0])

    return Quantity(f"correlation of {first.name} with {second.name}", compute)


# A claim is held if the 95 % interval of the mean coefficient over the seeds (by Fisher's z) lies
# in its region, not held if the interval lies outside, else undecided; of two groups, both must
# hold. A coefficient that is not finite makes the claim undecided. `coefficient` gives all runs of
# a group and seed one value, so one run stands for all. Of five settings, noise exceeds .7 in
# a tenth of the seeds, so the mean over eight counts, not one seed.
STRONG = 0.7  # least correlation that counts as strong; the paper states no number
EQUAL = 0.03  # least difference of accuracies in pretraining that counts; the paper's is .025

# Signs are those of the paper's tables 1 and 2: more variability goes with better transfer over the
# temperatures, which the caption of figure 7 calls a negative relation with collapse.
in_both = partial(
    Claim,
    scale="correlation",
    where=select_seeds(TEMPERATURE, PENALTY),
    groups=name_group,
    unit="groups",
)
CLAIMS = [
    *(
        in_both(
            text=(
                f"{METRICS[key]} rises with MLOG over the temperatures and falls with MLOG over "
                "the penalties: coefficient above 0, and below 0"
            ),
            source="VCI, figure 7",
            quantity=coefficient(last(key), MLOG),
            region={TEMPERATURE: above(0), PENALTY: below(0)},
        )
        for key in ("fuzziness", "nc1_quotient", "cosine_within")
    ),
    in_both(
        text=f"VCI's correlation with MLOG is above {STRONG} in both groups",
        source="VCI, figure 7",
        quantity=coefficient(last("vci"), MLOG),
        region=above(STRONG),
    ),
    *(
        Claim(
            text=f"{title} falls with the {group}: coefficient below -{STRONG}",
            source="VCI, tables 1 and 2",
            quantity=coefficient(value_of_setting, each),
            region=below(-STRONG),
            scale="correlation",
            where=select_seeds(group),
        )
        for group in (TEMPERATURE, PENALTY)
        for title, each in (("MLOG", MLOG), ("VCI", last("vci")))
    ),
    Claim(
        text=f"The cosine distance rises with the {PENALTY}: coefficient above {STRONG}",
        source="VCI, tables 1 and 2",
        quantity=coefficient(value_of_setting, last("cosine_within")),
        region=above(STRONG),
        scale="correlation",
        where=select_seeds(PENALTY),
    ),
    Claim(  # else the pretraining accuracy, which MLOG subtracts, decides the claims on MLOG
        text=(
            "held-out accuracy in pretraining differs by less than "
            f"{100 * EQUAL:g} points between the largest and the smallest setting, in both groups"
        ),
        source="ours",
        quantity=rise_of_accuracy,
        region=within(EQUAL),
        where=select_seeds(TEMPERATURE, PENALTY),
        groups=name_group,
        unit="groups",
        note=write_accuracies,
    ),
    in_both(
        text=(
            "VCI rises with the mean log odds of the probes alone, in both groups: coefficient "
            "above 0"
        ),
        source="ours",
        quantity=coefficient(last("vci"), mlo),
        region=above(0),
    ),
    in_both(
        text=(
            "VCI rises with the mean log odds of the probes at equal pretraining accuracy, in both "
            "groups: coefficient above 0"
        ),
        source="ours",
        quantity=coefficient(last("vci"), beyond_pretraining(last("vci"))),
        region=above(0),
    ),
]


def average_seeds(runs: Runs, measured: Quantity) -> dict[float, float]:
    """Average a quantity over the seeds, by the value of the varied setting, in ascending order."""
    groups = runs.group(lambda run: f"{value_of_setting(run):g}")
    means = {
        float(value): average([measured(run) for run in runs]) for value, runs in groups.items()
    }
    return dict(sorted(means.items()))


def correlate_within(runs: Runs, first: Quantity, second: Quantity) -> str:
    """Write the coefficient that claims are judged by: the mean over seeds with its interval.

    Args:
        runs: Runs of one group; of one seed, the coefficient has no interval.
        first: The one quantity.
        second: The other.
    """
    chosen = select_seeds(name_group(runs[0]))(runs)
    each = [coefficient(first, second)(run) for run in chosen]
    interval = mean_interval(each, scale="correlation")
    if interval is None:
        return f"{average(each):.3f}"
    return f"{interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def read_paper_tables() -> Runs:
    """Return the networks of the paper's tables 1 and 2 as runs, one for each setting.

    The tables print the cosine similarity; the distance is 1 minus the similarity.
    """
    runs, rows = repeat_with_seeds(PAPER_SETTINGS, seeds=[0]), []
    printed = [*TEMPERATURES.values(), *REGULARISED.values()]
    for name, row in zip(runs, printed, strict=True):
        metrics = {
            "fuzziness": row.fuzziness,
            "nc1_quotient": row.nc1_quotient,
            "cosine_within": 1 - row.cosine_similarity,
            "vci": row.vci,
        }
        rows.append(Observation(0, 300, "train", part=name, values=metrics))
        accuracies = zip(("test", *DOWNSTREAM), (row.accuracy, *row.accuracies), strict=True)
        rows += [
            Observation(0, 300, split, part=name, values={"accuracy": percent / 100})
            for split, percent in accuracies
        ]
    return Runs.of(runs, Results(rows))


def make_tables(settings: Pretrainings, runs: Runs) -> list[Summary]:
    """Make tables 1 and 2 of the paper, and a table of the coefficients of its figure 7."""
    probes = {name: (last("accuracy", name), "{:.2%}") for name in settings.downstream}
    pretraining = {
        **{title: (last(key), "{:.4g}") for key, title in METRICS.items()},
        "training accuracy": (last("accuracy"), "{:.4g}"),
        "accuracy": (last("accuracy", "test"), "{:.4g}"),
        "MLOG": (MLOG, "{:.4g}"),
    }
    columns = runs.group(name_group)
    theirs = read_paper_tables().group(name_group)
    columns |= {f"{name}, the paper's": theirs[name] for name in columns}
    coefficients = {
        title: [correlate_within(group, last(key), MLOG) for group in columns.values()]
        for key, title in METRICS.items()
    }
    return [
        tabulate(
            "VCI table 1: accuracy of linear probes on held-out images, and the mean of their log "
            "odds; means over seeds",
            runs,
            {**probes, "MLO": (mlo, "{:.3f}")},
        ),
        tabulate(
            "VCI table 2: the four metrics and the accuracy on training images of the pretraining "
            "set, accuracy on its held-out images, and the mean log odds gain; means over seeds",
            runs,
            pretraining,
        ),
        Summary(
            "VCI figure 7: Pearson's coefficient of each metric with MLOG over the settings of a "
            "group, mean over seeds by Fisher's z with its 95 % interval; the paper's coefficients "
            "are computed from its tables, of one network for each setting",
            list(columns),
            coefficients,
        ),
    ]


def tabulate(caption: str, runs: Runs, columns: Mapping[str, tuple[Quantity, str]]) -> Summary:
    """Write means over seeds of quantities in their formats, one line a setting."""
    lines: dict[str, list[str]] = {}
    for name, group in runs.group(name_group).items():
        for measured, form in columns.values():
            for value, mean in average_seeds(group, measured).items():
                lines.setdefault(f"{name} {value:g}", []).append(form.format(mean))
    return Summary(caption, list(columns), lines)


SYMBOLS = {TEMPERATURE: r"$\tau$", PENALTY: r"$\lambda$"}


def draw_figures(settings: Pretrainings, runs: Runs) -> list[Drawing]:
    """Draw figure 7, and figure 7 from the paper's tables."""
    caption = (
        "transfer against metrics on training images of the pretraining set. Rows are MLOG and the "
        "mean log odds of the probes alone: over temperatures of the softmax, and over weights of "
        "the cosine penalty. Beside the points in rows of MLOG: the setting; in rows of the probes "
        "alone: the held-out accuracy in pretraining, whose log odds MLOG subtracts. Above each "
        "panel: Pearson's coefficient"
    )
    return [
        Drawing(
            "fig-7",
            f"VCI figure 7: {caption} within the seeds, with its 95 % interval. Large: means over "
            "seeds; thin lines: networks of one seed.",
            draw_correlations(runs),
        ),
        Drawing(
            "fig-7-printed",
            f"VCI figure 7 from the numbers of the paper's tables 1 and 2: {caption}.",
            draw_correlations(read_paper_tables()),
        ),
    ]


def draw_correlations(runs: Runs) -> Figure:
    """Draw MLOG, and the log odds of the probes alone, against each metric: two rows a group."""
    rows = [
        [partial(draw_correlation, group, key, transfer) for key in METRICS]
        for group in runs.group(name_group).values()
        for transfer in (MLOG, mlo)
    ]
    return draw_grid(rows, cell=(2.2, 2.1), share_y="row")


def draw_correlation(runs: Runs, key: str, transfer: Quantity, axes: Axes) -> None:
    """Draw transfer against a metric, with the coefficient within the seeds."""
    group, metric = name_group(runs[0]), last(key)
    colour = panels.ACCENT if group == TEMPERATURE else panels.SECOND
    x, y = average_seeds(runs, metric), average_seeds(runs, transfer)
    held_out = average_seeds(runs, last("accuracy", "test"))
    if len(runs) > len(x):
        for seed in runs.group("seed").values():
            lines = [average_seeds(seed, each).values() for each in (metric, transfer)]
            axes.plot(*map(list, lines), "o-", color=colour, markersize=2, linewidth=0.7, alpha=0.4)
    for index, value in enumerate(x):
        at = x[value], y[value]
        face = mpl.colors.to_rgba(colour, 0.25 + 0.75 * index / max(1, len(x) - 1))
        axes.plot(*at, "o", color=colour, markerfacecolor=face, markersize=7)
        if all(map(math.isfinite, at)):
            axes.annotate(
                f"{value:g}" if transfer is MLOG else f"{100 * held_out[value]:.0f} %",
                at,
                xytext=((5, 4), (-5, -9))[index % 2],
                ha=("left", "right")[index % 2],
                textcoords="offset points",
                fontsize=7.5,
                color="black",
            )
    # Above the panel, where it covers no point.
    words = correlate_within(runs, metric, transfer).replace("-", "−")
    axes.set_title(f"{METRICS[key]}\n$r$ = {words}", fontsize=8)
    axes.margins(0.16)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    if key == next(iter(METRICS)):
        axes.set_ylabel(
            f"{'MLOG' if transfer is MLOG else 'probes alone'}, {SYMBOLS[group]} varied"
        )


def pretrain_and_probe(settings: Pretrainings) -> list[Part]:
    """Return a part for each network: pretraining, then probes, which count as epochs."""
    sets = settings.downstream
    return train_each(settings.runs, partial(transfer_events, sets), more=len(sets))


def transfer_events(
    sets: Sequence[str], training: Training, resources: Resources
) -> Iterator[Event]:
    """Pretrain, then probe on every downstream set.

    The downstream sets are located, or downloaded, before the training begins.

    Yields:
        The events of `bench_events`; then for each set an observation, with the set's name as its
        split, and a heartbeat.

    Raises:
        InputError: As for `bench_events`, or if a set is missing.
    """
    bench = prepare_bench(training, resources)
    with resources.fabric.rank_zero_first(local=True):  # one process a machine downloads
        downstream = [
            prepare_like(
                load(name, resources.data, download=resources.download, seed=training.seed),
                bench.data,
            )
            for name in sets
        ]
    yield from bench_events(bench, resources)
    for data in downstream:
        step, epoch = bench.learner.step, bench.learner.epoch
        yield Observation(step, epoch, data.name, HEAD_INPUT, values=probe(bench, data))
        yield Heartbeat()


def probe(bench: Bench, data: ImageData) -> dict[str, Value]:
    """Fit a logistic regression to a set's features and return its held-out accuracy.

    The penalty is chosen on the set's validation images or, without these, on a stratified fifth of
    the training images; the probe is then fitted to both. Every process uses all images, so all
    compute the same result.

    Args:
        bench: Pretraining run that has ended.
        data: Data set, preprocessed for the network.
    """
    train, labels = gather_features(bench, data.train)
    if data.validation is None:
        aside = hold_out(labels, 0)  # the seed of the split
        validation = train[aside], labels[aside]
        train, labels = train[~aside], labels[~aside]
    else:
        validation = gather_features(bench, data.validation)
    chosen = choose_probe(train, labels, *validation, measure=data.measure)
    test, known = gather_features(bench, data.test)
    accuracy = MEASURES[data.measure](chosen.probe.predict(test), known)
    return {"accuracy": accuracy, "measure": data.measure, "strength": chosen.strength}


def gather_features(bench: Bench, images: Images) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Gather the classifier's inputs and the labels on the device of the run."""
    size, device = bench.settings.optimisation.batch_size, bench.fabric.device
    loader = make_measurement_loader(images, size, workers=bench.workers)
    features, labels = head_features(bench.learner.evaluated, loader)
    return features.to(device), labels.to(device)


EXPERIMENT = Experiment(
    id="vci/transfer",
    title="Collapse in pretraining, and transfer",
    question=(
        "Networks are pretrained at several temperatures, and with several weights of a penalty on "
        "the cosine similarity within classes, and then probed on other data sets. The paper says "
        "that only its index, VCI, correlates with transfer in both groups."
    ),
    source="VCI section 6.3, figure 7, tables 1-2",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "5,100 GPU-hours (estimated)", "small": "55 minutes on one core"},
    parts=pretrain_and_probe,
    claims=CLAIMS,
    figures=draw_figures,
    tables=make_tables,
    columns=(*COLUMNS, "measure", "strength"),
)
