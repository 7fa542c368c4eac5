"""LightningModules written as public training scripts are; as a program, on two processes."""

import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from ncscope.integrations.lightning import NeuralCollapseCallback

LABELS = torch.arange(48) % 4
INPUTS = torch.randn(48, 6, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(6)[LABELS]
DATA = TensorDataset(INPUTS, LABELS)


class Noisy(Dataset):
    """Augments by global random generators."""

    def __len__(self) -> int:
        return len(DATA)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, label = DATA[index]
        noise = np.random.rand() + torch.rand(())  # noqa: NPY002
        return inputs + 0.1 * noise, label


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(self.a(x).relu())


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.blocks = nn.Sequential(Block(), Block())
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.blocks(self.norm(self.stem(x))).relu())


class Apart(LightningModule):
    """A backbone and a head, called apart; logs its accuracy in percent."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.backbone, self.head = Backbone(), nn.Linear(8, 4)
        self.loss = nn.CrossEntropyLoss()

    def logits(self, x: Any) -> Tensor:
        return self.head(self.backbone(x))

    def unpacked(self, batch: Any) -> tuple[Any, Tensor]:
        return batch[0], batch[1]

    def training_step(self, batch: Any, index: int) -> Tensor:
        inputs, labels = self.unpacked(batch)
        return self.loss(self.logits(inputs), labels)

    def validation_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> None:
        inputs, labels = self.unpacked(batch)
        right = 100 * (self.logits(inputs).argmax(1) == labels).float().mean()
        self.log("val/accuracy", right, sync_dist=True, add_dataloader_idx=False)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)

    def train_dataloader(self) -> Any:
        return DataLoader(Noisy(), batch_size=16, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(DATA, batch_size=10)


def fit(
    callbacks: list[Callback], module: LightningModule | None = None, **settings: Any
) -> tuple[Trainer, LightningModule]:
    module = Apart() if module is None else module
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(
        **{
            "accelerator": "cpu",
            "max_epochs": 2,
            "enable_model_summary": False,
            **quiet,
            **settings,
        },
        callbacks=callbacks,
    )
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(2)
    trainer.fit(module)
    return trainer, module


def states() -> list[Any]:
    """The global random states; not Python's, from which beartype draws in the suite."""
    numbers = np.random.get_state()  # noqa: NPY002
    return [numbers[1].tolist(), numbers[2], torch.get_rng_state().tolist()]


class Stream(IterableDataset):
    """Data without a length and without an end."""

    def __iter__(self) -> Any:
        while True:
            yield from DATA


class OnRankOne(Apart):
    """Its labels are out of range in the last batches of one process."""

    def validation_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> None:
        super().validation_step(batch, index)
        if self.trainer.global_rank == 1 and not self.trainer.sanity_checking:
            batch[1].add_(1000)

    def val_dataloader(self) -> Any:
        copy = TensorDataset(INPUTS, LABELS.clone())
        return DataLoader(copy, batch_size=10)


class Whole(Apart):
    """It calls itself."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x))

    def logits(self, x: Any) -> Tensor:
        return self(x)


def main(out: Path) -> None:
    torch.set_num_threads(1)
    found = {}
    ddp = {"devices": 2, "strategy": "ddp"}
    for kind in (Apart, Whole, OnRankOne):
        weights, left = [], []
        for watched in (False, True):
            callback = NeuralCollapseCallback()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                trainer, module = fit([callback] if watched else [], kind(), **ddp)
            weights.append(torch.cat([each.flatten() for each in module.state_dict().values()]))
            left.append([*states(), random.getstate()])
        found[kind.__name__] = {
            "same": bool(torch.equal(*weights)) and left[0] == left[1],
            "logged": {key: float(each) for key, each in trainer.callback_metrics.items()},
            "steps": [(each.split, each.step) for each in callback.history],
            "samples": [each.model_record.layers[-1].num_samples for each in callback.history],
            "warnings": [str(each.message) for each in caught if "neural" in str(each.message)],
        }
    out.with_suffix(f".{trainer.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
