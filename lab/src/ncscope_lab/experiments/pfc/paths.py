"""Paths of a sample of training images through a network in training, as rows.

The rows have the split `SAMPLE`. One row for each step between layers of one dimension, named after
the later layer, compares the step with optimal transport and its energy with the block's weights.
The row `WHOLE` has the numbers of the whole path and the premises of PFC's theorems.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ncscope.data.images import Images
from ncscope.data.loaders import make_measurement_loader
from ncscope.models.evaluation_mode import evaluation_mode, restore_buffers
from ncscope.models.layers import find_layer, match_layers
from ncscope.models.networks.catalogue import layers_to_tap
from ncscope.models.wrappers import unwrap
from ncscope_lab.experiments.pfc.transport import Displacement, premises, route
from ncscope_lab.experiments.pfc.weight_decay import block_energy
from ncscope_lab.observations import Observation, Value
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.supervised import Bench

SAMPLE = "sample"
"""Split of the rows: a balanced sample of the training images."""

WHOLE = "first to last"
"""Layer of the row of the whole path."""


@dataclass(frozen=True)
class LayerFeatures:
    """Features of a sample of images in the layers of one dimension.

    Attributes:
        layers: Flattened features by name of the layer, in forward order.
        labels: Class of each image.
    """

    layers: dict[str, Float[Tensor, "n d"]]
    labels: Int[Tensor, " n"]


def path_observations(bench: Bench, end: EpochEnd, samples: int) -> list[Observation]:
    """Measure the path of a sample of training images through the layers of one dimension.

    Args:
        bench: The run, with the network at the end of the epoch.
        end: State of training at the end of the epoch.
        samples: Number of images, equally many for each class; fewer if the training set is
            smaller.

    Returns:
        One row for each step, and one for the whole path; none if fewer than two successive layers
        have one dimension.
    """
    model = unwrap(bench.learner.evaluated)
    images = bench.data.train
    if samples < len(images):
        images = images.draw_balanced(samples)
    patterns = bench.settings.layers
    names = layers_to_tap(model) if patterns is None else match_layers(model, patterns)
    sample = _features(model, names, images, bench.fabric.device)
    if len(sample.layers) < 2:
        return []
    return [
        Observation(end.step, end.epoch, SAMPLE, layer, values=values)
        for layer, values in _rows(model, sample).items()
    ]


def _features(
    model: nn.Module, names: Sequence[str], images: Images, device: torch.device
) -> LayerFeatures:
    """Run the images through the network; keep the last successive layers of one dimension."""
    outputs: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str, module: nn.Module, inputs: object, output: Tensor) -> None:
        outputs[name].append(output.detach().flatten(1).to(torch.float64))

    labels = []
    with ExitStack() as stack:
        stack.enter_context(evaluation_mode(model))
        stack.enter_context(restore_buffers(model))
        for name in names:
            hook = find_layer(model, name).register_forward_hook(partial(keep, name))
            stack.callback(hook.remove)
        for pixels, classes in make_measurement_loader(images, batch_size=100):
            model(pixels.to(device))
            labels.append(classes)
    whole = {name: torch.cat(batches) for name, batches in outputs.items()}
    by_dim = [list(group) for _, group in groupby(whole, key=lambda name: whole[name].shape[1])]
    last = next((group for group in reversed(by_dim) if len(group) > 1), [])
    return LayerFeatures({name: whole[name] for name in last}, torch.cat(labels).to(device))


def _rows(model: nn.Module, sample: LayerFeatures) -> dict[str, dict[str, Value]]:
    features = list(sample.layers.values())
    path = route(features)
    rows: dict[str, dict[str, Value]] = {}
    for step, ((_, before), (name, after)) in zip(
        path.steps, pairwise(sample.layers.items()), strict=True
    ):
        block = block_energy(find_layer(model, name), before, after)
        rows[name] = _values(step) | {
            "weight_norm": block.weights,
            "energy_constant": block.constant,
        }
        if block.bound is not None:
            rows[name]["energy_bound"] = block.bound
    ends = premises(features[0], features[-1], sample.labels)
    rows[WHOLE] = _values(path.ends) | {
        "samples": len(sample.labels),
        "path_energy": path.energy,
        "path_straight": path.straight,
        "path_even": path.even,
        "path_optimality": path.optimality,
        "path_geodesic": path.geodesic,
        "alignment_cosine": ends.alignment,
        "remaining_pfc1": ends.remaining,
        "relative_cost": ends.relative_cost,
    }
    return rows


def _values(step: Displacement) -> dict[str, Value]:
    return {
        "wasserstein": step.optimal,
        "displacement": step.network,
        "random_displacement": step.random,
        "pairing_efficiency": step.efficiency,
        "pairing_advantage": step.advantage,
    }
