"""A loop, a network and data of your own, as an experiment."""

from functools import partial

import torch
from pydantic import BaseModel
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ncscope
import ncscope_lab as lab


class Settings(BaseModel):
    """Settings that --set changes."""

    epochs: int = 30
    seeds: tuple[int, ...] = (1, 2, 3)


def train(settings, seed, resources):
    """Train a perceptron, and yield what is measured before training and after every epoch."""
    torch.manual_seed(seed)
    pixels, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
    loader = DataLoader(TensorDataset(pixels.float() / 16, digits), 128, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    descent = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for epoch in range(settings.epochs + 1):
        for images, labels in loader if epoch else ():
            descent.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            descent.step()
        report = ncscope.measure_model(
            model, loader, layers=[], groups=["nc1", "nc4"], progress=False
        )
        values = {key: report[key] for key in ("accuracy", "nc1")}
        yield lab.Observation(step=epoch, epoch=epoch, values=values)


def list_parts(settings):
    """Return a part for each seed."""
    measurements = settings.epochs + 1
    return [
        lab.Part(f"seed {seed}", measurements, partial(train, settings, seed))
        for seed in settings.seeds
    ]


EXPERIMENT = lab.Experiment(
    title="A loop of my own",
    question="Does the variability within classes fall while a perceptron trains?",
    source="ours",
    scales={"small": Settings()},
    parts=list_parts,
    claims=[
        lab.Claim(
            text="NC1 falls by a factor of 1.1",
            source="ours",
            quantity=lab.last_over_first("nc1"),
            region=lab.below(1 / 1.1),
            scale="ratio",
        )
    ],
    figures=lambda settings, runs: [],
    columns=("epoch", "accuracy", "nc1"),
)
