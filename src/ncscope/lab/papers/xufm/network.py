"""Collapse block by block while ResNet-18 trains, compared with two-level features models.

Source: XUFM section 6, figures 5 and 10, and appendix G; section 4.1 on networks along their depth.
Command: ``ncscope reproduce xufm/network``.

The paper's scale trains ResNet-18 on MNIST and CIFAR-10, measured after each of its four blocks,
under MSE without a bias and under cross-entropy with a bias, with three seeds. The optimiser is SGD
with learning rate 0.05, divided by 10 every 40 epochs, and weight decay 5e-4. The paper states
neither momentum nor batch size nor number of epochs; here they are 0.9, 128 and 120.

The small scale trains a network of three blocks on handwritten digits, with three seeds, in batches
of 64 for 120 epochs. Weight decay produces the frame, and its effect grows with the rate times the
decay, summed over the steps: 0.52 for the paper's MNIST. In the 2,640 steps of the small scale this
sum would be 0.024, too little for the effect to show. So its decay is 20 times the paper's, which
makes the sum 0.49. The two-level models are those of ``ncscope simulate extended``.

Results at the small scale, seeds 3 to 5: 12 of 16 claims held, 1 not held, 3 undecided. Every level
has a lower NC1 than the level before. The deepest features are nearest to their frame and keep 36 %
of their distance to the orthogonal frame under MSE, and 19 % of that to the simplex under
cross-entropy. Past zero error NC1 keeps 21 % (MSE, undecided) and 22 % (cross-entropy, not held),
as zero error comes late, after the first fall of the rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import matplotlib as mpl
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.data.loaders import make_measurement_loader
from ncscope.lab.observations import Observation
from ncscope.lab.papers.trained import history, interpolation_epoch, training_parts
from ncscope.lab.papers.xufm import network_claims
from ncscope.lab.papers.xufm.between_class import between_class_metrics
from ncscope.lab.papers.xufm.network_claims import DUALITIES, SURROGATES
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.histories import depth_colours, epochs_panel
from ncscope.lab.report.rows import part_of
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.simulations.extended import ExtendedConfig, descent_part, levels_figure
from ncscope.lab.simulations.ufm import recorded_steps
from ncscope.lab.surrogates.extended import Activation, ExtendedUFM
from ncscope.lab.training.loop import EpochEnd
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import Bench
from ncscope.models.taps import HEAD_INPUT
from ncscope.report import panels
from ncscope.report.claims import Claim

GROUPS = ("nc1", "nc2", "nc3", "nc4")
LOSSES: Mapping[str, str] = {"mse": "MSE, no bias", "cross-entropy": "CE, bias"}
MODEL = ExtendedConfig()
"""Sizes, decays and descent of the two-level model."""
SEEDS = (0, 1, 2)
FRESH = (3, 4, 5)
"""Seeds of the small scale, none of which was run while its settings and claims were chosen."""
DECAY = 5e-4
"""The paper's weight decay."""


class XUFMNetwork(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")
    blocks: tuple[str, ...] = Field(description="The network's blocks, by name or pattern.")
    steps: int = Field(MODEL.steps, ge=1, description="Steps of descent of the two-level models.")


def _runs(
    data: str,
    network: str,
    optimisation: Optimisation,
    every: int,
    seeds: Sequence[int] = SEEDS,
) -> dict[str, Training]:
    """Return settings for MSE without a bias and cross-entropy with a bias, for each seed."""
    base = Training(
        data=data,
        network=network,
        optimisation=optimisation,
        every=every,
        layers=(),
        groups=GROUPS,
    )
    return {
        f"{data}, {label}, seed {seed}": base.model_copy(
            update={"loss": loss, "bias": loss != "mse", "seed": seed}
        )
        for loss, label in LOSSES.items()
        for seed in seeds
    }


def _optimisation(epochs: int, batch_size: int, weight_decay: float) -> Optimisation:
    """Return XUFM's rate, which falls tenfold at thirds (paper: every 40 epochs)."""
    return Optimisation(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=0.05,
        weight_decay=weight_decay,
        schedule="steps",
        milestones=(1 / 3, 2 / 3),
    )


def _paper() -> XUFMNetwork:
    long = _optimisation(120, 128, DECAY)
    runs = _runs("mnist", "resnet18", long, 5) | _runs("cifar10", "resnet18", long, 5)
    return XUFMNetwork(runs=runs, blocks=("layer?",))


def _medium() -> XUFMNetwork:
    """Return the paper's settings on 10,000 images, with the decay that replaces the steps."""
    runs = _runs("cifar10", "resnet18", _optimisation(120, 128, 5 * DECAY), 5)
    fewer = {"balanced": 10_000}
    return XUFMNetwork(
        runs={name: run.model_copy(update=fewer) for name, run in runs.items()}, blocks=("layer?",)
    )


def _small() -> XUFMNetwork:
    runs = _runs("digits", "small-resnet", _optimisation(120, 64, 20 * DECAY), 4, FRESH)
    return XUFMNetwork(runs=runs, blocks=("stages.?",))


def _parts(config: XUFMNetwork) -> list[Part]:
    """Return a part for each training run, and one for each two-level model."""
    by_block = partial(_measured_blocks, blocks=config.blocks)
    descents = [_descent(config, activation) for activation in SURROGATES]
    return [*training_parts(config.runs, by_block), *descents]


def _descent(config: XUFMNetwork, activation: Activation) -> Part:
    problem = ExtendedUFM(
        MODEL.num_classes,
        MODEL.dim,
        MODEL.per_class,
        MODEL.weight_decays,
        MODEL.feature_decay,
        activation,
    )
    record = recorded_steps(config.steps, MODEL.every)
    return descent_part(SURROGATES[activation], problem, MODEL.rate, record, MODEL.seed)


def _measured_blocks(bench: Bench, end: EpochEnd, blocks: Sequence[str]) -> list[Observation]:
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
    measured = between_class_metrics(model, loader, blocks, classes)
    return [
        Observation(end.step, end.epoch, layer=layer, values={"block": index, **metrics})
        for index, (layer, metrics) in enumerate(measured.items(), start=1)
    ]


def levels(rows: Sequence[Observation], run: str) -> dict[str, list[Observation]]:
    """Return rows over training by level: the blocks in order, then the classifier's input."""
    blocks = {int(row["block"]): row.layer for row in part_of(rows, run) if "block" in row}
    paths = {
        f"block {index}": history(rows, run, layer=layer) for index, layer in sorted(blocks.items())
    }
    return paths | {"classifier's input": history(rows, run, layer=HEAD_INPUT)}


def _claims(config: XUFMNetwork, rows: Sequence[Observation]) -> list[Claim]:
    """Test section 4.1 on networks, and section 6 on their similarity to the models."""
    networks: dict[str, dict[str, network_claims.Levels]] = {}
    for name, run in config.runs.items():
        networks.setdefault(f"{run.data}, {LOSSES[run.loss]}", {})[name] = levels(rows, name)
    losses = {f"{run.data}, {LOSSES[run.loss]}": run.loss for run in config.runs.values()}
    models = {activation: part_of(rows, part) for activation, part in SURROGATES.items()}
    claims: list[Claim] = []
    for network, by_run in networks.items():
        own = network_claims.of_network(list(by_run.values()), losses[network], models)
        claims += [replace(claim, text=f"{network}: {claim.text}") for claim in own]
    for data in _data_sets(config):
        pair = [list(networks.get(f"{data}, {label}", {}).values()) for label in LOSSES.values()]
        own = network_claims.of_losses(*pair)
        claims += [replace(claim, text=f"{data}: {claim.text}") for claim in own]
    return claims


def _data_sets(config: XUFMNetwork) -> list[str]:
    return list(dict.fromkeys(run.data for run in config.runs.values()))


def _drawings(config: XUFMNetwork, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw a figure for each data set with one row per loss, and a figure of the models."""
    drawings = []
    names = dict(zip(_data_sets(config), ("fig-5", "fig-10"), strict=False))
    for data in _data_sets(config):
        first: dict[str, str] = {}
        for name, run in config.runs.items():
            if run.data == data:
                first.setdefault(run.loss, name)
        runs = {name: config.runs[name] for name in first.values()}
        caption = (
            f"XUFM figures 5 and 10, on {data}, first seed: NC1 and the two NC2 on the training "
            "set by block, light to dark, and NC3. The dashed line is the first measured epoch of "
            "zero training error."
        )
        drawings.append(Drawing(names.get(data, f"blocks-{data}"), caption, _by_level(runs, rows)))
    caption = (
        "The extended unconstrained features model of XUFM figures 3 and 4, linear above ReLU, for "
        "comparison with figures 5 and 10."
    )
    models = {activation: part_of(rows, part) for activation, part in SURROGATES.items()}
    return [*drawings, Drawing("models", caption, levels_figure(models))]


def _by_level(runs: Mapping[str, Training], rows: Sequence[Observation]) -> Figure:
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(12, 2.7 * len(runs)), layout="constrained")
        grid = figure.subplots(len(runs), 4, squeeze=False, sharey="col")
        for axes, (name, run) in zip(grid, runs.items(), strict=True):
            by_level = levels(rows, name)
            *_, deepest = by_level
            epoch = interpolation_epoch(by_level[deepest])
            colours = depth_colours(len(by_level))
            for panel, (key, title) in zip(axes, _panels(run.loss).items(), strict=True):
                shown = {deepest: by_level[deepest]} if key.startswith("nc3") else by_level
                epochs_panel(panel, shown, key, zero_error=epoch, colours=colours[-len(shown) :])
                panel.set_xscale("linear")
                panel.set_title(title)
            axes[0].set_ylabel(LOSSES[run.loss], fontweight="bold")
            axes[2].legend()
    return figure


def _panels(loss: str) -> dict[str, str]:
    means = "uncentred" if loss == "mse" else "centred"
    return {
        "nc1": "NC1",
        "nc2_of": "NC2: distance to orthogonal frame",
        "nc2_etf": "NC2: distance to simplex",
        DUALITIES[loss]: f"NC3: classifier, {means} means",
    }


RECIPE: Recipe[XUFMNetwork] = Recipe(
    id="xufm/network",
    title="Collapse block by block, and in two levels of free features",
    lead=(
        "A residual network is measured after every block. The paper says that variability falls "
        "along the depth, and that only the deepest class means become a frame, as in the ReLU "
        "model of two levels and unlike the linear one."
    ),
    source="XUFM section 6, figures 5 and 10; section 4.1",
    config=XUFMNetwork,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    columns=("epoch", "accuracy", "nc1", "nc2_of", "nc2_etf", "nc3_alignment"),
    scales={"paper": _paper(), "medium": _medium(), "small": _small()},
    cost={
        "paper": "9 GPU-hours (estimated)",
        "medium": "30 minutes of one GPU (estimated)",
        "small": "5 minutes on one core",
    },
)
