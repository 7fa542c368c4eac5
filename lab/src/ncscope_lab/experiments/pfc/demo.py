r"""The demo: neural collapse of a fully connected residual net on scikit-learn's digits.

Source: PFC table I and section IV-A, at digits' size. Command: ``ncscope demo``, or ``ncscope run
pfc/demo``. One network trains from one seed, 0, and a claim holds if its one value lies in the
region. The settings were chosen with their results in view, so the demo illustrates and is no
evidence.

The scale ``paper`` has the paper's loss, momentum and decay: plain cross-entropy, 0.9 and 5e-4
(rate 0.02, batches of 128, pixels of deviation 1). With them collapse stops early. The small scale
differs, for these reasons:

* Cross-entropy saturates. Once the error is zero, the loss of most samples is too small to move
  them, and digits are nearly linearly separable: a solution that passes the input's spread on
  through the identity path satisfies loss and decay. Longer training, other rates, decays,
  batches or schedules end near this solution, and so does another scale of the blocks'
  initialisation. Smoothed labels are reached at finite logits, equal for all samples of a class,
  so the loss continues to reduce the features' spread.
* The class means keep components that the intermediate blocks wrote into the stream and that the
  classifier does not read. They increase the distances from the ETF and from self-duality. A
  strong decay makes the classifier small, so the components that it reads must be large.
* With small inputs, the features that the blocks build outweigh those that the stem passes on.
* Decay acts within (1 - momentum) / (rate x decay) steps, 10,000 at the scale ``paper``; 12 steps
  per epoch at a rate that is divided by 10 early amount to a tenth of that. Hence the smaller
  batches, the higher rate and the cosine. They do not suffice alone.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from lightning.fabric import Fabric
from pydantic import Field
from scipy.stats import spearmanr
from torch import nn
from torch.utils.data import DataLoader

from ncscope.data.digits import read_digits
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.metrics.layerwise import effective_depth, order_breaks
from ncscope.models.networks.residual import ResidualNet
from ncscope.report.figures import plot_panels, plot_run
from ncscope.report.labels import NC_METRICS
from ncscope_lab.claims import Claim, below
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.observations import Event, Heartbeat
from ncscope_lab.quantities import Path, Quantity, Run, Runs, quantity, values, zero_error_row
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.reproducible import reproducible
from ncscope_lab.runs.resources import Resources
from ncscope_lab.runs.settings import Config
from ncscope_lab.training.learner import Learner
from ncscope_lab.training.loop import log_spaced_epochs, supervised, train
from ncscope_lab.training.supervised import measurement_at

PART = "digits"


class DemoConfig(Config):
    """Settings of the demo."""

    width: int = Field(128, ge=1, description="Dimension of every layer's features.")
    depth: int = Field(8, ge=1, description="Number of residual blocks.")
    pixel_deviation: float = Field(0.3, gt=0, description="Standard deviation of the pixels.")
    epochs: int = Field(200, ge=1, description="Passes over the training set.")
    batch_size: int = Field(64, ge=1, description="Samples per step.")
    learning_rate: float = Field(
        0.1, gt=0, description="Initial learning rate of SGD, annealed to zero along a cosine."
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD.")
    weight_decay: float = Field(2e-4, ge=0, description="Decay of stem and blocks.")
    head_weight_decay: float = Field(0.05, ge=0, description="Decay of the classifier.")
    label_smoothing: float = Field(
        0.1, ge=0, lt=1, description="Share of each label spread evenly over the classes."
    )
    measurements: int = Field(
        16, ge=2, description="Approximate number of measured epochs, log-spaced."
    )
    seed: int = Field(
        0, ge=0, lt=2**63, description="Seed of weights, data order and held-out set."
    )


SMALL = DemoConfig()
PAPER = DemoConfig(
    pixel_deviation=1.0,
    batch_size=128,
    learning_rate=0.02,
    weight_decay=5e-4,
    head_weight_decay=5e-4,
    label_smoothing=0.0,
)

FALLS = {"pfc1": True, "pfc2": True, "pfc3": False}
FACTOR = 1.1  # least factor by which a metric falls past zero error; the paper states no number
TREND = -0.7  # largest rank correlation with the epoch that counts as a fall
LEAST_LAYERS = 4  # fewer layers often have an order by chance


def list_claims(settings: DemoConfig) -> list[Claim]:
    """Return neural collapse past zero training error, and its order over the layers at the end."""
    claim = partial(Claim, rule="all", where=PART)
    features, frame, head = (
        "NC1: features keep shrinking to their class means after zero training error",
        "NC2: class means keep approaching a simplex ETF after zero training error",
        "NC3: the classifier keeps aligning with the class means",
    )
    return [
        claim(
            text="Training goes past zero training error: once it is zero, it is at every measured "
            "epoch",
            source="PFC, conjecture 1",
            quantity=count_errors,
            region=below(1),
            tell=tell_zero_error,
        ),
        *(
            claim(
                text=f"{text}, by a factor of {FACTOR} and with a rank correlation with the epoch "
                f"below {TREND}",
                source="PFC, section II-A",
                quantity=trend_of_fall(key),
                region=below(TREND),
                tell=partial(tell_fall, key),
            )
            for key, text in (("nc1", features), ("nc2_etf", frame), ("nc3_self_duality", head))
        ),
        claim(
            text="NC4: the classifier is the nearest-class-mean rule on the training set, at every "
            "measured epoch from zero training error on",
            source="PFC, section II-A",
            quantity=count_disagreements,
            region=below(1),
            tell=tell_disagreements,
        ),
        *(
            claim(
                text=f"{key.upper()} {'falls' if falls else 'rises'} from layer to layer up to the "
                "first layer without NCC error",
                source="PFC, conjecture 1 and figure 3",
                quantity=steps_the_wrong_way(key),
                region=below(1),
                tell=partial(tell_order, key),
            )
            for key, falls in FALLS.items()
        ),
    ]


def past_zero_error(run: Run) -> Path:
    """Return the last layer's rows from zero training error on."""
    reached = zero_error_row(run.path())
    return [] if reached is None else [row for row in run.path() if row.epoch >= reached.epoch]


@quantity("epochs with an error")
def count_errors(run: Run) -> float:
    """Return the number of epochs with an error past zero error; infinity without such epochs."""
    accuracy = values(past_zero_error(run), "accuracy")
    return sum(value < 1 for value in accuracy) if len(accuracy) > 1 else math.inf


def tell_zero_error(runs: Runs) -> str:
    """Write when the error is zero, and the accuracy at the end."""
    past, final = past_zero_error(runs[0]), runs[0].path()[-1]
    when = f"by epoch {past[0].epoch}" if past else "never at a measured epoch"
    return (
        f"zero error {when}; {len(past)} measured epochs from then on; training accuracy "
        f"{final['accuracy']:.4f} at epoch {final.epoch}"
    )


def trend_past_zero_error(key: str, run: Run) -> float:
    """Return the rank correlation of a metric past zero error with the epoch; NaN for a few."""
    past = past_zero_error(run)
    course = values(past, key)
    if len(course) < 3 or len(set(course)) == 1 or not all(map(math.isfinite, course)):
        return math.nan
    return float(spearmanr([row.epoch for row in past], course).statistic)


def trend_of_fall(key: str) -> Quantity:
    """Return the quantity of a trend: infinity, not the rank correlation, for a fall too small."""

    def compute(run: Run) -> float:
        trend, course = trend_past_zero_error(key, run), values(past_zero_error(run), key)
        return trend if math.isnan(trend) or FACTOR * course[-1] < course[0] else math.inf

    return Quantity("rank correlation", compute)


def tell_fall(key: str, runs: Runs) -> str:
    """Write a metric at zero error and at the end."""
    past, trend = past_zero_error(runs[0]), trend_past_zero_error(key, runs[0])
    if math.isnan(trend):
        return f"{len(past)} measurements at zero training error"
    return (
        f"{key} {past[0][key]:.3g} at epoch {past[0].epoch}, {past[-1][key]:.3g} at epoch "
        f"{past[-1].epoch}; rank correlation {trend:.2f}"
    )


@quantity("epochs with a disagreement")
def count_disagreements(run: Run) -> float:
    """Return the number of epochs past zero error with a disagreement; NaN for fewer than two."""
    course = values(past_zero_error(run), "nc4_disagreement")
    known = len(course) > 1 and all(map(math.isfinite, course))
    return sum(value > 0 for value in course) if known else math.nan


def tell_disagreements(runs: Runs) -> str:
    """Write the largest disagreement."""
    course = values(past_zero_error(runs[0]), "nc4_disagreement")
    largest = max(course, default=math.nan)
    return f"largest disagreement {largest:.3g} at {len(course)} measured epochs"


def list_comparable(run: Run) -> Path:
    """List the layers at the end up to the effective depth; PFC IV-A claims nothing beyond."""
    layers = run.layers()
    depth = effective_depth(values(layers, "pfc3"))
    return layers if depth is None else layers[: depth + 1]


def steps_the_wrong_way(key: str) -> Quantity:
    """Return the quantity of steps the wrong way; NaN for few layers, or one not measured."""

    def compute(run: Run) -> float:
        course = values(list_comparable(run), key)
        known = len(course) >= LEAST_LAYERS and all(map(math.isfinite, course))
        return len(order_breaks(course, FALLS[key])) if known else math.nan

    return Quantity("steps the wrong way", compute)


def tell_order(key: str, runs: Runs) -> str:
    """Write a metric of the first layer and the last, and the steps the wrong way."""
    layers = list_comparable(runs[0])
    course = values(layers, key)
    breaks = order_breaks(course, FALLS[key])
    worst = max((step for _, step in breaks), default=0.0)
    broken = f"; {len(breaks)} steps the wrong way, by {worst:.2g} at most" if breaks else ""
    return f"{course[0]:.3g} at {layers[0].layer}, {course[-1]:.3g} at {layers[-1].layer}{broken}"


def draw_figures(settings: DemoConfig, runs: Runs) -> list[Drawing]:
    """Draw two figures: NC1 to NC4 for a column of a paper, and the run with its layers."""
    caption = (
        "Training set. Left: collapse of the last layer over training. Middle: PFC1 from layer to "
        "layer, early and late, with the geodesic's prediction. Right: cosines between the class "
        "means at the end, and those of the simplex ETF."
    )
    measurements = runs.find(PART).measurements
    if not measurements:
        return []
    of_paper = "NC1 to NC4 of the last layer over training, 0 at full collapse."
    return [
        Drawing("nc", of_paper, plot_panels(measurements, NC_METRICS)),
        Drawing("demo", caption, plot_run(measurements)),
    ]


def train_demo(settings: DemoConfig, resources: Resources | None = None) -> Iterator[Event]:
    """Train, and measure every layer at log-spaced epochs on training and held-out data.

    Args:
        settings: Settings of the demo.
        resources: Unused: the run takes seconds on the CPU, and a stopped run starts again.

    Yields:
        Measurements in order of time, training before held-out, and a heartbeat after each epoch.
        Equal settings yield equal events.
    """
    options = Options(
        layers=("stem", "blocks.*"),
        layer_groups=("nc1", "nc2", "nc4", "pfc"),
        weight_decay=settings.head_weight_decay,
        progress=False,
    )
    due = set(log_spaced_epochs(settings.epochs, settings.measurements))
    with reproducible(settings.seed):
        data = read_digits(seed=settings.seed, deviation=settings.pixel_deviation)
        model = ResidualNet(64, settings.width, settings.depth, num_classes=10)
        fabric = Fabric(accelerator="cpu", devices=1)
        fabric.launch()
        groups: list[dict[str, Any]] = [
            {"params": [*model.stem.parameters(), *model.blocks.parameters()]},
            {"params": model.classifier.parameters(), "weight_decay": settings.head_weight_decay},
        ]
        optimiser = torch.optim.SGD(
            groups,
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.epochs)
        order = torch.Generator().manual_seed(settings.seed)
        batches = DataLoader(data.train, settings.batch_size, shuffle=True, generator=order)
        loss = supervised(nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing))
        learner = Learner(model, optimiser, schedule)
        for end in train(fabric, learner, lambda epoch, first: batches, loss, settings.epochs):
            if end.epoch in due:
                train_set = measure_layers(model, DataLoader(data.train, len(data.train)), options)
                # Held-out images are measured by the class means of the training set.
                test_set = measure_layers(
                    model, DataLoader(data.test, len(data.test)), options, train_set.statistics
                )
                last_loss = {} if end.epoch == 0 else {"loss": end.loss}
                yield measurement_at(end, train_set.record, "train", last_loss)
                yield measurement_at(end, test_set.record, "test", {})
            if end.epoch:
                yield Heartbeat()


EXPERIMENT = Experiment(
    id="pfc/demo",
    title="Neural collapse of a residual network on handwritten digits",
    question=(
        "A fully connected residual network learns scikit-learn's handwritten digits, and training "
        "continues past zero training error. Features of every layer are measured at log-spaced "
        "epochs, on the training set and on held-out images."
    ),
    source="PFC section IV-A and table I, at the size of digits",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "15 seconds on one core", "small": "15 seconds on one core"},
    parts=lambda settings: [
        Part(PART, settings.epochs, partial(train_demo, settings), trains=True)
    ],
    claims=list_claims,
    figures=draw_figures,
    columns=("epoch", "accuracy", "nc1_quotient", "nc2_etf", "nc3_self_duality", "ncc_accuracy"),
)
