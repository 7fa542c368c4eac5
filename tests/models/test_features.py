"""Features and logits of one pass through networks of the catalogue, plain, wrapped and pruned."""

import pytest
import torch
from lightning.fabric import Fabric
from torch import nn
from torch.nn.utils import prune

from ncscope.models.forward import classifier, features_and_logits
from ncscope.models.networks.catalogue import build

SMALL = ("small-resnet", "small-vgg", "small-densenet", "small-wrn", "small-residual")
SLOW = pytest.param("small-vit", marks=pytest.mark.slow)  # the import of timm


def network(name: str, **given: str) -> nn.Module:
    torch.manual_seed(0)
    return build(name, 10, in_channels=1, image_size=8, **given)


@pytest.mark.parametrize("name", [*SMALL, SLOW])
def test_features_are_what_the_classifier_reads(name: str) -> None:
    model = network(name).eval()
    images = torch.randn(3, 1, 8, 8)
    features, logits = features_and_logits(model, images)
    head = classifier(model)
    assert torch.equal(logits, model(images))
    assert torch.allclose(features @ head.weight.T + head.bias, logits, atol=1e-6)
    assert not head._forward_pre_hooks


def test_gradients_reach_the_first_layer_through_the_features_alone() -> None:
    model = network("small-wrn", head="simplex")
    features, _ = features_and_logits(model, torch.randn(3, 1, 8, 8))
    features.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.stem.parameters())


def test_of_a_pruned_and_wrapped_network_in_half_precision() -> None:
    model = network("small-wrn")
    weights = [(m, "weight") for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    prune.global_unstructured(weights, prune.L1Unstructured, amount=0.5)
    wrapped = Fabric(accelerator="cpu", devices=1).setup(model)
    with torch.autocast("cpu", torch.bfloat16):
        features, logits = features_and_logits(wrapped, torch.randn(3, 1, 8, 8))
    assert features.shape == (3, 64)
    assert logits.dtype == torch.bfloat16
    masked = classifier(wrapped).weight
    assert float((masked == 0).float().mean()) > 0.2
    product = features.float() @ masked.T + model.fc.bias
    assert torch.allclose(product, logits.float(), atol=0.02)
