"""Measure OOD detection on small images: ``python docs/figures/out_of_distribution.py``.

Perceptrons learn the digits 0 to 4 of scikit-learn from three seeds. Outside are the digits 5 to 9,
letters turned by 90 degrees, and digits with shuffled pixels. The values go to
docs/figures/out-of-distribution.json, which the tutorial shows.
"""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ncscope

SEEDS = (0, 1, 2)
EPOCHS = {"5": 5, "200": 200}


def digits(below: bool) -> tuple[Tensor, Tensor]:
    """Return images and labels of the digits 0 to 4, or of 5 to 9."""
    data = load_digits()
    kept = (data.target < 5) == below
    return torch.tensor(data.data[kept] / 16).float(), torch.tensor(data.target[kept])


def letters(count: int, seed: int) -> Tensor:
    """Draw capital letters of 8 x 8 pixels in random places, turned by 90 degrees."""
    rng, font = np.random.default_rng(seed), ImageFont.load_default(26)
    images = []
    for _ in range(count):
        image = Image.new("L", (32, 32))
        letter = str(rng.choice(list("ABEFGHKMNPRTWX")))
        place = (16 + rng.integers(-2, 3), 16 + rng.integers(-2, 3))
        ImageDraw.Draw(image).text(place, letter, fill=255, font=font, anchor="mm")
        small = image.rotate(90).resize((8, 8), Image.Resampling.BOX)
        images.append(np.asarray(small) / 255)
    return torch.tensor(np.stack(images)).float().flatten(1)


def shuffled(images: Tensor, seed: int) -> Tensor:
    """Shuffle the pixels of each image by themselves."""
    order = torch.rand(images.shape, generator=torch.Generator().manual_seed(seed)).argsort(1)
    return images.gather(1, order)


def trained(images: Tensor, labels: Tensor, epochs: int, seed: int) -> nn.Module:
    """Train a perceptron of three layers."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def outside(inside: Tensor, seed: int) -> dict[str, Tensor]:
    """Return the three kinds of OOD samples.

    Args:
        inside: Images to shuffle.
        seed: Seed of letters and shuffling.
    """
    return {
        "digits 5 to 9": digits(below=False)[0],
        "turned letters": letters(400, seed),
        "shuffled pixels": shuffled(inside, seed),
    }


def measured(epochs: int, seed: int) -> dict[str, dict[str, float]]:
    """Train on half of the digits 0 to 4, and compare the other half with OOD samples."""
    images, labels = digits(below=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, test = order.chunk(2)
    model = trained(images[train], labels[train], epochs, seed)
    options = {"layers": [], "progress": False}
    reference = ncscope.measure_model(model, [(images[train], labels[train])], **options)
    values = {}
    for name, others in outside(images[test], seed).items():
        report = ncscope.measure_model(
            model,
            [(images[test], labels[test])],
            ood=[others],
            reference=reference,
            groups=["ood", "accuracy", "nc1_quotient"],
            **options,
        )
        values[name] = dict(report)
    return values


def main() -> None:
    """Measure every length of training on every seed, and write mean and standard deviation."""
    table = {}
    for name, epochs in EPOCHS.items():
        runs = [measured(epochs, seed) for seed in SEEDS]
        table[name] = {
            kind: {
                key: [round(float(stat([run[kind][key] for run in runs])), 4) for stat in STATS]
                for key in runs[0][kind]
            }
            for kind in runs[0]
        }
    path = Path(__file__).with_name("out-of-distribution.json")
    path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def _deviation(values: list[float]) -> float:
    return float(np.std(values, ddof=1))


STATS = (np.mean, _deviation)


if __name__ == "__main__":
    main()
