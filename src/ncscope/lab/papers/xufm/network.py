"""Collapse block by block while ResNet-18 trains, compared with two-level features models.

Source: XUFM section 6, figures 5 and 10, and appendix G; section 4.1 on networks along their depth.
Command: ``ncscope reproduce xufm/network``.

The paper's scale trains ResNet-18 on MNIST and CIFAR-10, measured after each of its four blocks,
under MSE without a bias and under cross-entropy with a bias. The optimiser is SGD with learning
rate 0.05, divided by 10 every 40 epochs, and weight decay 5e-4. The paper states neither momentum
nor batch size nor number of epochs; here they are 0.9, 128 and 120. The small scale trains a
network of three blocks in batches of 64 on handwritten digits (120 epochs) and on generated
patterns (60 epochs, with the rate falling after 20 and 40). The two-level models are those of
``ncscope simulate extended``. Cost: 3.5 minutes on one core of a shared EPYC.

Expected at the small scale: 25 of 30 claims hold. NC1 falls from level to level in all four runs,
on digits from 0.537 to 0.0018 (MSE) and from 0.461 to 0.0202 (cross-entropy), and the blocks before
the last keep 79 % or more of their distance to the frame. The claims that fail concern the frame:
under MSE the deepest features also keep 77 and 81 % of their distance to the orthogonal frame;
under cross-entropy on patterns the first block is nearer to a simplex (0.461) than the deepest
features (0.481); and the frames of the two losses do not differ. Weight decay produces the frame,
and it has only 2,640 and 1,860 steps, compared with 56,000 in the paper. With 20 times the decay
the deepest features on digits end at distance 0.48 from the orthogonal frame under MSE and at 0.17
from the simplex under cross-entropy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import matplotlib as mpl
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.data.loaders import measuring_loader
from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation
from ncscope.lab.papers.trained import (
    decades,
    ends,
    history,
    interpolation,
    interpolation_epoch,
    ordered,
    ratio,
    training_parts,
    values,
)
from ncscope.lab.papers.xufm.between_class import between_class_metrics
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.histories import depth_colours, epochs_panel
from ncscope.lab.report.rows import part_of
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.simulations.extended import (
    LABELS,
    ExtendedConfig,
    descent_part,
    levels_figure,
)
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
FRAMES: Mapping[str, str] = {"mse": "nc2_of", "cross-entropy": "nc2_etf"}
"""Key of the distance to the minimisers' frame, by loss: orthogonal without a bias, or simplex."""
DUALITIES: Mapping[str, str] = {"mse": "nc3_alignment", "cross-entropy": "nc3_self_duality"}
"""Key of NC3 by loss, with uncentred class means for the orthogonal frame, else centred ones."""
LOSSES: Mapping[str, str] = {"mse": "MSE, no bias", "cross-entropy": "CE, bias"}
SURROGATES: Mapping[Activation, str] = {
    "linear": "extended UFM, linear",
    "relu": "extended UFM, ReLU",
}
"""Parts of the two-level model, by activation."""
MODEL = ExtendedConfig()
"""Sizes, decays and descent of the two-level model."""
HALF = 0.5
"""A level counts as structured if its distance to the frame falls below this share of its start;
the paper states no number."""


class XUFMNetwork(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")
    blocks: tuple[str, ...] = Field(description="The network's blocks, by name or pattern.")
    steps: int = Field(MODEL.steps, ge=1, description="Steps of descent of the two-level models.")


def _runs(data: str, network: str, optimisation: Optimisation, every: int) -> dict[str, Training]:
    """Return settings for MSE without a bias, and for cross-entropy with a bias."""
    base = Training(
        data=data,
        network=network,
        optimisation=optimisation,
        every=every,
        layers=(),
        groups=GROUPS,
    )
    return {
        f"{data}, {label}": base.model_copy(update={"loss": loss, "bias": loss != "mse"})
        for loss, label in LOSSES.items()
    }


def _optimisation(epochs: int, batch_size: int) -> Optimisation:
    """Return XUFM's rate and decay; the rate falls tenfold at thirds (paper: every 40 epochs)."""
    return Optimisation(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=0.05,
        weight_decay=5e-4,
        schedule="steps",
        milestones=(1 / 3, 2 / 3),
    )


def _paper() -> XUFMNetwork:
    long = _optimisation(120, 128)
    runs = _runs("mnist", "resnet18", long, 5) | _runs("cifar10", "resnet18", long, 5)
    return XUFMNetwork(runs=runs, blocks=("layer?",))


def _small() -> XUFMNetwork:
    runs = _runs("digits", "small-resnet", _optimisation(120, 64), 10)
    runs |= _runs("patterns", "small-resnet", _optimisation(60, 64), 5)
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
        images = images.balanced(settings.measured)
    size = settings.optimisation.batch_size
    loader = measuring_loader(images, size, fabric.global_rank, fabric.world_size)
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
    claims: list[Claim] = []
    for run, training in config.runs.items():
        by_level, frame = levels(rows, run), FRAMES[training.loss]
        first, deepest = (list(by_level.values())[index] for index in (0, -1))
        run_claims = [
            _past_zero_error(deepest),
            *_along_depth(by_level, frame),
            _dual(deepest, DUALITIES[training.loss]),
            _rates_like_relu(_decades_of(first), _decades_of(deepest), rows),
            _structure_like_relu(kept(first, frame), rows),
        ]
        claims += [replace(claim, text=f"{run}: {claim.text}") for claim in run_claims]
    return [*claims, *(_frames(config, rows, data) for data in _data_sets(config))]


def _decades_of(path: Sequence[Observation]) -> float:
    """Return the number of decades by which NC1 falls from start to end."""
    return decades(*ends(path, "nc1"))


def kept(path: Sequence[Observation], frame: str) -> float:
    """Compute a level's distance to a frame at the end as a share of that at the start."""
    start, end = ends(path, frame)
    return ratio(end, start)


def _past_zero_error(deepest: Sequence[Observation]) -> Claim:
    reached = interpolation(deepest)
    start, end = ends(deepest, "nc1")
    if reached is None:
        held = False
        when = f"never; training accuracy {ends(deepest, 'accuracy')[1]:.4f} at the end"
    else:
        (then,) = values([reached], "nc1")
        held, when = end < then, f"at epoch {reached.epoch}, with NC1 {then:.3g}"
    return decided(
        "the deepest features collapse further past zero training error",
        source="XUFM",
        held=held,
        evidence=f"zero error {when}; NC1 {start:.3g} at the start, {end:.3g} at the end",
    )


def _along_depth(by_level: Mapping[str, Sequence[Observation]], frame: str) -> list[Claim]:
    """Test the order along depth, with the pooled output of the last block as the deepest level."""
    nc1, near = ({n: ends(path, key)[1] for n, path in by_level.items()} for key in ("nc1", frame))
    shares = {name: kept(path, frame) for name, path in by_level.items()}
    shallow = list(by_level)[:-2]
    deepest = list(by_level)[-1]
    return [
        decided(
            "at the end NC1 falls from every level to the next",
            source="XUFM",
            held=ordered(list(nc1.values()), True),
            evidence=_listed(nc1),
        ),
        decided(
            f"at the end the deepest features are nearer to their frame ({frame}) than "
            "the features of any block before the last",
            source="XUFM",
            held=bool(shallow) and all(near[deepest] < near[level] for level in shallow),
            evidence=_listed(near),
        ),
        decided(
            "training halves the distance of the deepest features to the frame, but not "
            "the distance of any block before the last",
            source="XUFM",
            held=bool(shallow) and all(shares[deepest] < HALF <= shares[n] for n in shallow),
            evidence=f"{frame} at the end over the start: {_listed(shares)}",
        ),
    ]


def _dual(deepest: Sequence[Observation], key: str) -> Claim:
    start, end = ends(deepest, key)
    return decided(
        "the classifier aligns with the class means",
        source="XUFM",
        held=end < start,
        evidence=f"{key} {start:.3g} at the start, {end:.3g} at the end",
    )


def _rates_like_relu(first: float, deepest: float, rows: Sequence[Observation]) -> Claim:
    """Compare shares of decades, since NC1 falls by more decades in a noiseless descent."""
    network = ratio(first, deepest)
    models = {
        activation: ratio(*(_decades_of(_level(rows, part, level)) for level in ("H1", "H2")))
        for activation, part in SURROGATES.items()
    }
    return decided(
        "the ratio of the decades by which NC1 falls at the first and at the last level "
        "is nearer to the ReLU model than to the linear model",
        source="XUFM",
        held=_like_relu(network, models),
        evidence=f"from start to end, {_beside(network, models)}",
    )


def _structure_like_relu(network: float, rows: Sequence[Observation]) -> Claim:
    models = {a: kept(_level(rows, part, "H1"), "nc2_of") for a, part in SURROGATES.items()}
    return decided(
        "the first level keeps a share of its initial NC2 that is nearer to the ReLU "
        "model than to the linear model",
        source="XUFM",
        held=_like_relu(network, models),
        evidence=f"NC2 of the first level at the end over the start, {_beside(network, models)}",
    )


def _level(rows: Sequence[Observation], part: str, level: str) -> list[Observation]:
    return [row for row in part_of(rows, part) if row.layer == level]


def _like_relu(network: float, models: Mapping[Activation, float]) -> bool:
    return abs(network - models["relu"]) < abs(network - models["linear"])


def _beside(network: float, models: Mapping[Activation, float]) -> str:
    surrogates = ", ".join(f"{LABELS[name]} model {value:.2g}" for name, value in models.items())
    return f"network {network:.2g}, {surrogates}"


def _listed(by_level: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in by_level.items())


def _frames(config: XUFMNetwork, rows: Sequence[Observation], data: str) -> Claim:
    """Test which frame each loss leads to: the remark after theorem 4.1 on free features."""
    paths: dict[str, list[Observation]] = {
        run.loss: history(rows, name, layer=HEAD_INPUT)
        for name, run in config.runs.items()
        if run.data == data
    }
    squared, entropy = (ends(paths.get(loss, []), "nc2_of")[1] for loss in LOSSES)
    simplex = ends(paths.get("cross-entropy", []), "nc2_etf")[1]
    return decided(
        f"{data}: the deepest class means end nearer to an orthogonal frame under MSE "
        "than under cross-entropy, and under cross-entropy nearer to a simplex than to an "
        "orthogonal frame (remark after theorem 4.1)",
        source="XUFM",
        held=squared < entropy > simplex,
        evidence=f"distance to the orthogonal frame {squared:.3g} under MSE, {entropy:.3g} "
        f"under cross-entropy; distance to the simplex {simplex:.3g} under cross-entropy",
    )


def _data_sets(config: XUFMNetwork) -> list[str]:
    return list(dict.fromkeys(run.data for run in config.runs.values()))


def _drawings(config: XUFMNetwork, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw a figure for each data set with one row per loss, and a figure of the models."""
    drawings = []
    names = dict(zip(_data_sets(config), ("fig-5", "fig-10"), strict=False))
    for data in _data_sets(config):
        runs = {name: run for name, run in config.runs.items() if run.data == data}
        caption = (
            f"XUFM figures 5 and 10, on {data}: NC1 and the two NC2 on the training set by block, "
            "light to dark, and NC3. The dashed line is the first measured epoch of zero training "
            "error."
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
    scales={"paper": _paper(), "small": _small()},
    cost={"paper": "3 GPU-hours (estimated)", "small": "3.5 minutes on one core"},
)
