"""A tiny classifier under Lightning's trainer; as a program, on one process or two."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from ncscope.integrations.lightning import NeuralCollapseCallback
from ncscope.integrations.torchmetrics import NeuralCollapse
from ncscope.models.networks.residual import ResidualNet

EPOCHS = 3


class Classifier(LightningModule):
    """Trains a residual network, counts its forward passes, and knows the trainer's metric."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net, self.loss = ResidualNet(6, 8, 2, 4).double(), nn.CrossEntropyLoss()
        self.metric = NeuralCollapse(4, 8, keep_features=True)
        self.passes = 0
        self.net.register_forward_pre_hook(self.count)

    def count(self, module: nn.Module, args: Any) -> None:
        self.passes += 1

    def train_dataloader(self) -> DataLoader[Any]:
        return self.share(48, 0)

    def val_dataloader(self) -> DataLoader[Any]:
        return self.share(32, 1)

    def share(self, count: int, seed: int) -> DataLoader[Any]:
        """This process's samples of each batch of 16, in order."""
        own = range(self.trainer.global_rank, count, self.trainer.world_size)
        rows = Subset(samples(count, seed), own)
        return DataLoader(rows, batch_size=16 // self.trainer.world_size)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return self.loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        self.net(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def samples(count: int, seed: int) -> TensorDataset:
    labels = torch.arange(count) % 4
    noise = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset((noise + 2 * torch.eye(6)[labels]).double(), labels)


def fit(
    callback: NeuralCollapseCallback | None,
    processes: int = 1,
    kind: type[Classifier] = Classifier,
    **settings: Any,
) -> tuple[Trainer, Classifier]:
    model = kind()
    trainer = Trainer(
        accelerator=settings.pop("accelerator", "cpu"),
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        max_epochs=EPOCHS,
        callbacks=[] if callback is None else [callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # it would shuffle
        **settings,
    )
    trainer.fit(model)
    return trainer, model


def metric_values(model: Classifier, trainer: Trainer) -> list[dict[str, float]]:
    """Of moments and of features kept, which only the first process has any of."""
    inputs, labels = samples(40, 2).tensors
    own = slice(trainer.global_rank, None, trainer.world_size)
    head = model.net.classifier
    shared, lonely = NeuralCollapse(6, 6), NeuralCollapse(4, 6, keep_features=True)
    shared.update(inputs[own], labels[own], torch.eye(6))
    for rows in (slice(25), slice(25, None)):
        if trainer.global_rank == 0:
            lonely.update(inputs.float()[rows], labels[rows], torch.eye(4, 6), head.bias)
    before = shared.moments
    values = [metric.compute() for metric in (shared, lonely)]
    assert torch.equal(shared.moments, before)  # its own share again
    return [{key: value.item() for key, value in found.items()} for found in values]


def main(processes: int, out: Path) -> None:
    torch.set_num_threads(1)
    found = {}
    for train in ("pass", "steps"):
        callback = NeuralCollapseCallback(train=train)
        trainer, model = fit(callback, processes)
        found[train] = {name: asdict(record) for name, record in callback.latest.items()}
    found["metric"] = metric_values(model, trainer)
    out.with_suffix(f".{trainer.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
