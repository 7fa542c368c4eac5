r"""Pruning: MIR and HDR between the features of a dense network and of its pruned copies.

Source: INFO section 5.4, figure 6. Command: ``ncscope reproduce info/pruning``.

The smallest weights of a trained network are set to zero, across all convolutions and linear layers
together, and stay zero while the network is fine-tuned (`pruned`). Before and after fine-tuning,
MIR and HDR are measured between its features of the held-out images and those of the dense network.
The MIR of features with themselves, $2-H(G\odot G)/H(G)$, is 1 only if their directions are equal,
opposite or orthogonal; the figure shows it as a line.

The paper's scale trains WRN-28-2 on CIFAR-10 and WRN-28-8 on CIFAR-100 with `paper_training`. Apart
from 90 %, the paper states neither the sparsities nor the fine-tuning. Here the sparsities are 0 to
90 % in steps of 10, and fine-tuning takes 100 epochs from a rate of 0.003, a tenth of the initial
rate.

The chance baseline is the network before its training, pruned to the same sparsity. A claim judges
the share of the way from this baseline to the dense network itself, seed by seed (`kept`).

The small scale trains a wide residual network of 64 features on warped digits: 30 epochs of batches
of 64 at rate 0.1, then 10 epochs from a rate of 0.03 at each of five sparsities. The fine-tuning
was chosen on seed 0, where it restores more than 6 epochs at 0.01; the claims are judged on seeds 3
to 5. Cost: 5 minutes on one core.

Results (means over seeds): accuracy .924 dense, .913 at sparsity 0.9 after fine-tuning. MIR of the
dense features with themselves is 0.488, with the fine-tuned features at 0.9 it is 0.432, with
untrained features 0.064: a share of .869, just below `HIGH`. By batch the values are 0.556, 0.539
and 0.291, a share of .934. HDR with the dense features reaches 0.233 at 0.9, against 0.881 of
untrained features. Before fine-tuning, at an accuracy of .100, the share of MIR is still .651, and
.851 by batch: MIR hardly shows what pruning does to the accuracy.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from ncscope.lab.evidence.judging import above, judged
from ncscope.lab.observations import Event, Heartbeat, Observation, Value
from ncscope.lab.papers.info.runs import (
    GROUPS,
    PAPER_NETWORKS,
    SEEDS,
    UNSEEN_SEEDS,
    accuracy_percent,
    averages,
    band,
    by_axis,
    by_batch,
    by_run_name,
    collapse_line,
    data_sets,
    legend_beside,
    medium_training,
    paper_training,
    ratio_bands,
    reference_line,
    small_training,
    with_classes,
    without_means,
)
from ncscope.lab.papers.info.shared_information import between_features, held_out_features
from ncscope.lab.papers.info.unstructured_pruning import pruned, sparsity_of
from ncscope.lab.papers.trained import average, ratio
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.optimisation import Optimisation, learner
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import (
    Bench,
    bench_events,
    prepared,
    probed,
)
from ncscope.report import panels
from ncscope.report.claims import Claim

PRUNED, TUNED, UNTRAINED = "pruned", "fine-tuned", "untrained"
COLOURS = {PRUNED: panels.SECOND, TUNED: panels.ACCENT, UNTRAINED: panels.SOFT}

HIGH = 0.9
"""Networks that keep more than this share of a value, see `kept`, count as hardly changed."""
RESTORED = 0.5
"""Fine-tuning that makes up for more than this share of what pruning changed restores it."""


class InfoPruning(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs of the dense networks, by name.")
    sparsities: tuple[float, ...] = Field(description="Shares of the weights to remove.")
    tuning: Optimisation = Field(description="Fine-tuning of pruned networks; without an average.")

    @model_validator(mode="after")
    def _averages_nothing(self) -> "InfoPruning":
        if self.tuning.average:  # torch cannot copy a network with masked weights
            msg = "tuning without an average"
            raise ValueError(msg)
        return self


def _paper() -> InfoPruning:
    dense = paper_training("cifar10").optimisation
    return InfoPruning(
        runs=by_run_name(paper_training(data, seed) for data in PAPER_NETWORKS for seed in SEEDS),
        sparsities=tuple(tenth / 10 for tenth in range(10)),
        tuning=dense.model_copy(update={"epochs": 100, "learning_rate": 0.003, "average": 0.0}),
    )


def _medium() -> InfoPruning:
    dense = medium_training("cifar10", 60).optimisation
    return InfoPruning(
        runs=by_run_name(medium_training("cifar10", 60, seed) for seed in SEEDS),
        sparsities=tuple(tenth / 10 for tenth in range(10)),
        tuning=dense.model_copy(update={"epochs": 10, "learning_rate": 0.003, "average": 0.0}),
    )


def _small() -> InfoPruning:
    dense = small_training("warped-digits", 30).optimisation
    return InfoPruning(
        runs=by_run_name(small_training("warped-digits", 30, seed) for seed in UNSEEN_SEEDS),
        sparsities=(0.0, 0.3, 0.6, 0.8, 0.9),
        tuning=dense.model_copy(update={"epochs": 10, "learning_rate": 0.03}),
    )


def _parts(config: InfoPruning) -> list[Part]:
    """Return a part for each dense network with its pruned copies at every sparsity."""
    tuned = len(config.sparsities) * config.tuning.epochs
    return [
        Part(
            name,
            training.optimisation.epochs + tuned,
            partial(_events, config, training),
            trains=True,
        )
        for name, training in config.runs.items()
    ]


def _events(config: InfoPruning, training: Training, resources: Resources) -> Iterator[Event]:
    """Yield the dense network's training, then three observations for every sparsity."""
    bench = prepared(training, resources)
    untrained = copy.deepcopy(bench.learner.evaluated)
    yield from with_classes(bench, bench_events(bench, _inside(resources, "dense")))
    dense = bench.learner.evaluated
    features = held_out_features(bench, dense)
    for sparsity in config.sparsities:
        chance = _sparse(bench, pruned(untrained, sparsity), config.tuning)
        yield from with_classes(bench, [_compared(chance, features, sparsity, UNTRAINED)])
        sparse = _sparse(bench, pruned(dense, sparsity), config.tuning)
        yield from with_classes(bench, [_compared(sparse, features, sparsity, PRUNED)])
        inside = _inside(resources, f"sparsity {sparsity:g}")
        yield from (e for e in bench_events(sparse, inside) if isinstance(e, Heartbeat))
        yield from with_classes(bench, [_compared(sparse, features, sparsity, TUNED)])


def _inside(resources: Resources, name: str) -> Resources:
    """Return the resources with a separate checkpoint folder for one sparsity."""
    return (
        resources
        if resources.checkpoints is None
        else replace(resources, checkpoints=resources.checkpoints / name)
    )


def _sparse(bench: Bench, model: nn.Module, tuning: Optimisation) -> Bench:
    """Set up the run of a pruned network, without measurements during the run."""
    settings = bench.settings.model_copy(
        update={"optimisation": tuning, "every": tuning.epochs, "groups": ("nc4",)}
    )
    return replace(bench, settings=settings, learner=learner(model, tuning))


def _compared(
    bench: Bench, dense: Float[Tensor, "n d"], sparsity: float, stage: str
) -> Observation:
    """Measure a pruned network on held-out images, alone and against the dense network."""
    model = bench.learner.evaluated
    values: dict[str, Value] = {
        "sparsity": sparsity,
        "zeros": sparsity_of(model),
        "stage": stage,
    }
    whole = replace(bench, settings=bench.settings.model_copy(update={"groups": GROUPS}))
    last = probed(whole, model, bench.data.test).record.layers[-1]
    values |= without_means(last.metrics)
    values |= between_features(held_out_features(bench, model), dense)
    return Observation(bench.learner.step, bench.learner.epoch, "pruned", last.layer, values=values)


def compared(
    config: InfoPruning, rows: Sequence[Observation], data: str, stage: str
) -> list[Observation]:
    """Select the networks of a data set, pruned or fine-tuned, of all seeds.

    Args:
        config: Settings of the study.
        rows: Rows of the study.
        data: Name of the set.
        stage: `PRUNED`, `TUNED` or `UNTRAINED`.
    """
    names = [name for name, training in config.runs.items() if training.data == data]
    return [row for row in rows if row.part in names and row.get("stage") == stage]


def kept(
    config: InfoPruning,
    rows: Sequence[Observation],
    data: str,
    stage: str,
    sparsity: float,
    key: str,
) -> list[float]:
    """Compute the share of a value that pruned networks keep, seed by seed.

    The share is 1 at the value of the dense network beside itself, and 0 at the value of the
    network before its training, pruned to the same sparsity: the chance baseline.

    Args:
        config: Settings of the study.
        rows: Rows of the study.
        data: Name of the set.
        stage: `PRUNED` or `TUNED`.
        sparsity: Share of the weights that were removed.
        key: Key of the value, such as ``dense_mir``.
    """
    names = [name for name, training in config.runs.items() if training.data == data]
    values = {
        (row.part, row["stage"], row["sparsity"]): float(row.get(key, math.nan))
        for row in rows
        if "stage" in row
    }

    def share(name: str) -> float:
        dense, chance, value = (
            values.get((name, *each), math.nan)
            for each in ((PRUNED, 0.0), (UNTRAINED, sparsity), (stage, sparsity))
        )
        return ratio(value - chance, dense - chance)

    return [share(name) for name in names]


def _claims(config: InfoPruning, rows: Sequence[Observation]) -> list[Claim]:
    """Test section 5.4, seed by seed: what pruned networks keep, and what fine-tuning restores."""
    claims = []
    for data in data_sets(config.runs):
        for claim in (_keeps, _restores):
            claims.append(claim(config, rows, data, "accuracy", "accuracy"))
            for key in ("mir", "hdr"):
                judge = partial(claim, config, rows, data, f"{key.upper()} with the dense features")
                claims.append(by_batch(judge, f"dense_{key}"))
    return claims


def _keeps(
    config: InfoPruning,
    rows: Sequence[Observation],
    data: str,
    name: str,
    key: str,
    estimate: str = "",
) -> Claim:
    by_sparsity = [kept(config, rows, data, TUNED, each, key) for each in config.sparsities]
    return judged(
        f"{data}: after fine-tuning, pruned networks of every sparsity have gone more than {HIGH} "
        "of the way from an untrained network of the same sparsity to the dense one, by "
        f"{name}{estimate}",
        source="INFO, figure 6",
        values=[float(np.min(shares)) for shares in zip(*by_sparsity, strict=True)],
        region=above(HIGH),
        evidence="mean share "
        + ", ".join(
            f"{average(shares):.3f} at {sparsity:g}"
            for sparsity, shares in zip(config.sparsities, by_sparsity, strict=True)
        ),
    )


def _restores(
    config: InfoPruning,
    rows: Sequence[Observation],
    data: str,
    name: str,
    key: str,
    estimate: str = "",
) -> Claim:
    """Judge the share kept after fine-tuning minus the share that restores just enough."""
    most = max(config.sparsities)
    before, after = (kept(config, rows, data, stage, most, key) for stage in (PRUNED, TUNED))
    enough = [share + RESTORED * (1 - share) for share in before]
    return judged(
        f"{data}: fine-tuning at sparsity {most:g} makes up for more than {RESTORED} of what "
        f"pruning changed, by {name}{estimate}",
        source="INFO, figure 6",
        values=[share - least for share, least in zip(after, enough, strict=True)],
        region=above(0),
        evidence=f"mean share {average(before):.3f} before fine-tuning, {average(after):.3f} after",
    )


def _drawings(config: InfoPruning, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figure 6 of the paper, with one row for each data set."""
    caption = (
        "INFO figure 6: accuracy, and MIR and HDR between the features of the pruned and of the "
        "dense network, on held-out images; lines are means over seeds, bands show their range. "
        "The network before training, pruned alike, is the chance baseline. Solid: exact values of "
        "the whole set; dashed: means over batches of 64."
    )
    return [Drawing("fig-6", caption, _figure(config, rows))]


def _figure(config: InfoPruning, rows: Sequence[Observation]) -> Figure:
    sets = data_sets(config.runs)
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(11, 3.1 * len(sets)), layout="constrained")
        grid = figure.subplots(len(sets), 3, squeeze=False, sharex=True).tolist()
        for line, data in zip(grid, sets, strict=True):
            _panels(line, config, rows, data)
            titles = f"accuracy, %, {data}", "MIR with the dense", "HDR with the dense"
            for axes, title in zip(line, titles, strict=True):
                axes.set_title(title)
        for axes in grid[-1]:
            axes.set_xlabel("sparsity")
        legend_beside(figure, grid[0][1])
    return figure


def _panels(
    line: Sequence[Axes], config: InfoPruning, rows: Sequence[Observation], data: str
) -> None:
    accuracy, mir, hdr = line
    for stage, colour in COLOURS.items():
        chosen = compared(config, rows, data, stage)
        band(accuracy, accuracy_percent(by_axis(chosen, "sparsity", "accuracy")), stage, colour)
        ratio_bands(mir, chosen, "sparsity", "dense_mir", colour, stage)
        ratio_bands(hdr, chosen, "sparsity", "dense_hdr", colour, stage)
    raw = compared(config, rows, data, PRUNED)
    itself = averages(by_axis(raw, "sparsity", "dense_mir")).get(0.0, float("nan"))
    reference_line(mir, itself, "of the dense with themselves, exact", "-.")
    collapse_line(mir, raw)


RECIPE: Recipe[InfoPruning] = Recipe(
    id="info/pruning",
    title="Matrix information between a dense network and its pruned copies",
    lead=(
        "Up to 90 % of the weights of a trained network, the smallest ones, are set to zero, and "
        "the rest is fine-tuned. INFO says that its features keep a high MIR with those of the "
        "dense network."
    ),
    source="INFO section 5.4, figure 6",
    config=InfoPruning,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    columns=("sparsity", "stage", "accuracy", "dense_mir", "dense_mir_batch", "dense_hdr"),
    scales={"paper": _paper(), "medium": _medium(), "small": _small()},
    cost={
        "paper": "135 GPU-hours (estimated)",
        "medium": "25 minutes of one GPU (estimated)",
        "small": "5 minutes on one core",
    },
)
