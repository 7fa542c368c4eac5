r"""INFO section 5.4, figure 6: MIR and HDR between a dense network's features and a pruned one's.

The smallest weights of a trained network are set to zero, across all convolutions and linear layers
together, and stay zero while the network is fine-tuned. Before and after fine-tuning, MIR and HDR
are measured between its features of the held-out images and those of the dense network. The MIR of
features with themselves, $2-H(G\odot G)/H(G)$, is 1 only if their directions are equal, opposite or
orthogonal; the figure shows it as a line.

The paper trains WRN-28-2 on CIFAR-10 and WRN-28-8 on CIFAR-100, as in `info/training`. Apart from
90 %, it states neither the sparsities nor the fine-tuning; here these are 0 to 90 % and 100 epochs
at a tenth of the rate. We have not run the paper's scale. The small scale trains a wide residual
network of 256 features on 2,000 warped digits, 1,000 held out: 30 epochs of Nesterov momentum 0.9,
batches of 64, weight decay 5e-4, crops, rate 0.1 along a cosine to 0; then as many epochs of
fine-tuning from rate 0.03. Seeds are 10 to 17.

The chance baseline is the network before its training, pruned to the same sparsity. A claim judges
the share of the way from this baseline to the dense network itself, seed by seed.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.utils import prune

from ncscope.data.loaders import make_measurement_loader
from ncscope.measurement.evaluation import estimate_by_batch
from ncscope.metrics.information import pair_entropies
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.forward import features_and_logits
from ncscope.report import panels
from ncscope_lab.claims import Claim, above
from ncscope_lab.experiment import Experiment, Part, train_each
from ncscope_lab.experiments.info.information_runs import (
    BY_BATCH,
    LINES,
    PAPER_NETWORKS,
    add_classes,
    claim_on_accuracy_and_ratios,
    count_seeds,
    draw_chance,
    draw_collapse,
    draw_metric,
    drop_metrics_of_means,
    name_runs,
    paper_training,
    small_training,
)
from ncscope_lab.figures import draw_grid, draw_reference
from ncscope_lab.observations import Event, Heartbeat, Observation, Value
from ncscope_lab.quantities import Quantity, Run, Runs, average, quantity, ratio
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.resources import Resources
from ncscope_lab.runs.settings import Config
from ncscope_lab.training.optimisation import Optimisation, learner
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import (
    INFORMATION_BATCH,
    Bench,
    bench_events,
    measure_images,
    prepare_bench,
)

PRUNED, TUNED, UNTRAINED = "pruned", "fine-tuned", "untrained"


class InfoPruning(Config):
    """Settings of the experiment."""

    runs: dict[str, Training] = Field(description="Training runs of the dense networks, by name.")
    sparsities: tuple[float, ...] = Field(description="Shares of the weights to remove.")
    tuning: Optimisation = Field(description="Fine-tuning of pruned networks; without an average.")

    @model_validator(mode="after")
    def _averages_nothing(self) -> "InfoPruning":
        if self.tuning.average:  # torch cannot copy a network with masked weights
            msg = "tuning without an average"
            raise ValueError(msg)
        return self


PAPER = InfoPruning(
    runs=name_runs(paper_training(data, seed) for data in PAPER_NETWORKS for seed in (0, 1, 2)),
    sparsities=tuple(tenth / 10 for tenth in range(10)),
    tuning=Optimisation(
        epochs=100,
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.003,
        weight_decay=5e-4,
        schedule="cosine-7/16",
    ),
)
SMALL = InfoPruning(
    runs=name_runs(
        # Of 256 features, so that a tenth of the weights is not five directions.
        small_training("warped-digits", epochs=30, seed=seed, network="small-wrn-256")
        for seed in range(10, 18)  # settings and borders were chosen on seeds 0 to 5
    ),
    sparsities=(0.0, 0.3, 0.6, 0.8, 0.9),
    tuning=Optimisation(
        epochs=30,
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.03,
        weight_decay=5e-4,
        schedule="cosine",
    ),
)

# The paper states no borders.
HIGH = 0.9  # least share of the way from chance to the dense network that counts as hardly changed
RESTORED = 0.5  # least share of what pruning changed that counts as restored


def value_at(run: Run, stage: str, sparsity: float, key: str) -> float:
    """Return a value of the network at a stage and a sparsity; NaN if not measured."""
    rows = (row for row in run.rows if (row.get("stage"), row.get("sparsity")) == (stage, sparsity))
    return float(next((row.get(key, math.nan) for row in rows), math.nan))


def share_kept(key: str, stage: str, sparsity: float) -> Quantity:
    """Return the share of a value that the pruned network keeps.

    The share is 1 at the value of the dense network beside itself, and 0 at the value of the
    network before its training, pruned to the same sparsity: the chance baseline.
    """

    @quantity(f"{stage} at {sparsity:g}:")
    def share(run: Run) -> float:
        dense = value_at(run, PRUNED, 0.0, key)
        chance = value_at(run, UNTRAINED, sparsity, key)
        return ratio(value_at(run, stage, sparsity, key) - chance, dense - chance)

    return share


def least_share(key: str, sparsities: Sequence[float]) -> Quantity:
    """Return the least share kept after fine-tuning, over all sparsities."""
    shares = [share_kept(key, TUNED, sparsity) for sparsity in sparsities]
    return Quantity(
        "least share of what is kept",
        lambda run: float(np.min([share(run) for share in shares])),
        shares,
    )


def share_beyond_half_way(key: str, sparsity: float) -> Quantity:
    """Return the share kept after fine-tuning, minus that which just restores."""
    before, after = (share_kept(key, stage, sparsity) for stage in (PRUNED, TUNED))
    return Quantity(
        "share beyond half way",
        lambda run: after(run) - (before(run) + RESTORED * (1 - before(run))),
        (before, after),
    )


def list_claims(settings: InfoPruning) -> Sequence[Claim]:
    """Return the claims of section 5.4: what pruned networks keep, what fine-tuning restores."""
    most = max(settings.sparsities)
    # A seed gives one value, a share; the claim holds of a data set if the 95 % interval of the
    # mean over the seeds lies in the region. Ratios are judged over batches of 64; the exact ratio
    # is told beside, uncounted.
    claim = partial(
        claim_on_accuracy_and_ratios,
        ratios={f"dense_{key}": f"{key.upper()} with the dense features" for key in ("mir", "hdr")},
        source="INFO, figure 6",
        per="data",
    )
    accuracy, mir, hdr = claim(
        f"fine-tuning at sparsity {most:g} makes up for more than {RESTORED} of what pruning "
        "changed: what it regains, less that share of what was lost, is above 0, by {}",
        partial(share_beyond_half_way, sparsity=most),
        region=above(0),
    )
    # By batch, pruning takes nothing from MIR that could be regained, so the claim could not be
    # held: MIR is judged on its exact values, and that by batch is told beside, uncounted.
    exact = mir.uncounted["exact values"]
    mir = replace(
        exact,
        text=mir.text.replace(BY_BATCH, "(all images at once)"),
        uncounted={"batches of 64": replace(mir, uncounted={})},
    )
    return [
        *claim(
            f"after fine-tuning, pruned networks of every sparsity have gone more than {HIGH} of "
            "the way from an untrained network of the same sparsity to the dense one, by {}",
            partial(least_share, sparsities=settings.sparsities),
            region=above(HIGH),
        ),
        accuracy,
        mir,
        hdr,
    ]


def draw_figures(settings: InfoPruning, runs: Runs) -> list[Drawing]:
    """Draw figure 6, with a column for each data set."""
    caption = (
        "INFO figure 6: accuracy, and MIR and HDR between the features of the pruned and of the "
        f"dense network, on held-out images. {LINES.format(count_seeds(runs))} The network before "
        "training, pruned alike, is the chance baseline. Dash-dotted lines are values of the dense "
        "network, in MIR and HDR with itself, by batch; that of HDR is 0. Crosses: the border of "
        f"the claims on fine-tuned networks, {HIGH:g} of the way from the baseline to the dense "
        "network. Dotted: 1 over the number of classes, and MIR at collapse to a simplex."
    )
    sets = runs.group("data")
    grid = [
        [partial(draw_panel, key, f"{title}, {data}", own) for data, own in sets.items()]
        for key, title in TITLES.items()
    ]
    cell = (7.4 / max(1, len(sets)), 2.0)
    return [Drawing("fig-6", caption, draw_grid(grid, cell=cell, legend="below", share_x=True))]


TITLES = {
    "accuracy": "Accuracy",
    "dense_mir": "MIR with the dense",
    "dense_hdr": "HDR with the dense",
}
STYLES = {
    UNTRAINED: (panels.SERIES[2], "^"),
    PRUNED: (panels.SECOND, "s"),
    TUNED: (panels.ACCENT, "o"),
}
"""Colour and marker of each stage."""


def draw_panel(key: str, title: str, runs: Runs, axes: Axes) -> None:
    """Draw a metric against the sparsity, at every stage, with the border of the claims."""
    for stage, (colour, marker) in STYLES.items():
        rows = [row for run in runs for row in run.rows if row.get("stage") == stage]
        draw_metric(axes, rows, "sparsity", key, stage, colour, marker)
    judged = key if key == "accuracy" else f"{key}_batch"

    def mean_of(stage: str, sparsity: float) -> float:
        return average([value_at(run, stage, sparsity, judged) for run in runs if run.rows])

    dense = mean_of(PRUNED, 0.0)
    draw_reference(axes, dense, "dense network", "-.")
    measured = {float(row.get("sparsity", math.nan)) for run in runs for row in run.rows}
    sparsities = sorted(filter(math.isfinite, measured))
    border = [HIGH * dense + (1 - HIGH) * mean_of(UNTRAINED, at) for at in sparsities]
    axes.plot(sparsities, border, "x", color=panels.SOFT, markersize=5,
              label=f"{HIGH:g} of the way to the dense")  # fmt: skip
    if key == "accuracy":
        draw_chance(axes, runs, "1 / classes, or MIR at collapse")
    if key == "dense_mir":
        draw_collapse(axes, runs, "1 / classes, or MIR at collapse")
    axes.set_xticks(sparsities)
    axes.set_title(title)


def train_and_prune(settings: InfoPruning) -> list[Part]:
    """Return a part for each dense network with its pruned copies at every sparsity."""
    more = len(settings.sparsities) * settings.tuning.epochs
    return train_each(settings.runs, partial(_train, settings), more)


def _train(settings: InfoPruning, training: Training, resources: Resources) -> Iterator[Event]:
    """Yield the dense network's training, then three observations for every sparsity."""

    def inside(name: str) -> Resources:
        """Return the resources with a checkpoint folder of its own."""
        folder = resources.checkpoints and resources.checkpoints / name
        return replace(resources, checkpoints=folder)

    def measure(stage: str, sparsity: float, bench: Bench) -> Iterator[Event]:
        return add_classes(bench, [compare_networks(bench, features, sparsity, stage)])

    bench = prepare_bench(training, resources)
    untrained = copy.deepcopy(bench.learner.evaluated)
    yield from add_classes(bench, bench_events(bench, inside("dense")))
    dense = bench.learner.evaluated
    features = collect_features(bench, dense)
    for sparsity in settings.sparsities:
        chance = make_sparse_bench(bench, untrained, sparsity, settings.tuning)
        yield from measure(UNTRAINED, sparsity, chance)
        sparse = make_sparse_bench(bench, dense, sparsity, settings.tuning)
        yield from measure(PRUNED, sparsity, sparse)
        tuning = bench_events(sparse, inside(f"sparsity {sparsity:g}"))
        yield from (event for event in tuning if isinstance(event, Heartbeat))
        yield from measure(TUNED, sparsity, sparse)


def make_sparse_bench(
    bench: Bench, network: nn.Module, sparsity: float, tuning: Optimisation
) -> Bench:
    """Prepare the fine-tuning of a network after pruning, without measurements on the way."""
    settings = bench.settings.model_copy(
        update={"optimisation": tuning, "every": tuning.epochs, "groups": ("nc4",)}
    )
    sparse = prune_network(network, sparsity).to(memory_format=torch.channels_last)
    return replace(bench, settings=settings, learner=learner(sparse, tuning))


def compare_networks(
    bench: Bench, dense: Float[Tensor, "n d"], sparsity: float, stage: str
) -> Observation:
    """Measure a pruned network on held-out images, alone and against the dense one's features."""
    network = bench.learner.evaluated
    values: dict[str, Value] = {
        "sparsity": sparsity,
        "zeros": measure_sparsity(network),
        "stage": stage,
    }
    settings = bench.settings.model_copy(update={"groups": ("nc4", "information")})
    last = measure_images(replace(bench, settings=settings), network, bench.data.test).record.last
    values |= drop_metrics_of_means(last.metrics)
    values |= compare_features(collect_features(bench, network), dense)
    return Observation(bench.learner.step, bench.learner.epoch, "pruned", last.layer, values=values)


def compare_features(
    first: Float[Tensor, "n d"], second: Float[Tensor, "n d2"]
) -> dict[str, float]:
    """Compute MIR and HDR between two sets of features of the same samples, exactly and by batch.

    Args:
        first: First features, one sample per row.
        second: Second features of the same samples.
    """
    whole = pair_entropies(first, second)
    numbers = torch.arange(len(first))
    parts = estimate_by_batch(first, numbers, second, INFORMATION_BATCH)
    exact = {"mir": whole.mir, "hdr": whole.hdr}
    return {f"dense_{key}": value for key, value in (exact | parts).items()}


def collect_features(bench: Bench, network: nn.Module) -> Float[Tensor, "n d"]:
    """Collect the classifier's inputs of all held-out images on the CPU, in every process.

    Args:
        bench: The run that provides the data.
        network: Network of the run, or one made from it.
    """
    size, device = bench.settings.optimisation.batch_size, bench.fabric.device
    loader = make_measurement_loader(bench.data.test, size, workers=bench.workers)
    with evaluation_mode(network):
        batches = [features_and_logits(network, images.to(device))[0].cpu() for images, _ in loader]
    return torch.cat(batches)


def prune_network(network: nn.Module, sparsity: float) -> nn.Module:
    """Copy a network without the smallest weights of all its convolutions and linear layers.

    A pruned layer's ``weight`` is the product of the parameter ``weight_orig`` and the fixed buffer
    ``weight_mask``, computed before each call, so removed weights stay zero in training. Biases and
    batch norms are not pruned. Source: INFO section 5.4, after Han et al. 2015.

    Args:
        network: Dense network, which is not changed.
        sparsity: Share of these weights to remove, from 0 to below 1.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> with torch.no_grad():
        ...     _ = layer.weight.copy_(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
        >>> prune_network(layer, 0.5).weight.tolist()
        [[0.0, -0.0], [3.0, 4.0]]
    """
    # torch's pruning takes views of the weights, which weights stored channels last do not have.
    sparse = copy.deepcopy(network).to(memory_format=torch.contiguous_format)
    layers = [(layer, "weight") for layer in list_prunable_layers(sparse)]
    total = sum(layer.weight.numel() for layer, _ in layers)
    prune.global_unstructured(
        layers, pruning_method=prune.L1Unstructured, amount=round(sparsity * total)
    )
    return sparse


def measure_sparsity(network: nn.Module) -> float:
    """Compute the share of zeros among the weights that `prune_network` chooses from.

    Example:
        >>> measure_sparsity(prune_network(nn.Linear(10, 10), 0.3))
        0.3
    """
    weights: list[Tensor] = [layer.weight for layer in list_prunable_layers(network)]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    return zeros / sum(weight.numel() for weight in weights)


def list_prunable_layers(network: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    """Return all convolutions and linear layers."""
    kinds = (nn.Conv2d, nn.Linear)
    return [module for module in network.modules() if isinstance(module, kinds)]


EXPERIMENT = Experiment(
    id="info/pruning",
    title="Matrix information between a dense network and its pruned copies",
    question=(
        "Up to 90 % of the weights of a trained network, the smallest ones, are set to zero, and "
        "the rest is fine-tuned. INFO says that its features keep a high MIR with those of the "
        "dense network."
    ),
    source="INFO section 5.4, figure 6",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "135 GPU-hours (estimated)", "small": "70 minutes on one core"},
    parts=train_and_prune,
    claims=list_claims,
    figures=draw_figures,
    columns=("sparsity", "stage", "accuracy", "dense_mir", "dense_mir_batch", "dense_hdr"),
)
