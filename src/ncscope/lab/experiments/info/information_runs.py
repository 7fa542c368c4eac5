"""Training runs of INFO's experiments on matrix information, and claims by batch.

Every row of a last layer holds each ratio twice: the exact value of the whole set, and the paper's
estimate, the mean over batches. The paper does not print the size of the batches that it measures;
64, the size of its training batches, is our assumption.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from ncscope.data.preprocessing import Augmentation
from ncscope.lab.claims import Claim, tell_ends
from ncscope.lab.evidence.judging import Region
from ncscope.lab.figures import draw_reference
from ncscope.lab.observations import Event, Heartbeat
from ncscope.lab.quantities import Quantity, Run, Runs, replace_fields
from ncscope.lab.runs.recipe import Part
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.lab.training.supervised import bench_events, prepared
from ncscope.metrics.information import collapse_mir
from ncscope.report.claims import Scale

PAPER_NETWORKS: Mapping[str, str] = {"cifar10": "wrn-28-2-ssl", "cifar100": "wrn-28-8-ssl"}
"""Network of each of the paper's two data sets."""

PAPER = Training(
    data="cifar10",
    network="wrn-28-2-ssl",
    augmentation="reflect-crop-flip",
    # Settings that section 5 does not state are those of TorchSSL, the code base that it names:
    # Nesterov momentum, a cosine schedule over 7/16 of a half-turn, and the moving average of the
    # weights, which is measured.
    optimisation=Optimisation(
        epochs=1343,  # of 781 steps: 2^20
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.03,
        weight_decay=5e-4,
        schedule="cosine-7/16",
        average=0.999,
    ),
    every=1343,
    layers=(),
    groups=("nc4", "information"),
)

SMALL = Training(
    data="digits",
    network="small-wrn",
    augmentation="crop",
    # A network of 64 features and a thousandth of the paper's steps: the rate is higher and falls
    # to zero along a cosine, and no weights are averaged.
    optimisation=Optimisation(
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.1,
        weight_decay=5e-4,
        schedule="cosine",
    ),
    layers=(),
    groups=("nc4", "information"),
)


def paper_training(data: str, seed: int, **fields: Any) -> Training:
    """Return the paper's settings for one of its data sets, with some fields replaced."""
    network = PAPER_NETWORKS[data]
    return replace_fields(PAPER, **{"data": data, "network": network, "seed": seed, **fields})


def small_training(data: str, epochs: int, seed: int, **fields: Any) -> Training:
    """Return small settings for a data set that needs no download, measured before and after."""
    augmentation: Augmentation = "crop" if "digits" in data else "crop-flip"
    own = {"data": data, "augmentation": augmentation, "epochs": epochs, "every": epochs}
    return replace_fields(SMALL, **{**own, "seed": seed, **fields})


def name_runs(trainings: Iterable[Training], *fields: str) -> dict[str, Training]:
    """Name settings by their data, the fields in which they differ, and their seed."""
    runs = {}
    for training in trainings:
        whole = {**training.optimisation.model_dump(), **training.model_dump()}
        differing = [f"{field.replace('_', ' ')} {whole[field]:g}" for field in fields]
        runs[", ".join([training.data, *differing, f"seed {training.seed}"])] = training
    return runs


def train_with_classes(settings: Any) -> list[Part]:
    """Return a part for each training run, whose rows also hold the number of classes."""
    return [
        Part(name, training.optimisation.epochs, partial(_train, training), trains=True)
        for name, training in settings.runs.items()
    ]


def _train(training: Training, resources: Resources) -> Iterator[Event]:
    bench = prepared(training, resources)
    classes = {"num_classes": bench.data.num_classes}
    for event in bench_events(bench, resources):
        yield event if isinstance(event, Heartbeat) else event.with_values(classes)


def claim_by_batch(
    text: str,
    key: str,
    quantity: Callable[[str], Quantity],
    *,
    source: str,
    region: Region,
    scale: Scale = "plain",
    **fields: Any,
) -> Claim:
    """Make a claim on a ratio by batch, as the paper measures it, in every data set.

    The paper takes the entropy of batches for that of the data set, so the claim is judged by
    batch, and the exact values stand in its evidence.

    Args:
        text: Text of the claim.
        key: Key of the ratio's exact value.
        quantity: Function of a key that returns the quantity.
        source: Owner of the claim.
        region: Values for which the claim is true.
        scale: Scale of the mean.
        fields: Further fields of `Claim`.
    """

    def claim(ending: str, uncounted: Mapping[str, Claim]) -> Claim:
        return Claim(
            text=f"{text} (batches of 64)",
            source=source,
            quantity=quantity(key + ending),
            region=region,
            scale=scale,
            uncounted=uncounted,
            **{"groups": "data", "unit": "data sets", "tell": tell_ends(key + ending, "test")}
            | fields,
        )

    return claim("_batch", {"exact values": claim("", {})})


def collapse_mir_of(run: Run) -> float:
    """Return the MIR at collapse to a simplex of the run's number of classes; NaN without rows."""
    path = run.path("test")
    return collapse_mir(int(path[-1]["num_classes"])) if path else float("nan")


def draw_collapse(axes: Axes, runs: Runs, label: str = "at collapse to a simplex") -> None:
    """Draw the MIR at collapse to a simplex, which depends on the number of classes."""
    for value in sorted({collapse_mir_of(run) for run in runs if run.path("test")}):
        draw_reference(axes, value, label)
