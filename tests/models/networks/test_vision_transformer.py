"""DeiT from timm: initialisation, stochastic depth, patches."""

import pytest
import torch

from ncscope.models.networks.vision_transformer import DEPTH_DROP, deit, small_vit


def test_deit_starts_as_its_paper_says() -> None:
    model = deit(1000, 3, 224, size="tiny")
    for weight in (
        model.head.weight,
        model.blocks[3].attn.qkv.weight,
        model.blocks[3].mlp.fc1.weight,
    ):
        assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert (model.head.bias == 0).all()


def test_deit_drops_depth_in_training_only() -> None:
    model = deit(10, 3, 32, size="tiny")
    drops = [getattr(block.drop_path1, "drop_prob", 0.0) for block in model.blocks]
    assert drops == pytest.approx([DEPTH_DROP * i / 11 for i in range(12)])


def test_patches_and_class_token() -> None:
    model = small_vit(10, 1, 8)
    assert model.pos_embed.shape == (1, 4 * 4 + 1, 32)
    assert model(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
