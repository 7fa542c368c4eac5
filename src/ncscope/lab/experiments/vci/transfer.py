r"""VCI section 6.3, figure 7, tables 1 and 2: four metrics in pretraining against transfer.

Two groups of networks are pretrained: one with softmax temperatures $\tau$ from 0.1 to 1, and one
with $\lambda$ times the average cosine similarity within classes added to the loss, with $\lambda$
from 2.5 to 10. Logistic regressions are fitted to their frozen features on other data sets.
Transfer is measured by MLOG, the mean log odds of the regressions' accuracies minus the log odds of
the pretraining accuracy.

The paper trains ResNet-50 on ImageNet as in ``vci/imagenet``, with one seed, and measures four
metrics on 50,000 training images; here it has three seeds. It computes the penalty on each of four
devices with 256 images; here it is computed on 256 images at a time, so that its effect does not
depend on the number of devices. Probes are on ten data sets.

The small scale trains a network of 384 features on ten generated classes, 2,000 images and 3,000
held out. Probes are on five generated sets of other classes, with 3,000 held-out images each.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

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
from ncscope.lab.claims import Claim, Region, above, below
from ncscope.lab.experiment import Experiment, Part, Trainings
from ncscope.lab.experiments.vci.published import DOWNSTREAM, REGULARISED, TEMPERATURES
from ncscope.lab.experiments.vci.variability_runs import (
    COLUMNS,
    METRICS,
    RESNET50,
    at_end,
    capitalise,
    repeat_with_seeds,
)
from ncscope.lab.figures import draw_grid
from ncscope.lab.observations import Event, Heartbeat, Observation, Results, Value
from ncscope.lab.quantities import AnyQuantity, Run, Runs, average, last, replace_fields
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Bench, bench_events, prepare_bench
from ncscope.models.taps import HEAD_INPUT
from ncscope.report import panels
from ncscope.report.tables import Summary
from ncscope.transfer import (
    Correlation,
    choose_probe,
    correlations,
    head_features,
    mean_log_odds,
    mean_log_odds_gain,
)
from ncscope.transfer.correlations import correlate_rows
from ncscope.transfer.probes.linear_probe import MEASURES
from ncscope.transfer.ranking import hold_out

TEMPERATURE, PENALTY = "temperature", "cosine penalty"


class Pretrainings(Trainings):
    """Settings of the experiment."""

    downstream: tuple[str, ...] = Field(
        min_length=1, description="Sets to probe on, by their names in the catalogue."
    )


def vary(base: Training) -> dict[str, Training]:
    """Return the base settings at every temperature and every penalty of the paper."""
    return {
        **{f"{TEMPERATURE} {x:g}": replace_fields(base, temperature=x) for x in TEMPERATURES},
        **{f"{PENALTY} {x:g}": replace_fields(base, within_class_cosine=x) for x in REGULARISED},
    }


PAPER_BASE = replace_fields(RESNET50, every=300, groups=("nc1", "nc4"), cosine_group=256)
PAPER = Pretrainings(
    runs=repeat_with_seeds(vary(PAPER_BASE), seeds=(0, 1, 2)), downstream=tuple(DOWNSTREAM)
)
SMALL = Pretrainings(
    runs=repeat_with_seeds(
        vary(
            replace_fields(
                PAPER_BASE,
                data="transfer-source",
                network="small-resnet-384",
                augmentation="none",
                epochs=20,
                batch_size=64,
                learning_rate=0.01,
                weight_decay=5e-4,
                decay=0.975**15,
                warmup_epochs=5,
                cosine_group=32,
                every=20,
                measured=None,
            )
        ),
        seeds=(0, 1, 2),
    ),
    downstream=tuple(TRANSFER_TARGETS),
)

STRONG = 0.7  # least correlation that counts as strong; the paper states no number


def list_claims(settings: Pretrainings) -> Sequence[Claim]:
    """Return the claims of section 6.3, each judged on a value for each seed."""
    gain = log_odds_gain(settings.downstream)
    signs = {TEMPERATURE: above(0), PENALTY: below(0)}
    return [
        *(
            claim_in_both(
                f"{capitalise(METRICS[key])} rises with MLOG over the temperatures and falls with "
                "MLOG over the penalties",
                at_end(key),
                gain,
                source="VCI, figure 7",
                region=signs,
            )
            for key in ("fuzziness", "nc1_quotient", "cosine_within")
        ),
        claim_in_both(
            f"VCI's correlation with MLOG is above {STRONG} in both groups",
            at_end("vci"),
            gain,
            source="VCI, figure 7",
            region=above(STRONG),
        ),
        *(
            claim_with_setting(
                f"{title} falls with the {group}: coefficient below -{STRONG}",
                quantity,
                group,
                region=below(-STRONG),
            )
            for group in (TEMPERATURE, PENALTY)
            for title, quantity in (("MLOG", gain), ("VCI", at_end("vci")))
        ),
        claim_with_setting(
            f"The cosine distance rises with the {PENALTY}: coefficient above {STRONG}",
            at_end("cosine_within"),
            PENALTY,
            region=above(STRONG),
        ),
        # MLOG also depends on the pretraining accuracy, whose log odds it subtracts.
        claim_in_both(
            "VCI rises with the mean log odds of the probes alone, in both groups",
            at_end("vci"),
            log_odds(settings.downstream),
            source="ours",
            region=above(0),
        ),
    ]


def claim_in_both(
    text: str,
    quantity: AnyQuantity,
    transfer: AnyQuantity,
    *,
    source: str,
    region: Region | Mapping[str, Region],
) -> Claim:
    """Make a claim on the correlation of a metric with transfer over the settings of each group."""

    def tell(runs: Runs) -> str:
        of_means = correlate_means(find_group(runs), quantity, transfer)
        return f"of the means over seeds {format_correlation(of_means)}"

    return Claim(
        text=text,
        source=source,
        quantity=coefficient(quantity, transfer),
        region=region,
        scale="correlation",
        where=select_seeds,
        groups=name_group,
        unit="groups",
        tell=tell,
    )


def claim_with_setting(text: str, quantity: AnyQuantity, group: str, *, region: Region) -> Claim:
    """Make a claim on the correlation of a quantity with the setting that a group varies."""

    def tell(runs: Runs) -> str:
        means = average_seeds(find_group(runs), quantity)
        listed = ", ".join(f"{mean:.4g} at {value:g}" for value, mean in means.items())
        return f"means over seeds: {listed or 'no such run'}"

    return Claim(
        text=text,
        source="VCI, tables 1 and 2",
        quantity=coefficient(value_of_setting, quantity),
        region=region,
        scale="correlation",
        where=lambda runs: select_seeds(runs).group(name_group).get(group, Runs()),
        tell=tell,
    )


def name_group(run: Run) -> str:
    """Return the name of the setting that the run's group varies."""
    return PENALTY if run.settings.within_class_cosine else TEMPERATURE


def value_of_setting(run: Run) -> float:
    """Return the value of the setting that the run's group varies."""
    return float(run.settings.within_class_cosine or run.settings.temperature)


def select_seeds(runs: Runs) -> Runs:
    """Select one run of each group and seed, for a quantity of all its settings."""
    firsts: dict[tuple[str, int], Run] = {}
    for run in runs:
        firsts.setdefault((name_group(run), run.settings.seed), run)
    return Runs(firsts.values())


def find_group(runs: Runs) -> Runs:
    """Return all runs of the group, of which some are given; none if none is given."""
    names = set(map(name_group, runs))
    return Runs(run for run in (runs[0].experiment if runs else ()) if name_group(run) in names)


def coefficient(first: AnyQuantity, second: AnyQuantity) -> AnyQuantity:
    """Return the quantity of Pearson's coefficient of two, over all settings of a group and seed.

    The coefficient is NaN for fewer than two settings, or if a value is not finite.
    """

    def quantity(run: Run) -> float:
        group = find_group(Runs([run])).where(seed=run.settings.seed)
        pairs = np.array([[each(other) for other in group] for each in (first, second)])
        if len(group) < 2 or not np.isfinite(pairs).all():
            return math.nan
        return float(correlate_rows(pairs[:1], pairs[1:])[0])

    return quantity


def correlate_means(runs: Runs, first: AnyQuantity, second: AnyQuantity) -> Correlation:
    """Compute Pearson's coefficient of the means over seeds, with its bootstrap interval.

    The coefficient is NaN for fewer than two settings, or if a mean is not finite.
    """
    means = [list(average_seeds(runs, each).values()) for each in (first, second)]
    if len(means[0]) < 2 or not all(map(math.isfinite, [*means[0], *means[1]])):
        return Correlation(math.nan, math.nan, math.nan)
    return correlations(*means)["pearson"]


def format_correlation(correlation: Correlation) -> str:
    """Write a coefficient with its interval."""
    if math.isnan(correlation.value):
        return "nan"
    return f"{correlation.value:.2f} [{correlation.low:.2f}, {correlation.high:.2f}]"


def average_seeds(runs: Runs, quantity: AnyQuantity) -> dict[float, float]:
    """Average a quantity over the seeds, by the value of the varied setting, in ascending order."""
    by_value: dict[float, list[float]] = {}
    for run in runs:
        by_value.setdefault(value_of_setting(run), []).append(quantity(run))
    return {value: average(by_value[value]) for value in sorted(by_value)}


def probe_accuracies(run: Run, sets: Sequence[str]) -> list[float]:
    """Return the accuracies of the linear probes."""
    return [last("accuracy", name)(run) for name in sets]


def log_odds(sets: Sequence[str]) -> AnyQuantity:
    """Return the quantity MLO, the mean log odds of the probes; NaN if one is missing."""

    def quantity(run: Run) -> float:
        accuracies = probe_accuracies(run, sets)
        return math.nan if any(map(math.isnan, accuracies)) else mean_log_odds(accuracies)

    return quantity


def log_odds_gain(sets: Sequence[str]) -> AnyQuantity:
    """Return the quantity MLOG: MLO minus the log odds of the pretraining accuracy."""

    def quantity(run: Run) -> float:
        accuracies, pretraining = probe_accuracies(run, sets), at_end("accuracy", "test")(run)
        missing = any(map(math.isnan, [*accuracies, pretraining]))
        return math.nan if missing else mean_log_odds_gain(accuracies, pretraining)

    return quantity


def odds_of(quantity: AnyQuantity) -> AnyQuantity:
    """Return the quantity of the log odds of an accuracy; NaN if the accuracy is NaN."""

    def odds(run: Run) -> float:
        share = quantity(run)
        return math.nan if math.isnan(share) else mean_log_odds([share])

    return odds


def read_paper_tables() -> Runs:
    """Return the networks of the paper's tables 1 and 2 as runs, one for each setting.

    The tables print the cosine similarity; the distance is 1 minus the similarity.
    """
    runs, rows = repeat_with_seeds(vary(PAPER_BASE), seeds=[0]), []
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
    sets = settings.downstream
    four = "{:.4g}".format
    first: dict[str, Column] = {name: (last("accuracy", name), format_percent) for name in sets}
    first["MLO"] = log_odds(sets), "{:.3f}".format
    second: dict[str, Column] = {title: (at_end(key), four) for key, title in METRICS.items()}
    second["accuracy"] = at_end("accuracy", "test"), four
    second["MLOG"] = log_odds_gain(sets), four
    ours, theirs = runs.group(name_group), read_paper_tables().group(name_group)
    third = {
        **{name: (group, log_odds_gain(sets)) for name, group in ours.items()},
        **{f"{name}, the paper's": (theirs[name], log_odds_gain(DOWNSTREAM)) for name in ours},
    }
    coefficients = {
        title: [
            format_correlation(correlate_means(group, at_end(key), gain))
            for group, gain in third.values()
        ]
        for key, title in METRICS.items()
    }
    return [
        Summary(
            "VCI table 1: accuracy of linear probes on held-out images, in per cent, and the mean "
            "of their log odds; means over seeds",
            list(first),
            tabulate(runs, first),
        ),
        Summary(
            "VCI table 2: the four metrics on training images of the pretraining set, accuracy on "
            "its held-out images, and the mean log odds gain; means over seeds",
            list(second),
            tabulate(runs, second),
        ),
        Summary(
            "VCI figure 7: Pearson's coefficient of each metric with MLOG over the settings of a "
            "group, with the 95 % bootstrap interval over the settings; the paper's coefficients "
            "are computed from its tables",
            list(third),
            coefficients,
        ),
    ]


Column = tuple[AnyQuantity, Callable[[float], str]]
"""AnyQuantity of a column, and the function that writes it."""


def tabulate(runs: Runs, columns: Mapping[str, Column]) -> dict[str, list[str]]:
    """Write the means over seeds of some quantities, one line a setting."""
    lines: dict[str, list[str]] = {}
    for name, group in runs.group(name_group).items():
        for quantity, write in columns.values():
            for value, mean in average_seeds(group, quantity).items():
                lines.setdefault(f"{name} {value:g}", []).append(write(mean))
    return lines


def format_percent(share: float) -> str:
    """Write a share in per cent."""
    return f"{100 * share:.2f}"


SYMBOLS = {TEMPERATURE: r"$\tau$", PENALTY: r"$\lambda$"}
COLOURS = {TEMPERATURE: panels.ACCENT, PENALTY: panels.SECOND}


def draw_figures(settings: Pretrainings, runs: Runs) -> list[Drawing]:
    """Draw figure 7, figure 7 from the paper's tables, and table 1 as a figure."""
    axes = "metrics on training images of the pretraining set against the mean log odds gain"
    return [
        Drawing(
            "fig-7",
            f"VCI figure 7: {axes}; above, the temperature of the softmax varies, below, the "
            "weight of the cosine penalty. Large: means over seeds, with Pearson's coefficient; "
            "small: seeds.",
            draw_correlations(runs, log_odds_gain(settings.downstream)),
        ),
        Drawing(
            "fig-7-printed",
            f"VCI figure 7 from the numbers of the paper's tables 1 and 2: {axes}.",
            draw_correlations(read_paper_tables(), log_odds_gain(DOWNSTREAM)),
        ),
        Drawing(
            "table-1",
            "VCI table 1: log odds of the linear probes by downstream set, and of the pretraining "
            "accuracy, means over seeds. MLOG is the mean of the former minus the latter.",
            draw_grid(
                [
                    [
                        partial(draw_odds, group, settings.downstream)
                        for group in runs.group(name_group).values()
                    ]
                ],
                cell=(4.5, 3.7),
                legend="beside",
                share_y=True,
            ),
        ),
    ]


def draw_correlations(runs: Runs, gain: AnyQuantity) -> Figure:
    """Draw MLOG against each metric: one row a group, one column a metric."""
    rows = [
        [partial(draw_correlation, group, key, gain) for key in METRICS]
        for group in runs.group(name_group).values()
    ]
    return draw_grid(rows, cell=(3, 2.9), share_y="row")


def draw_correlation(runs: Runs, key: str, gain: AnyQuantity, axes: Axes) -> None:
    """Draw MLOG against a metric, with Pearson's coefficient of the means over seeds."""
    group, metric = name_group(runs[0]), at_end(key)
    colour = COLOURS[group]
    x, y = average_seeds(runs, metric), average_seeds(runs, gain)
    if len(runs) > len(x):
        seeds = [(metric(run), gain(run)) for run in runs]
        axes.plot(*zip(*seeds, strict=True), "o", color=colour, markersize=3, alpha=0.35)
    for index, value in enumerate(x):
        at = x[value], y[value]
        face = mpl.colors.to_rgba(colour, 0.25 + 0.75 * index / max(1, len(x) - 1))
        axes.plot(*at, "o", color=colour, markerfacecolor=face, markersize=7)
        if all(map(math.isfinite, at)):
            axes.annotate(
                f"{value:g}",
                at,
                xytext=((5, 4), (-5, -9))[index % 2],
                ha=("left", "right")[index % 2],
                textcoords="offset points",
                fontsize=7.5,
                color=panels.SOFT,
            )
    pearson = correlate_means(runs, metric, gain).value
    axes.plot([], [], " ", label=f"Pearson {pearson:.3f}".replace("-", "−"))
    axes.legend(loc="upper right", handlelength=0, handletextpad=0, borderaxespad=0.1)
    axes.margins(0.16)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_title(capitalise(METRICS[key]))
    if key == next(iter(METRICS)):
        axes.set_ylabel(f"MLOG, {SYMBOLS[group]} varied")


def draw_odds(runs: Runs, sets: Sequence[str], axes: Axes) -> None:
    """Draw the log odds of each probe, and of the pretraining dashed, where they are finite."""
    group = name_group(runs[0])
    styles: dict[str, dict[str, Any]] = {
        name: {"color": panels.SERIES[index % 5], "marker": "oDs^vPX<>p"[index % 10]}
        for index, name in enumerate(sets)
    }
    styles["pretraining"] = {"color": "black", "linestyle": panels.DASHED}
    for name, style in styles.items():
        accuracy = at_end("accuracy", "test") if name == "pretraining" else last("accuracy", name)
        means = average_seeds(runs, odds_of(accuracy))
        drawn = [mean if math.isfinite(mean) else math.nan for mean in means.values()]
        axes.plot(list(means), drawn, label=name, markersize=4, **style)
    axes.set_title(f"{capitalise(group)} {SYMBOLS[group]}")
    axes.set_xlabel(SYMBOLS[group])
    if group == TEMPERATURE:
        axes.set_ylabel("log odds")


def pretrain_and_probe(settings: Pretrainings) -> list[Part]:
    """Return a part for each network: pretraining, then probes, which count as epochs."""
    return [
        Part(
            name,
            training.optimisation.epochs + len(settings.downstream),
            partial(transfer_events, settings.downstream, training),
            trains=True,
        )
        for name, training in settings.runs.items()
    ]


def transfer_events(
    sets: Sequence[str], training: Training, resources: Resources
) -> Iterator[Event]:
    """Pretrain, then probe on every downstream set.

    The downstream sets are located, or downloaded, before the training begins.

    Args:
        sets: Names of the downstream sets.
        training: The pretraining.
        resources: Resources of the run.

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
    the training images. Every process uses all images, so all compute the same result.

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
        "the cosine similarity within classes, and then probed on other data sets. VCI says that "
        "only its index correlates with transfer in both groups."
    ),
    source="VCI section 6.3, figure 7, tables 1-2",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "5,100 GPU-hours (estimated)", "small": "20 minutes on one core"},
    parts=pretrain_and_probe,
    claims=list_claims,
    figures=draw_figures,
    tables=make_tables,
    columns=(*COLUMNS, "measure", "strength"),
)
