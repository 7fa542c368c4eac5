"""Information that the features of two networks share on the same held-out images."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.data.loaders import make_measurement_loader
from ncscope.lab.training.supervised import INFORMATION_BATCH, Bench
from ncscope.measurement.evaluation import estimate_by_batch
from ncscope.metrics.information import pair_entropies
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.forward import features_and_logits


def between_features(
    first: Float[Tensor, "n d"], second: Float[Tensor, "n d2"]
) -> dict[str, float]:
    """Compute MIR and HDR between two sets of features of the same samples, exactly and by batch.

    Args:
        first: First features, one sample per row.
        second: Second features of the same samples.
    """
    whole = pair_entropies(first, second)
    numbers = torch.arange(len(first))
    parts = estimate_by_batch(first, numbers, second, INFORMATION_BATCH)
    exact = {"mir": whole.mir, "hdr": whole.hdr}
    return {f"dense_{key}": value for key, value in (exact | parts).items()}


def held_out_features(bench: Bench, model: nn.Module) -> Float[Tensor, "n d"]:
    """Gather the classifier's inputs of all held-out images on the CPU, in every process.

    Args:
        bench: The run that provides the data.
        model: Network of the run, or one made from it.
    """
    size, device = bench.settings.optimisation.batch_size, bench.fabric.device
    loader = make_measurement_loader(bench.data.test, size, workers=bench.workers)
    with evaluation_mode(model):
        batches = [features_and_logits(model, images.to(device))[0].cpu() for images, _ in loader]
    return torch.cat(batches)
