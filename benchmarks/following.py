"""Cost of following training, against a forward pass; and the papers' figures by descent."""

import time
from dataclasses import replace
from tempfile import TemporaryDirectory

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.measure import Row, compare
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.networks.catalogue import build, layers_to_tap
from ncscope_lab import execution

_FIGURES = ("xufm/ufm", "xufm/extended", "pfc/mufm")
_LAST = ("nc1", "nc2", "nc3", "nc4", "pfc", "mse")


def following(device: str) -> list[Row]:
    """ResNet-18 on 2,500 images of CIFAR's size: the last layer, then every block."""
    images, labels = torch.randn(2500, 3, 32, 32), torch.arange(2500) % 10
    loader = DataLoader(TensorDataset(images, labels), 50)
    model = build("resnet18", 10).to(device)

    def forward() -> None:
        with evaluation_mode(model):
            for batch, _ in loader:
                model(batch.to(device))

    def probe(layers: list[str]) -> None:
        measure_layers(model, loader, Options(layers=layers, groups=_LAST))

    name = "following ResNet-18 on 2,500 images of 32 x 32, last layer"
    last = compare(name, lambda: probe([]), forward, 1.2, device, rounds=1)
    blocks = layers_to_tap(model)
    name = "the same, every block: 8,192 to 65,536 features, PFC1-3"
    every = compare(name, lambda: probe(blocks), forward, 1.2, device, rounds=1)
    return [last, replace(every, target="reported", met=True)]


def figures(device: str) -> list[Row]:
    """Draw the papers' figures by plain descent at paper scale, with claims, on the CPU."""
    start = time.perf_counter()
    with TemporaryDirectory() as folder:
        for name in _FIGURES:
            execution.run(name, out=f"{folder}/{name.replace('/', '-')}", scale="paper")
    seconds = time.perf_counter() - start
    name = "XUFM figures 1-4, 6-9 and PFC figures 4-5, with their claims"
    return [Row(name, f"{seconds:.0f} s", "-", None, "< 60 s", seconds < 60)]
