"""A full-batch step of the grokking experiment against the matrix products it cannot avoid."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.measure import Row, compare
from ncscope_lab.experiments.info.modular_addition import Grokking, prepare_run, train_full_batch
from ncscope_lab.runs.resources import Resources


def unavoidable_products(settings: Grokking, pairs: int, device: str) -> Callable[[], Any]:
    """Return products of the ReLU network's second matrix and of the unembedding, both ways.

    A product is 2 * pairs * rows * columns operations, and each matrix has three of them.
    """
    width, hidden, modulus = settings.width, settings.hidden, settings.modulus
    active, stream, logits = (
        torch.randn(pairs, n, device=device) for n in (hidden, width, modulus)
    )
    contract = torch.randn(width, hidden, device=device)
    head = torch.randn(modulus, width, device=device)

    def products() -> Any:
        forward = active @ contract.T, stream @ head.T
        backward = logits @ head, logits.T @ stream, stream @ contract, stream.T @ active
        return forward, backward

    return products


def step(device: str) -> list[Row]:
    """p=113: a step of the training loop, loss and optimiser included."""
    settings = Grokking(steps=10**6)
    fabric = Resources(accelerator=device).fabric
    data, learner = prepare_run(settings, 0, fabric)
    steps = train_full_batch(fabric, learner, data.train, settings.steps)
    next(steps)
    pairs = len(data.train.pairs)
    operations = 6 * pairs * settings.width * (settings.hidden + settings.modulus) / 1e9
    name = f"grokking, a step at p=113: {pairs:,} pairs, {operations:.2f} GFLOP"
    baseline = unavoidable_products(settings, pairs, device)
    return [compare(name, lambda: next(steps), baseline, 2.0, device, rounds=20)]
