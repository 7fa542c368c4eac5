"""Progressive feedforward collapse: PFC1-3 layer by layer while residual nets train.

Source: PFC section IV-A, figures 2 and 3, table I. Command: ``ncscope reproduce pfc/training``.

The paper's scale trains the residual networks of table I on MNIST, FashionMNIST, CIFAR-10, STL-10
and CIFAR-100: cross-entropy, SGD with momentum 0.9, weight decay 5e-4, batches of 128, 350 epochs,
learning rate 0.005 (MNIST) or 0.01, divided by 10 at epochs 117 and 233.

The small scale has the same loss and shape of the schedule. It trains a fully connected net of
width 128 with 8 blocks on handwritten digits (350 epochs), and a convolutional net whose last stage
has 7 blocks on generated patterns (120 epochs); three seeds each, and three without weight decay,
because PFC's geodesic curve assumption is about decay. Batches are of 64 and the rates are 0.02 and
0.05, because there are only 7,700 and 3,720 steps; decay is 4e-3 for the same reason (see
`SMALL_DECAY`). Cost: 12 minutes on one core of a shared EPYC.

At every measured epoch the paths of 500 training images are compared with optimal transport (PFC
proposition 1), and the energy of the blocks with their weights (III-C). The claims are in
`network_claims`.

Results at the small scale, seeds 3 to 5: 15 of 34 claims held, 7 are undecided. PFC1 falls and
PFC3 rises over the layers in all runs; PFC2 breaks its order in all. Straightness rises from .65 to
.87 on digits and from .45 to .73 on patterns; without decay it ends at .66 and .53. On patterns the
effective depth is the fifth of seven blocks.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.pfc.network_claims import Network, claims_on
from ncscope.lab.papers.pfc.order import KEYS
from ncscope.lab.papers.pfc.path_figures import path_drawings, path_tables
from ncscope.lab.papers.pfc.paths import path_observations
from ncscope.lab.papers.trained import (
    geodesic,
    history,
    interpolation_epoch,
    layers,
    training_parts,
    values,
)
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.histories import depth_colours, epochs_panel, logarithmic_values
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.report import panels
from ncscope.report.claims import Claim
from ncscope.report.curves import geodesic_curves
from ncscope.report.labels import find_label
from ncscope.report.tables import Summary

SEEDS = (3, 4, 5)
"""Seeds of each network at the small scale. Networks, rates, decay and the claims' factors were
chosen on seeds 0 to 2."""

SMALL_DECAY = 4e-3
"""Weight decay at the small scale. Decay acts through its product with rate and steps. The sum of
rate x decay / (1 - momentum) over the steps is 2.3 on digits and 2.8 on patterns; at the paper's
scale it is 2.5 on CIFAR, 1.5 on MNIST and 0.3 on STL-10. With the paper's 5e-4 it would be 0.3 and
0.4."""


class PFCTraining(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")
    samples: int = Field(
        500, ge=2, description="Training images whose paths are compared with optimal transport."
    )

    @property
    def with_decay(self) -> list[str]:
        """Return the runs with weight decay, which PFC's conjecture is about."""
        decays = {name: run.optimisation.weight_decay for name, run in self.runs.items()}
        return [name for name, decay in decays.items() if decay > 0]

    @property
    def networks(self) -> dict[str, list[str]]:
        """Return the runs of each network, which differ in the seed, by their common name."""
        groups: dict[str, list[str]] = {}
        for name, run in self.runs.items():
            same = run.model_copy(update={"seed": 0}).model_dump_json()
            groups.setdefault(same, []).append(name)
        return {names[0].split(", seed ")[0]: names for names in groups.values()}

    def controls(self, runs: Sequence[str]) -> list[str]:
        """Return the runs that differ from the given ones in having no decay; none if one lacks.

        Args:
            runs: Names of runs with decay.
        """
        names = {run.model_dump_json(): name for name, run in self.runs.items()}
        wanted = [_without_decay(self.runs[run]).model_dump_json() for run in runs]
        return [names[each] for each in wanted] if names.keys() >= set(wanted) else []


def _without_decay(training: Training) -> Training:
    optimisation = training.optimisation.model_copy(update={"weight_decay": 0.0})
    return training.model_copy(update={"optimisation": optimisation})


FULLY_CONNECTED = ("stem", "blocks.*")


def _training(
    data: str,
    network: str,
    rate: float,
    layers: tuple[str, ...],
    *,
    epochs: int,
    batch_size: int,
    measurements: int,
    decay: float = 5e-4,
) -> Training:
    """Return settings with PFC's loss, optimiser and schedule."""
    optimisation = Optimisation(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=rate,
        weight_decay=decay,
        schedule="steps",
        milestones=(117 / 350, 233 / 350),
    )
    return Training(
        data=data,
        network=network,
        layers=layers,
        optimisation=optimisation,
        measurements=measurements,
    )


def _last_stage(stage: int) -> tuple[str, ...]:
    """Name the layers of one dimension at the end of a convolutional network."""
    return (f"stages.{stage}.entry", f"stages.{stage}.blocks.*")


def _paper() -> PFCTraining:
    given = {"epochs": 350, "batch_size": 128, "measurements": 40}
    last = {"fashion-mnist": 1, "cifar10": 2, "stl10": 3, "cifar100": 3}
    networks = {"mnist": _training("mnist", "pfc-mnist", 0.005, FULLY_CONNECTED, **given)}
    networks |= {
        data: _training(data, f"pfc-{data}", 0.01, _last_stage(stage), **given)
        for data, stage in last.items()
    }
    return PFCTraining(runs=_seeded(networks, (0, 1, 2)))


def _medium() -> PFCTraining:
    """Return the paper's settings on 10,000 images, with the decay that replaces the steps."""
    given = {"epochs": 120, "batch_size": 128, "measurements": 14}
    networks = {
        data: _training(data, f"pfc-{data}", 0.01, _last_stage(stage), decay=2.5e-3, **given)
        for data, stage in {"cifar10": 2, "cifar100": 3}.items()
    }
    networks["cifar10, no decay"] = _without_decay(networks["cifar10"])
    fewer = {name: run.model_copy(update={"balanced": 10_000}) for name, run in networks.items()}
    return PFCTraining(runs=_seeded(fewer, (0, 1, 2)))


def _small() -> PFCTraining:
    networks = {
        "digits": _training(
            "digits", "small-residual", 0.02, FULLY_CONNECTED, decay=SMALL_DECAY, batch_size=64,
            epochs=350, measurements=16
        ),
        "patterns": _training(
            "patterns", "small-resnet-long", 0.05, _last_stage(2), decay=SMALL_DECAY,
            batch_size=64, epochs=120, measurements=14,
        ),
    }  # fmt: skip
    controls = {f"{name}, no decay": _without_decay(run) for name, run in networks.items()}
    return PFCTraining(runs=_seeded(networks | controls, SEEDS))


def _seeded(networks: Mapping[str, Training], seeds: Sequence[int]) -> dict[str, Training]:
    return {
        f"{name}, seed {seed}": training.model_copy(update={"seed": seed})
        for name, training in networks.items()
        for seed in seeds
    }


def _parts(config: PFCTraining) -> list[Part]:
    """Return a part for each run."""
    return training_parts(config.runs, partial(path_observations, samples=config.samples))


def _claims(config: PFCTraining, rows: Results) -> list[Claim]:
    """Test the geodesic curve assumption and the PFC conjecture on every network with decay."""
    return [
        claim
        for name, runs in config.networks.items()
        if set(runs) <= set(config.with_decay)
        for claim in claims_on(Network(name, runs, config.controls(runs), rows))
    ]


def _drawings(config: PFCTraining, rows: Results) -> list[Drawing]:
    """Draw figures 2 and 3 of the paper with a row per network, then orders and paths."""
    networks = config.networks
    firsts = [runs[0] for runs in networks.values() if set(runs) <= set(config.with_decay)]
    firsts = firsts or [runs[0] for runs in networks.values()]
    over_time = (
        "PFC figure 2: PFC1-3 of every layer over training, on the training set; light to dark "
        "from the first layer to the last. The dashed line is the first measured epoch of zero "
        "training error."
    )
    by_layer = (
        "PFC figure 3: PFC1-3 at the last epoch against relative position (points), and the "
        "prediction by the straight line from the first layer's features to the last's (dashed); "
        "the first seed of each network."
    )
    return [
        Drawing("fig-2", over_time, _over_time(firsts, rows)),
        Drawing("fig-3", by_layer, _by_layer(firsts, rows)),
        *path_drawings(networks, rows),
    ]


def _tables(config: PFCTraining, rows: Results) -> list[Summary]:
    """Return PFC1-3 of the last layer and the paths' numbers, by run."""
    return path_tables(config.networks, rows)


def _over_time(names: Sequence[str], rows: Sequence[Observation]) -> Figure:
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(11, 2.9 * len(names)), layout="constrained")
        for axes, name in zip(_grid(figure, len(names)), names, strict=True):
            shown = [row.layer for row in layers(rows, name)]
            curves = {layer: history(rows, name, layer=layer) for layer in shown}
            epoch = interpolation_epoch(history(rows, name))
            for panel, key in zip(axes, KEYS, strict=True):
                colours = depth_colours(len(shown))
                epochs_panel(panel, curves, key, zero_error=epoch, colours=colours)
                panel.set_title(f"{key.upper()}, {name}")
            if shown:
                axes[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _by_layer(names: Sequence[str], rows: Results) -> Figure:
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(10, 2.7 * len(names)), layout="constrained")
        for axes, name in zip(_grid(figure, len(names)), names, strict=True):
            candidates = [row for row in layers(rows, name) if "relative_position" in row]
            predicted = geodesic(rows, name)
            for panel, key in zip(axes, KEYS, strict=True):
                if predicted is not None:
                    panel.plot(
                        predicted.t,
                        geodesic_curves(predicted)[key],
                        color=panels.SECOND,
                        linestyle=panels.DASHED,
                        label="straight line",
                    )
                positions = values(candidates, "relative_position")
                panel.plot(
                    positions, values(candidates, key), "o-", color=panels.ACCENT, label="layers"
                )
                if find_label(key).log_scale:
                    logarithmic_values(panel)
                panel.set_title(f"{key.upper()}, {name}")
                panel.set_xlabel("relative position")
            axes[0].legend()
    return figure


def _grid(figure: Figure, networks: int) -> list[list[Axes]]:
    return figure.subplots(networks, len(KEYS), squeeze=False).tolist()


RECIPE: Recipe[PFCTraining] = Recipe(
    id="pfc/training",
    title="Progressive feedforward collapse while residual networks train",
    lead=(
        "Residual networks with blocks of one dimension train past zero error. PFC says that "
        "collapse proceeds from layer to layer, as a straight line of the features predicts."
    ),
    source="PFC section IV-A, figures 2-3, table I",
    config=PFCTraining,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    tables=_tables,
    columns=(
        "epoch",
        "pfc1",
        "pfc2",
        "pfc3",
        "accuracy",
        "relative_position",
        "displacement",
    ),
    scales={"paper": _paper(), "medium": _medium(), "small": _small()},
    cost={
        "paper": "15 GPU-hours (estimated)",
        "medium": "40 minutes of one GPU (estimated)",
        "small": "12 minutes on one core",
    },
)
