"""Each module is its function times its strength, with the sign the paper adds it with."""

import pytest
import torch
from torch import nn

from ncscope import losses
from tests.losses import brute_force
from tests.losses.batches import BATCHES

BATCH = BATCHES["fewer dimensions than samples"]
H, Y, W = BATCH.features, BATCH.labels, BATCH.weight
Z = H @ W.T
RAW = H.numpy(), Y.numpy(), W.numpy()
HEADS = BATCH.heads.numpy()
CASES = {
    "MutualInformationLoss(strength=0.3)": (
        losses.MutualInformationLoss(0.3),
        (H, Y, W),
        -0.3 * brute_force.mutual_information(RAW[0], HEADS),
    ),
    "EntropyDifferenceLoss(strength=0.3)": (
        losses.EntropyDifferenceLoss(0.3),
        (H, Y, W),
        0.3 * brute_force.entropy_difference(RAW[0], HEADS),
    ),
    "WithinClassCosineLoss(strength=0.3)": (
        losses.WithinClassCosineLoss(0.3),
        (H, Y),
        0.3 * brute_force.within_class_cosine(*RAW[:2]),
    ),
    "FeatureAndClassifierDecay(feature_decay=0.3, weight_decay=0.1)": (
        losses.FeatureAndClassifierDecay(0.3, 0.1),
        (H, W),
        brute_force.decay(RAW[0], RAW[2], 0.3, 0.1),
    ),
    "RescaledSquaredErrorLoss(factor=15.0, target=30.0)": (
        losses.RescaledSquaredErrorLoss(15.0, 30.0),
        (Z, Y),
        brute_force.squared_error(Z.numpy(), RAW[1], 15, 30),
    ),
    "TemperatureCrossEntropyLoss(temperature=2.0)": (
        losses.TemperatureCrossEntropyLoss(2.0),
        (Z, Y),
        brute_force.cross_entropy(Z.numpy(), RAW[1], 2, 0),
    ),
    "SmoothedCrossEntropyLoss(smoothing=0.1)": (
        losses.SmoothedCrossEntropyLoss(0.1),
        (Z, Y),
        brute_force.cross_entropy(Z.numpy(), RAW[1], 1, 0.1),
    ),
}


@pytest.mark.parametrize(("shown", "case"), CASES.items(), ids=CASES.keys())
def test_value_and_repr(shown, case):
    module, inputs, expected = case
    assert float(module(*inputs)) == pytest.approx(expected, abs=1e-10)
    assert repr(module) == shown
    assert not list(module.parameters())


def test_every_module_is_in_the_table():
    public = {name for name in losses.__all__ if isinstance(getattr(losses, name), type)}
    assert public == {type(module).__name__ for module, _, _ in CASES.values()}
    assert all(issubclass(getattr(losses, name), nn.Module) for name in public)


@pytest.mark.parametrize("kind", [losses.MutualInformationLoss, losses.EntropyDifferenceLoss])
def test_selection_is_handed_on(kind):
    chosen = torch.arange(12) < 5
    assert float(kind(1.0)(H, Y, W, chosen)) == float(kind(1.0)(H[:5], Y[:5], W))
