"""NC1-NC4 at ImageNet's size, and PFC1-3 of a convolutional layer, against their floors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import ncscope
from benchmarks.measure import Row, compare

GROUPS = ("nc1", "nc2", "nc3", "nc4")


@dataclass(frozen=True)
class Data:
    """Features of classes with Gaussian means, and a random classifier."""

    features: Tensor
    labels: Tensor
    weight: Tensor
    means: Tensor


def gaussian_classes(n: int, d: int, k: int, device: str) -> Data:
    """Unit-variance classes around means of deviation 0.3 a coordinate, in float32."""
    generator = torch.Generator(device).manual_seed(0)
    means = 0.3 * torch.randn(k, d, device=device, generator=generator)
    labels = torch.randint(0, k, (n,), device=device, generator=generator)
    features = torch.randn(n, d, device=device, generator=generator) + means[labels]
    weight = torch.randn(k, d, device=device, generator=generator)
    return Data(features, labels, weight, means)


def three_products(data: Data) -> Callable[[], Any]:
    """Return the products that the suite cannot avoid, in the features' own precision."""
    return lambda: (
        data.features.T @ data.features,
        data.features @ data.means.T,
        data.features @ data.weight.T,
    )


def suite(data: Data) -> Callable[[], Any]:
    """NC1-NC4 with CDNV and VCI through the front door."""
    return lambda: ncscope.measure(data.features, data.labels, data.weight, groups=GROUPS)


def imagenet_512(device: str) -> list[Row]:
    """50,000 x 512, K=1000: at most 2.5 x the three products."""
    data = gaussian_classes(50_000, 512, 1000, device)
    return [
        compare("NC1-NC4, 50,000 x 512, K=1000", suite(data), three_products(data), 2.5, device)
    ]


def imagenet_2048(device: str) -> list[Row]:
    """20,000 x 2048, K=1000: at most 2 x, the decompositions included."""
    data = gaussian_classes(20_000, 2048, 1000, device)
    name = "NC1-NC4, 20,000 x 2048, K=1000"
    return [compare(name, suite(data), three_products(data), 2.0, device, rounds=3)]


def conv_layer(device: str) -> list[Row]:
    """PFC1-3 of a 64 x 16 x 16 layer: at most 5 x one read of the features."""
    data = gaussian_classes(4_000, 64 * 16 * 16, 10, device)
    work = lambda: ncscope.measure(data.features, data.labels, groups=("pfc",))  # noqa: E731
    return [
        compare("PFC1-3, conv layer 64 x 16 x 16", work, lambda: data.features.sum(), 5.0, device)
    ]
