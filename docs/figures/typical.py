"""Measure typical values of every metric for the docs: ``python docs/figures/typical.py``.

A perceptron of five layers on scikit-learn's digits: untrained, after 20 epochs, and long after its
training error is zero. The OOD samples are turned letters. The values go to
docs/figures/typical.json, which the metrics page shows.
"""

import json
from itertools import pairwise
from pathlib import Path

import torch
from out_of_distribution import letters
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ncscope

EPOCHS = {"untrained": 0, "trained": 20, "long trained": 400}


def main() -> None:
    """Train, measure and write the values."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    data = TensorDataset(images, torch.tensor(digits.target))
    widths = [64, 256, 256, 256, 256]
    hidden = [
        layer
        for before, after in pairwise(widths)
        for layer in (nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU())
    ]
    model = nn.Sequential(*hidden, nn.Linear(widths[-1], 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS["long trained"])
    loader = DataLoader(data, batch_size=128, shuffle=True)
    values, epoch = {}, 0
    for name, until in EPOCHS.items():
        while epoch < until:
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            slower.step()
            epoch += 1
        report = ncscope.measure_model(
            model,
            DataLoader(data, batch_size=512),
            layers=[],
            progress=False,
            ood=[letters(400, seed=0)],
        )
        values[name] = {key: float(f"{value:.3g}") for key, value in report.items()}
    path = Path(__file__).with_name("typical.json")
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
