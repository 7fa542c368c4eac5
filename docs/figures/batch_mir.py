"""Curves of the batch estimate of MIR against the batch size, its figure and its page.

Cost: about two minutes on two cores. Command: ``python docs/figures/batch_mir.py`` writes
``docs/batch-estimate.md`` and ``docs/images/batch-estimate.svg``.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning.fabric import Fabric
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader

import ncscope
from ncscope.data.digits import read_digits
from ncscope.metrics.information import collapse_mir
from ncscope.models.networks.residual import ResidualNet
from ncscope_lab.runs.reproducible import reproducible
from ncscope_lab.training.learner import Learner
from ncscope_lab.training.loop import supervised, train

DOCS = Path(__file__).parents[1]
SIZES = (16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Features:
    """Features, labels and the classifier's weight, and what they are."""

    name: str
    rows: Tensor
    labels: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Curve:
    """The estimate at each batch size, and the exact value of the whole data set."""

    name: str
    samples: int
    exact: float
    estimates: list[ncscope.BatchInformation]


def gaussian_features(samples: int = 50_000) -> Features:
    """Ten classes of unit variance in 128 dimensions, means of deviation one half."""
    generator = torch.Generator().manual_seed(0)
    means = 0.5 * torch.randn(10, 128, generator=generator)
    labels = torch.randint(0, 10, (samples,), generator=generator)
    rows = means[labels] + torch.randn(samples, 128, generator=generator)
    return Features("Gaussian classes", rows, labels, means)


def digits_features(epochs: int) -> Features:
    """Last-layer features of a small residual net trained on digits by plain cross-entropy."""
    with reproducible(0):
        data = read_digits().train
        model = ResidualNet(64, 64, 3, num_classes=10)
        fabric = Fabric(accelerator="cpu", devices=1)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
        constant = torch.optim.lr_scheduler.ConstantLR(optimiser, factor=1.0)
        order = torch.Generator().manual_seed(0)
        loader = DataLoader(data, 64, shuffle=True, generator=order)
        learner, loss = Learner(model, optimiser, constant), supervised(nn.CrossEntropyLoss())
        list(train(fabric, learner, lambda epoch, first: loader, loss, epochs))
        images, labels = data.tensors
        with torch.no_grad():
            rows = model.blocks(model.stem(images))
    name = f"Digits, {epochs} epoch{'s' * (epochs > 1)}"
    return Features(name, rows, labels, model.classifier.weight.detach())


def curve(features: Features) -> Curve:
    """Estimate at every batch size that gives two whole batches."""
    sizes = [size for size in SIZES if 2 * size <= len(features.labels)]
    parts = (features.rows, features.labels, features.weight)
    estimates = [ncscope.batch_information(*parts, batch_size=size) for size in sizes]
    exact = ncscope.measure(*parts, groups=["information"])["mir"]
    return Curve(features.name, len(features.labels), exact, estimates)


def figure(curves: list[Curve]) -> Figure:
    """Estimates with their spread against batch size, the exact values as dashed lines."""
    drawn = Figure(figsize=(7, 4.2), layout="constrained")
    axes = drawn.add_subplot()
    for colour, own in zip(("#0072b2", "#d55e00", "#009e73"), curves, strict=True):
        sizes = [estimate.batch_size for estimate in own.estimates]
        means = [estimate.mir for estimate in own.estimates]
        spreads = [estimate.mir_spread for estimate in own.estimates]
        axes.errorbar(sizes, means, spreads, color=colour, marker="o", capsize=3, label=own.name)
        axes.axhline(own.exact, color=colour, linestyle="--", linewidth=1)
    axes.axhline(collapse_mir(10), color="0.4", linestyle=":", linewidth=1.2)
    axes.annotate("at collapse to a simplex", (SIZES[-1], collapse_mir(10)), (2, -10),
                  textcoords="offset points", color="0.3", fontsize=8, ha="right")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(SIZES, [str(size) for size in SIZES])
    axes.set(xlabel="batch size", ylabel="MIR", title="Dashed: exact value of the whole data set")
    drawn.legend(frameon=False, loc="outside lower center", ncols=len(curves))
    return drawn


def table(curves: list[Curve]) -> str:
    """Mean and spread of the estimate by batch size, and the exact value, in Markdown."""
    head = "| batch size | " + " | ".join(own.name for own in curves) + " |"
    lines = [head, "|" + "---|" * (len(curves) + 1)]
    for place, size in enumerate(SIZES):
        cells = [
            f"{own.estimates[place].mir:.3f} ± {own.estimates[place].mir_spread:.3f}"
            if place < len(own.estimates)
            else "–"
            for own in curves
        ]
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    lines.append("| **whole set, exact** | " + " | ".join(f"{c.exact:.3f}" for c in curves) + " |")
    return "\n".join(lines)


def page(curves: list[Curve]) -> str:
    """Write the page of the documentation; every number in it is from the curves."""
    gaussian = curves[0]
    at_64 = next(e.mir for e in gaussian.estimates if e.batch_size == 64)
    counts = ", ".join(f"{own.samples:,}" for own in curves)
    return f"""# The batch estimate of MIR

The matrix mutual information ratio was published as an average over batches, because its
definition forms n x n matrices. `ncscope.measure` gives it for the whole data set, exactly.
The two are different numbers: a batch of b samples has no more than b directions to spread over,
and the smaller it is, the larger the ratio comes out.

![MIR estimated at batch sizes from 16 to 1024, against the exact value](images/batch-estimate.svg)

Mean ± standard deviation over batches ({counts} samples):

{table(curves)}

On Gaussian classes a batch of 64 gives {at_64:.3f} where the whole set has {gaussian.exact:.3f}.
A figure made with one batch size can be compared with itself over training, but not with a
figure made with another, and not with the value at collapse ({collapse_mir(10):.4f} for ten
classes, the dotted line).

To reproduce an estimate: `ncscope.batch_information(features, labels, weight, batch_size=64)`.
This page, its figure and its numbers are written by `python docs/figures/batch_mir.py`.
"""


def main(docs: Path = DOCS) -> None:
    """Compute the curves, and write the page and the figure."""
    curves = [curve(f) for f in (gaussian_features(), digits_features(1), digits_features(100))]
    figure(curves).savefig(docs / "images" / "batch-estimate.svg", metadata={"Date": None})
    (docs / "batch-estimate.md").write_text(page(curves), encoding="utf-8")
    print(table(curves))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
