"""Vision transformers from timm: DeiT, and a small network of its architecture."""

from functools import partial

import timm
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from ncscope.errors import InputError

DEIT_PATCH = 16
SMALL_PATCH = 2
DEPTH_DROP = 0.1  # stochastic depth in DeiT's training (Touvron et al. 2021, table 9)


def deit(num_classes: int, in_channels: int, image_size: int, *, size: str) -> nn.Module:
    """Build a DeiT-T or DeiT-S, without distillation.

    Source: Touvron et al. 2021, table 1, from timm: patches of 16 pixels, 12 blocks, width 192 or
    384, stochastic depth up to 0.1, which VCI 6.1 keeps. Linear layers are initialised from a
    truncated normal distribution of standard deviation 0.02, with bias zero. The classifier reads
    the class token.

    Args:
        num_classes: Number of classes.
        in_channels: Channels of the images.
        image_size: Height and width of the images in pixels, a multiple of 16.
        size: ``"tiny"`` or ``"small"``.

    Raises:
        InputError: If the images do not divide into patches.
    """
    _require_patches(image_size, DEIT_PATCH)
    return timm.create_model(
        f"deit_{size}_patch{DEIT_PATCH}_224",
        pretrained=False,
        num_classes=num_classes,
        in_chans=in_channels,
        img_size=image_size,
        drop_path_rate=DEPTH_DROP,
    )


def small_vit(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    """Build DeiT's architecture with patches of 2 pixels, 4 blocks, width 32, and no dropout.

    Args:
        num_classes: Number of classes.
        in_channels: Channels of the images.
        image_size: Height and width of the images in pixels, an even number.

    Raises:
        InputError: If the images do not divide into patches.

    Example:
        >>> import torch
        >>> small_vit(10, 1, 8)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    _require_patches(image_size, SMALL_PATCH)
    return VisionTransformer(
        img_size=image_size,
        patch_size=SMALL_PATCH,
        in_chans=in_channels,
        num_classes=num_classes,
        embed_dim=32,
        depth=4,
        num_heads=2,
    )


def _require_patches(image_size: int, patch: int) -> None:
    if image_size % patch:
        raise InputError(
            expected=f"an image size that is a multiple of {patch}",
            found=str(image_size),
            fix=f"resize the images to {(image_size // patch + 1) * patch}",
        )


BUILDERS = {
    "deit-tiny": partial(deit, size="tiny"),
    "deit-small": partial(deit, size="small"),
    "small-vit": small_vit,
}
"""Networks by name."""
