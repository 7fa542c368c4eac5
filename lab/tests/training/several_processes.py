"""A program that Fabric launches on one process or more: measure, train, measure again."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import nn

from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.models.networks.residual import ResidualNet
from ncscope_lab.training.loop import supervised, train
from ncscope_lab.training.optimisation import Optimisation, learner

SAMPLES, BATCH, EPOCHS = 40, 10, 5
GROUPS = ("nc1", "nc2", "nc3", "nc4", "pfc", "mse", "information")


def main(processes: int, out: Path) -> None:
    torch.set_num_threads(1)
    fabric = Fabric(
        accelerator="cpu", devices=processes, strategy="ddp" if processes > 1 else "auto"
    )
    fabric.launch()
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(SAMPLES) % 4
    inputs = torch.randn(SAMPLES, 6, generator=generator).double() + labels[:, None]
    torch.manual_seed(1)
    model = ResidualNet(6, 8, 3, 4).double()

    def shares(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        own = rows[fabric.global_rank :: fabric.world_size]
        return inputs[own], labels[own]

    def batches(epoch: int, first: int):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        return (shares(rows) for rows in order.split(BATCH)[first:])

    def measured() -> dict:
        loader = [shares(rows) for rows in torch.arange(SAMPLES).split(BATCH)]
        options = Options(layers=["stem", "blocks.*"], groups=GROUPS, layer_groups=("nc1", "pfc"))
        return asdict(measure_layers(model, loader, options).record)

    before = measured()
    settings = Optimisation(epochs=EPOCHS, learning_rate=0.05)
    loss = supervised(nn.functional.cross_entropy)
    start = learner(model, settings)
    steps = [end.step for end in train(fabric, start, batches, loss, EPOCHS)]
    after = measured()
    if fabric.is_global_zero:
        out.write_text(json.dumps({"before": before, "after": after, "step": steps[-1]}))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
