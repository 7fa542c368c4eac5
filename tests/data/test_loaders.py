"""Batches are the same for any number of workers and wherever a run is taken up again."""

import pytest
import torch
from lightning.fabric import Fabric

from ncscope.data.catalogue import load
from ncscope.data.loaders import make_measurement_loader, make_training_loader
from ncscope.data.order import EpochBatches

Batch = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(scope="module")
def images():
    return load("patterns", augmentation="autoaugment").train.draw_balanced(40)


def two_epochs(images, workers: int, first_step: int = 0) -> list[Batch]:
    order = EpochBatches(len(images), 8, seed=2)
    loader = make_training_loader(images, order, workers)
    seen = []
    for epoch, step in ((4, first_step), (5, 0)):
        order.begin(epoch, step)
        seen += [tuple(batch) for batch in loader]
    return seen


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a, b)
        for x, y in zip(one, other, strict=True)
        for a, b in zip(x, y, strict=True)
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(images, workers):
    assert same(two_epochs(images, workers), two_epochs(images, 0))


def test_a_run_taken_up_again_sees_the_rest(images):
    assert same(two_epochs(images, 0, first_step=3), two_epochs(images, 0)[3:])


def test_augmentation_changes_with_the_epoch(images):
    whole = EpochBatches(len(images), 40, seed=2)
    loader, sums = make_training_loader(images, whole), []
    for epoch in (0, 1):
        whole.begin(epoch)
        sums.append(next(iter(loader))[0].double().sum().item())
    assert sums[0] != pytest.approx(sums[1], rel=1e-6)


def test_processes_read_what_one_would(images):
    parts = [
        next(iter(make_training_loader(images, EpochBatches(len(images), 8, 2, rank, world=2))))
        for rank in (0, 1)
    ]
    whole = next(iter(make_training_loader(images, EpochBatches(len(images), 8, 2))))
    assert torch.equal(torch.cat([part[0] for part in parts]), whole[0])


def test_passes_leave_the_global_generator_alone(images):
    state = torch.default_generator.get_state()
    list(make_training_loader(images, EpochBatches(len(images), 8, 0)))
    list(make_measurement_loader(images, 16))
    assert torch.equal(torch.default_generator.get_state(), state)


@pytest.mark.parametrize("world", [1, 3])
def test_every_image_is_measured_once_and_unchanged(images, world):
    read = [
        batch for rank in range(world) for batch in make_measurement_loader(images, 16, rank, world)
    ]
    expected = torch.stack([images[i][0] for i in range(len(images))])
    assert torch.equal(torch.cat([batch[0] for batch in read]), expected)
    assert torch.equal(torch.cat([batch[1] for batch in read]), images.labels)


def test_fabric_keeps_the_order_across_epochs(images):
    order = EpochBatches(len(images), 8, seed=2)
    fabric = Fabric(accelerator="cpu", devices=1)
    loader = fabric.setup_dataloaders(
        make_training_loader(images, order), use_distributed_sampler=False
    )
    seen = []
    for epoch in (4, 5):
        order.begin(epoch)
        seen += [tuple(batch) for batch in loader]
    assert same(seen, two_epochs(images, 0))
