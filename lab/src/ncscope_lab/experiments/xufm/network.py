"""XUFM figures 5 and 10: collapse block by block while a residual network trains.

Section 6 and appendix G, and section 4.1 on networks along their depth. The networks are compared
with the two-level features models of ``ncscope run extended``.

The paper trains ResNet-18 on MNIST and CIFAR-10, measured after each of its four blocks, under MSE
without a bias and under cross-entropy with a bias. The optimiser is SGD with learning rate 0.05,
divided by 10 every 40 epochs, and weight decay 5e-4. The paper states neither momentum nor batch
size nor number of epochs; here they are 0.9, 128 and 120. We have not run the paper's scale.

The small scale trains a network of three blocks on scikit-learn's digits (1,437 images), in batches
of 64, from seeds 6 to 13, without augmentation; the training set is measured every 20 epochs.
Weight decay produces the frame, and its effect grows with the rate times the decay, summed over the
steps: 0.52 for the paper's MNIST. With the paper's decay it is 0.24 in the 1,200 epochs of the
small scale, and zero error comes in the first of them. Settings were chosen on seed 0. Before, on
seeds 3 to 5, a tenth of the steps with 20 times the decay reached zero error only when the rate
fell, and little collapse was left for the epochs after it.

A level is a block; the last block's level is the classifier's input, its map averaged over space.
The map itself is recorded, but it is no level of its own.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field
from torch import Tensor, nn

from ncscope.data.loaders import make_measurement_loader
from ncscope.measurement.batches import find_module_device
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.evaluate import evaluate
from ncscope.metrics.sources import Sources
from ncscope.metrics.variability import nc1, nc1_quotient
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.forward import forward
from ncscope.models.taps import HEAD_INPUT
from ncscope.models.tracing import Trace, trace
from ncscope.report import panels
from ncscope.report.labels import find_label
from ncscope.stats.merging import merge_across_processes
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import Statistic
from ncscope.stats.processes import ALL
from ncscope.stats.statistics import ClassStatistics, finish
from ncscope_lab.claims import Claim, below
from ncscope_lab.experiment import Experiment, Part, Trainings, train_runs
from ncscope_lab.experiments.models.descents import choose_steps
from ncscope_lab.experiments.models.extended import (
    LABELS,
    ExtendedConfig,
    descend_levels,
)
from ncscope_lab.figures import (
    collect_points,
    draw_band,
    draw_forest,
    draw_grid,
    draw_reference,
    logarithmic_values,
    make_depth_colours,
    scale_epochs,
)
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import (
    Path,
    Run,
    Runs,
    decades,
    ends,
    geometric_mean,
    last,
    last_over_first,
    ratio,
    values,
    zero_error_row,
)
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.surrogates.extended import Activation
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Bench

LOSSES: Mapping[str, str] = {"mse": "MSE, no bias", "cross-entropy": "CE, bias"}
MODEL = ExtendedConfig()
"""Sizes, decays and descent of the two-level model."""


class XUFMNetwork(Trainings):
    """Settings of the experiment."""

    blocks: tuple[str, ...] = Field(description="The network's blocks, by name or pattern.")
    steps: int = Field(MODEL.steps, ge=1, description="Steps of descent of the two-level models.")


def both_losses(data: str, seeds: Sequence[int], **fields: Any) -> dict[str, Training]:
    """Return settings for MSE without a bias and cross-entropy with a bias, for each seed."""
    return {
        f"{data}, {label}, seed {seed}": Training(
            data=data,
            loss=loss,
            bias=loss != "mse",
            seed=seed,
            layers=(),
            groups=("nc1", "nc2", "nc3", "nc4"),
            **fields,
        )
        for loss, label in LOSSES.items()
        for seed in seeds
    }


SCHEDULE = Optimisation(
    epochs=120,
    batch_size=128,
    learning_rate=0.05,
    weight_decay=5e-4,
    schedule="steps",
    milestones=(1 / 3, 2 / 3),
)
PAPER = XUFMNetwork(
    runs={
        name: run
        for data in ("mnist", "cifar10")
        for name, run in both_losses(
            data, (0, 1, 2), network="resnet18", optimisation=SCHEDULE, every=5
        ).items()
    },
    blocks=("layer?",),
)
SMALL = XUFMNetwork(
    runs=both_losses(
        "digits",
        range(6, 14),  # settings and claims were chosen on other seeds
        network="small-resnet",
        optimisation=SCHEDULE.model_copy(update={"batch_size": 64, "epochs": 1200}),
        every=20,
    ),
    blocks=("stages.?",),
)

FRAMES: Mapping[str, str] = {"mse": "nc2_of", "cross-entropy": "nc2_etf"}
"""Key of the distance to the minimisers' frame, by loss: orthogonal without a bias, or simplex."""
DUALITIES: Mapping[str, str] = {"mse": "nc3_alignment", "cross-entropy": "nc3_self_duality"}
"""Key of NC3 by loss, with uncentred class means for the orthogonal frame, else centred ones."""
SURROGATES: Mapping[Activation, str] = {
    "linear": "extended UFM, linear",
    "relu": "extended UFM, ReLU",
}
"""Parts of the two-level model, by activation."""
RISE = 5.0
"""Factor of the loss in training mode by which a network is worse, and not only its statistics."""
TENTH = 0.1  # largest share of NC1 at zero training error that further collapse leaves
HALF = 0.5
"""Largest share of its start that a distance keeps when training builds a structure, and largest
share of the deepest level's decades by which the distance falls at a level that does not take part.
The paper states no number."""


def list_claims(settings: XUFMNetwork) -> list[Claim]:
    """Return section 4.1 on networks, and section 6 on their similarity to the models.

    A seed gives one value. A claim holds if the 95 % interval of the mean over the seeds lies in
    the region (of a ratio, the geometric mean); one on levels or blocks must hold of each of them.
    """
    runs = list(settings.runs.values())
    networks = dict.fromkeys((run.data, run.loss) for run in runs)
    data_sets = dict.fromkeys(run.data for run in runs)
    return [
        *(claim for data, loss in networks for claim in list_network_claims(data, loss)),
        *(claim for data in data_sets for claim in list_loss_claims(data)),
    ]


def list_network_claims(data: str, loss: str) -> list[Claim]:
    """Return the claims on one network and loss; the deepest features enter the classifier."""
    before, frame, duality = f"{data}, {LOSSES[loss]}: ", FRAMES[loss], DUALITIES[loss]
    network = {"data": data, "loss": loss}

    def split(pair: Callable[[Sequence[str]], Sequence[tuple[str, str]]]) -> Callable[[Runs], Runs]:
        return lambda runs: split_pairs(runs.where(**network), pair)

    def tell_zero_error(runs: Runs) -> str:
        rows = [zero_error_row(run.path()) for run in runs]
        reached = ["never" if row is None else f"epoch {row.epoch}" for row in rows]
        return f"NC1 at the end over NC1 at zero error, reached at {', '.join(reached)}"

    return [
        # Without it there is no terminal phase to judge.
        Claim(
            text=f"{before}zero training error stays: at every measurement past it no training "
            "image is misclassified",
            source="ours",
            where=network,
            quantity=count_returns,
            region=below(1),
            rule="all",
            tell=tell_returns,
        ),
        Claim(
            text=f"{before}past zero training error NC1 of the deepest features falls to less than "
            "a tenth",
            source="XUFM, section 1 and figures 5 and 10",
            where=network,
            quantity=fall_past_zero_error,
            region=below(TENTH),
            scale="ratio",
            tell=tell_zero_error,
        ),
        Claim(
            text=f"{before}at the end every level has a lower NC1 than the level before",
            source="XUFM, section 4.1 (2)",
            where=split(lambda levels: list(pairwise(levels))),
            groups=lambda pair: " to ".join(dict.fromkeys(row.layer for row in pair.rows)),
            unit="pairs of levels",
            quantity=partial(deep_over_shallow, "nc1"),
            region=below(1),
            scale="ratio",
        ),
        Claim(
            text=f"{before}at the end the deepest features are nearer to their frame ({frame}) "
            "than the features of any block before the last",
            source="XUFM, section 4.1 (1)",
            where=split(pair_with_deepest),
            groups=name_shallow,
            unit="blocks",
            quantity=partial(deep_over_shallow, frame),
            region=below(1),
            scale="ratio",
        ),
        Claim(
            text=f"{before}training at least halves the distance of the deepest features to their "
            "frame",
            source="XUFM, section 4.1 (1)",
            where=network,
            quantity=last_over_first(frame),
            region=below(HALF),
            scale="ratio",
            tell=lambda runs: f"{frame} at the end over the start",
        ),
        # In decades, so that a network which does not move, or moves at all levels, fails.
        Claim(
            text=f"{before}only the deepest features approach their frame: in every block before "
            "the last, training reduces the distance to the frame by less than half as many "
            "decades as in the deepest",
            source="XUFM, section 4.1 (1) and section 6",
            where=split(pair_with_deepest),
            groups=name_shallow,
            unit="blocks",
            quantity=partial(share_of_decades, frame),
            region=below(HALF),
            note=partial(tell_models, "nc2_of"),
        ),
        Claim(
            text=f"{before}training at least halves the distance of the classifier from the class "
            "means",
            source="XUFM, figures 5 and 10, NC3",
            where=network,
            quantity=last_over_first(duality),
            region=below(HALF),
            scale="ratio",
            tell=lambda runs: f"{duality} at the end over the start",
        ),
        # In shares of decades, since NC1 falls by more decades in a noiseless descent.
        Claim(
            text=f"{before}the fall of NC1 at the first level over the fall at the last, both in "
            "decades, is nearer to that of the ReLU model than to that of the linear model",
            source="XUFM, section 6",
            where=split(lambda levels: pair_with_deepest(levels)[:1]),
            quantity=first_share,
            # Half way between both models: the nearer one decides.
            region=lambda runs: below(sum(shares_of_models("nc1", runs).values()) / 2),
            note=partial(tell_models, "nc1"),
        ),
    ]


def list_loss_claims(data: str) -> list[Claim]:
    """Return the claims on the frame that each loss leads to."""
    source = "XUFM, section 4.1, remark on the choice of loss function"
    orthogonal, simplex = last_over_first("nc2_of"), last_over_first("nc2_etf")
    return [
        Claim(
            text=f"{data}: of the distance between the deepest class means and an orthogonal "
            "frame, training leaves a smaller share under MSE than under cross-entropy",
            source=source,
            where={"data": data, "loss": "mse"},
            quantity=orthogonal / orthogonal.of_partner(loss="cross-entropy", bias=True),
            region=below(1),
            scale="ratio",
            tell=lambda runs: "share kept under MSE over that under cross-entropy",
        ),
        Claim(
            text=f"{data}: under cross-entropy training leaves a smaller share of the distance "
            "between the deepest class means and a simplex than of their distance to an "
            "orthogonal frame",
            source=source,
            where={"data": data, "loss": "cross-entropy"},
            quantity=simplex / orthogonal,
            region=below(1),
            scale="ratio",
            tell=lambda runs: (
                "share kept of the distance to the simplex over that to the orthogonal frame"
            ),
        ),
    ]


def fall_past_zero_error(run: Run) -> float:
    """Return the last NC1 of the deepest features over that at zero training error."""
    reached = zero_error_row(run.path())
    then = math.nan if reached is None else values([reached], "nc1")[0]
    return ratio(last("nc1")(run), then)


def list_returns(run: Run) -> list[tuple[Observation, float]]:
    """List the rows past zero training error with errors, each with its rise of the loss.

    The rise is the mean loss of the epoch, in training mode, over that of the last measured epoch
    whose row has no error.
    """
    path = run.path()
    first = zero_error_row(path)
    returns: list[tuple[Observation, float]] = []
    good = first
    for row in path:
        if first is None or good is None or row.epoch <= first.epoch:
            continue
        if float(row["accuracy"]) < 1:
            returns.append((row, ratio(values([row], "loss")[0], values([good], "loss")[0])))
        else:
            good = row
    return returns


def count_returns(run: Run) -> float:
    """Count the measurements past zero training error with errors; NaN without zero error."""
    return math.nan if zero_error_row(run.path()) is None else len(list_returns(run))


def tell_returns(runs: Runs) -> str:
    """Write in how many networks training error comes back, and whether the loss rises with it.

    Accuracy is measured with the running statistics of the batch norms, the loss without: where
    the loss rises too, the network is worse and not only its statistics.
    """
    found = [list_returns(run) for run in runs]
    back = [each for returns in found for each in returns]
    said = f"training error comes back in {sum(map(bool, found))} of {len(runs)} networks"
    if not back:
        return said
    epochs = [row.epoch for row, _ in back]
    risen = sum(rise > RISE for _, rise in back)
    return (
        f"{said}, at epochs {min(epochs)} to {max(epochs)}, accuracy "
        f"{min(float(row['accuracy']) for row, _ in back):.3f} at worst; in training mode the loss "
        f"rises there more than {RISE:g} times at {risen} of {len(back)} measurements"
    )


def find_levels(run: Run) -> dict[str, Path]:
    """Return rows over training by level: the blocks in order, then the classifier's input."""
    blocks = {int(row["block"]): row.layer for row in run.rows if "block" in row}
    paths = {f"block {at}": run.path(layer=layer) for at, layer in sorted(blocks.items())}
    return paths | {"classifier's input": run.path(layer=HEAD_INPUT)}


def name_levels(run: Run) -> list[str]:
    """Name the levels to compare, without the map of the last block."""
    names = list(find_levels(run))
    return [name for name in names if name not in names[-2:-1]]


def pair_with_deepest(levels: Sequence[str]) -> list[tuple[str, str]]:
    """Pair each level but the deepest with the deepest."""
    return [(level, levels[-1]) for level in levels[:-1]]


def split_pairs(runs: Runs, pair: Callable[[Sequence[str]], Sequence[tuple[str, str]]]) -> Runs:
    """Return a run for each pair of levels of each run, whose layers have the levels' names."""
    pairs = []
    for run in runs:
        levels = find_levels(run)
        for both in pair(name_levels(run)):
            rows = [
                Observation(row.step, row.epoch, row.split, level, row.part, row.values)
                for level in both
                for row in levels[level]
            ]
            name = f"{run.name}, {' to '.join(both)}"
            pairs.append(Run(name, run.settings, rows, [], run.experiment))
    return Runs(pairs)


def name_shallow(pair: Run) -> str:
    """Name the level that is less deep."""
    return pair.rows[0].layer


def deep_over_shallow(key: str, pair: Run) -> float:
    """Return the last value at the deeper level over that at the other."""
    return ratio(last(key)(pair), last(key, layer=name_shallow(pair))(pair))


def share_of_decades(key: str, pair: Run) -> float:
    """Divide the decades by which a metric falls at a level by those of a deeper level.

    Returns:
        The ratio; NaN if the metric does not fall at the deeper level.
    """
    paths = pair.path(layer=name_shallow(pair)), pair.path()
    shallow, deep = (decades(*ends(path, key)) for path in paths)
    return ratio(shallow, deep) if deep > 0 else math.nan


def shares_of_models(key: str, runs: Runs) -> dict[Activation, float]:
    """Return the share of decades of both two-level models; NaN if not measured."""
    models = {name: runs.find(part) for name, part in SURROGATES.items()}
    return {
        name: share_of_decades(key, run) if run.rows else math.nan for name, run in models.items()
    }


def first_share(pair: Run) -> float:
    """Return the share of decades of NC1; NaN if the models do not differ as the paper says."""
    models = shares_of_models("nc1", pair.experiment)
    return share_of_decades("nc1", pair) if models["relu"] < models["linear"] else math.nan


def tell_models(key: str, runs: Runs) -> str:
    """Write the share of decades of both two-level models."""
    told = ", ".join(
        f"{LABELS[name]} {value:.2g}" if math.isfinite(value) else f"{LABELS[name]} not measured"
        for name, value in shares_of_models(key, runs).items()
    )
    return f"two-level models: {told}"


def draw_figures(settings: XUFMNetwork, runs: Runs) -> list[Drawing]:
    """Draw a figure for each data set, and the networks beside the models."""
    drawings: list[Drawing] = []
    trained = Runs(run for run in runs if run.name in settings.runs)
    for data, own in trained.group("data").items():
        count = len(own.group("seed"))
        caption = (
            f"XUFM figures 5 and 10, on {data}, geometric means over {count} seeds (of training "
            "error the mean) and their range: training error, NC1 and the two NC2 on the training "
            "set by block, light to dark, and NC3 of the classifier's input with means that are "
            "centred under cross-entropy only. The vertical lines are the first measured epochs of "
            "zero training error; where error comes back past it, a network has left zero error. "
            "Dotted lines are the borders of claims on the classifier's input: a tenth of NC1 at "
            "zero error, and half of the distance to the loss's frame, and of NC3, before training."
        )
        name = ("fig-5", "fig-10")[len(drawings)] if len(drawings) < 2 else f"blocks-{data}"
        drawings.append(Drawing(name, caption, draw_levels(own)))
    caption = (
        "Networks beside the two-level models: decades by which a metric falls at a level over "
        "those at the deepest level. Points are seeds; diamonds with bars are their means with "
        "95 % intervals. Above: NC1 of the first level; a network is more like the ReLU model if "
        "it lies left of the middle between the models. Below: distance of each block before the "
        "last to the frame of the loss, orthogonal under MSE and in the models, a simplex under "
        f"cross-entropy; the claim is a share below {HALF:g}."
    )
    return [*drawings, Drawing("models", caption, draw_models(trained, runs))]


def draw_models(trained: Runs, runs: Runs) -> Figure:
    """Draw the shares of decades of NC1 and of NC2 of networks, and those of the models."""

    def group_shares(pairs: Runs, key: Callable[[str], str]) -> dict[str, list[float]]:
        def name_pair(pair: Run) -> str:
            return f"{pair.settings.data}, {LOSSES[pair.settings.loss]}, {name_shallow(pair)}"

        return {
            name: [share_of_decades(key(pair.settings.loss), pair) for pair in own]
            for name, own in pairs.group(name_pair).items()
        }

    firsts = split_pairs(trained, lambda levels: pair_with_deepest(levels)[:1])
    nc1 = group_shares(firsts, lambda loss: "nc1")
    nc2 = group_shares(split_pairs(trained, pair_with_deepest), FRAMES.__getitem__)

    def draw_shares(key: str, groups: Mapping[str, Sequence[float]], axes: Axes) -> None:
        models = shares_of_models(key, runs)
        draw_forest(axes, groups)
        lines = {
            "linear model": (models["linear"], panels.SECOND, panels.DASHED),
            "ReLU model": (models["relu"], panels.SERIES[2], "-."),
            "middle": (sum(models.values()) / 2 if key == "nc1" else math.nan, panels.SOFT, "-"),
            "half": (HALF if key != "nc1" else math.nan, panels.SOFT, ":"),
        }
        for label, (value, colour, style) in lines.items():
            if math.isfinite(value):
                axes.axvline(value, color=colour, linestyle=style, linewidth=1.3, label=label)
        axes.set_title("NC1" if key == "nc1" else "NC2: distance to the frame")
        axes.set_xlabel("decades of fall over those at the deepest level")

    rows = [[partial(draw_shares, "nc1", nc1)], [partial(draw_shares, "nc2_of", nc2)]]
    return draw_grid(rows, cell=(7.0, 2.2), legend="below")


def draw_levels(runs: Runs) -> Figure:
    """Draw a column of five panels for the runs under each loss."""
    titles = {
        "accuracy": "training error",
        "nc1": "NC1",
        "nc2_of": "distance to\northogonal frame",
        "nc2_etf": "distance to\nsimplex",
        "nc3": "NC3",
    }
    losses = runs.group("loss")
    return draw_grid(
        [
            [partial(draw_panel, own, key, title) for own in losses.values()]
            for key, title in titles.items()
        ],
        cell=(3.7, 2.1),
        legend="below",
        share_x="col",
        share_y="row",
    )


def draw_panel(runs: Runs, key: str, title: str, axes: Axes) -> None:
    """Draw a metric by level over the epochs of all seeds; accuracy and NC3 of the deepest only."""
    loss, levels = runs[0].settings.loss, list(find_levels(runs[0]))
    metric = DUALITIES[loss] if key == "nc3" else key
    for level, colour in zip(levels, make_depth_colours(len(levels)), strict=True):
        if level != levels[-1] and key in ("accuracy", "nc3"):
            continue
        points = collect_points(
            [row for run in runs for row in find_levels(run).get(level, [])], "epoch", metric
        )
        if key == "accuracy":
            errors = {epoch: [1 - x for x in own] for epoch, own in points.items()}
            draw_band(axes, errors, level, colour)
        elif points:
            draw_band(axes, points, level, colour, average=geometric_mean)
    reached = {row.epoch for run in runs if (row := zero_error_row(run.path(layer=HEAD_INPUT)))}
    for epoch in sorted(reached):
        axes.axvline(epoch, color=panels.SECOND, linewidth=0.9, linestyle=panels.DASHED)
    border = find_border(runs, key, metric)
    if math.isfinite(border):
        draw_reference(axes, border, "border of the claim")
    if find_label(metric).log_scale or key == "nc3":
        logarithmic_values(axes)
    if key == "accuracy":
        axes.set_yscale("symlog", linthresh=1e-3)  # one image in a thousand is seen beside zero
        axes.set_ylim(bottom=0)
        axes.set_title(LOSSES[loss])
    axes.set_ylabel(title)
    # Zero error can come before the second measurement: no epoch before it takes much room.
    epochs = [row.epoch for run in runs for row in run.rows if row.epoch > 0]
    scale_epochs(axes, min(epochs, default=1))


def find_border(runs: Runs, key: str, metric: str) -> float:
    """Return the value below which the mean of the seeds must end for a claim; NaN without one."""
    if key == "nc1":
        rows = [zero_error_row(run.path()) for run in runs]
        return TENTH * geometric_mean(values(list(filter(None, rows)), metric))
    if key in ("nc3", FRAMES[runs[0].settings.loss]):
        return HALF * geometric_mean([ends(run.path(), metric)[0] for run in runs])
    return math.nan


def list_parts(settings: XUFMNetwork) -> list[Part]:
    """Return a part for each training run, and one for each two-level model."""
    record = choose_steps(settings.steps, MODEL.every)
    return [
        *train_runs(settings, partial(measure_blocks, blocks=settings.blocks)),
        *(
            descend_levels(part, MODEL.model(activation), MODEL.rate, record, MODEL.seed)
            for activation, part in SURROGATES.items()
        ),
    ]


def measure_blocks(bench: Bench, end: EpochEnd, blocks: Sequence[str]) -> list[Observation]:
    """Measure NC1 and NC2 of every block's output on the training set, one row per block.

    Args:
        bench: The run.
        end: State of training at the end of the epoch.
        blocks: Names or patterns of blocks. Feature maps are flattened; the first block of
            ResNet-18 on CIFAR-10 has 65,536 features, too many for a scatter matrix.
    """
    fabric, settings, images = bench.fabric, bench.settings, bench.data.train
    if settings.measured is not None:
        images = images.draw_balanced(settings.measured)
    size = settings.optimisation.batch_size
    loader = make_measurement_loader(images, size, fabric.global_rank, fabric.world_size)
    model, classes = bench.learner.evaluated, bench.data.num_classes
    metrics = between_class_metrics(model, loader, blocks, classes)
    return [
        Observation(end.step, end.epoch, layer=layer, values={"block": index, **own})
        for index, (layer, own) in enumerate(metrics.items(), start=1)
    ]


Bases = Mapping[str, Float[Tensor, "_d _r"]]


def between_class_metrics(
    model: nn.Module, loader: Iterable[Any], layers: Sequence[str], num_classes: int
) -> dict[str, dict[str, float]]:
    r"""Compute NC1 and NC2 of layers of any width, by two passes over the loader.

    $\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]$ depends on the features only through their
    projection onto the span of the class means, and the metrics of NC2 depend only on the means.
    The first pass computes the means. The second pass measures the features' coordinates in an
    orthonormal basis Q of the span: $\Sigma_B^\dagger=Q(Q^\top\Sigma_BQ)^\dagger Q^\top$.

    Args:
        model: Classifier; it is measured in evaluation mode, and its mode is restored.
        loader: Loader of ``(inputs, labels)`` that yields the same samples in both passes.
        layers: Names or patterns of layers; feature maps are flattened.
        num_classes: Number of classes K.

    Returns:
        Metrics by layer, in forward order: ``nc1``, ``nc1_quotient`` and the class-mean metrics of
        the group ``nc2``. Cost: two forward passes, each with the first batch run twice, and
        $O(ndK)$ operations and $O(dK)$ memory per layer.

    Raises:
        InputError: If a layer or the head is not found, or fewer than two classes are present.
    """
    with ALL.fail_together(), evaluation_mode(model):
        wide = _statistics(model, loader, layers, num_classes, None)
        bases = {name: torch.linalg.qr(stats.means.mT).Q for name, stats in wide.items()}
        narrow = _statistics(model, loader, layers, num_classes, bases)
    return {
        name: {
            "nc1": float(nc1(narrow[name], discriminants(narrow[name]))),
            "nc1_quotient": float(nc1_quotient(stats)),
            **evaluate(Sources(narrow[name]), ("nc2",))[0],
        }
        for name, stats in wide.items()
    }


def _statistics(
    model: nn.Module,
    loader: Iterable[Any],
    layers: Sequence[str],
    num_classes: int,
    bases: Bases | None,
) -> dict[str, ClassStatistics]:
    """Gather statistics of the features or, with scatter, of their coordinates in the bases."""
    moments: dict[str, ClassMoments] = {}
    kinds: tuple[Statistic, ...] = () if bases is None else ("scatter",)
    device = find_module_device(model)
    traced: Trace | None = None
    with ALL.fail_together():
        for inputs, labels in loader:
            images = inputs.to(device)
            traced = traced or trace(model, images, layers)
            with traced.taps(model) as taps:
                forward(model, images)
            for name, batch in taps.features.items():
                if name == HEAD_INPUT:
                    continue
                seen = batch if bases is None else batch.to(bases[name].dtype) @ bases[name]
                if name not in moments:
                    size = num_classes, seen.shape[1]
                    moments[name] = ClassMoments(*size, statistics=kinds, device=seen.device)
                moments[name].update(seen, labels)
    form = {"layers": list(moments), "dims": [each.dim for each in moments.values()]}
    shared = ALL.agree_on(form if moments else None)
    if shared is None:
        raise ALL.no_samples_error()
    if not moments:
        for name, dim in zip(shared["layers"], shared["dims"], strict=True):
            moments[name] = ClassMoments(num_classes, dim, statistics=kinds, device=device)
    return {name: finish(merge_across_processes(each)) for name, each in moments.items()}


EXPERIMENT = Experiment(
    id="xufm/network",
    title="Collapse block by block, and in two levels of free features",
    question=(
        "A residual network is measured after every block. The paper says that variability falls "
        "along the depth, and that only the deepest class means become a frame, as in the ReLU "
        "model of two levels and unlike the linear one."
    ),
    source="XUFM section 6, figures 5 and 10; section 4.1",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "9 GPU-hours (estimated)", "small": "3 hours on one core"},
    parts=list_parts,
    claims=list_claims,
    figures=draw_figures,
    columns=("epoch", "accuracy", "nc1", "nc2_of", "nc2_etf", "nc3_alignment"),
)
