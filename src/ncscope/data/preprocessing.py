"""Preprocessing of pictures to the network's input, without and with augmentation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from jaxtyping import Float, UInt8
from PIL.Image import Image
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import AutoAugmentPolicy as Policy

from ncscope.errors import InputError

Augmentation = Literal[
    "none", "crop", "crop-flip", "reflect-crop-flip", "autoaugment", "autoaugment-erasing"
]
AUGMENTATIONS: tuple[Augmentation, ...] = get_args(Augmentation)

Picture: TypeAlias = Image | UInt8[Tensor, "*_n _c _h _w"]
Steps = Callable[[Picture], Picture]


@dataclass(frozen=True)
class Traits:
    """Properties of a data set on which its preprocessing depends.

    Attributes:
        size: Height and width of the network's input.
        native: Height and width of the set's images; None for photographs of all sizes.
        mean: Mean of the training set's pixels from 0 to 1, by channel.
        deviation: Standard deviation of the training set's pixels, by channel.
        mirrored: A mirrored image keeps its label if True.
        policy: AutoAugment's policy for the most similar kind of images.
        resized: Enlarge images smaller than the input if True; pad them if False.
    """

    size: int
    native: int | None
    mean: Sequence[float]
    deviation: Sequence[float]
    mirrored: bool
    policy: Policy
    resized: bool = False


class Preprocessing:
    r"""Normalisation of pixels to $(x/255-\mu)/\sigma$ by channel, after an optional augmentation.

    For measuring, an image smaller than the input is padded with black, and a photograph is resized
    to a short side of 256 for an input of 224 and cropped at the centre (VCI 6.1). For training,
    the image is changed according to ``augmentation``:

    | augmentation | images of one size | photographs |
    |---|---|---|
    | none | as for measuring | as for measuring |
    | crop | random crop after a black border of an eighth of the side | random resized crop |
    | crop-flip | crop, and half of the images mirrored | crop, and half mirrored |
    | reflect-crop-flip | crop-flip with a reflected instead of a black border | refused |
    | autoaugment | crop-flip, then AutoAugment | crop-flip, then AutoAugment |
    | autoaugment-erasing | autoaugment, and a quarter with noise in a rectangle | the same |

    AutoAugment is used without mirroring if a mirrored image loses its label.

    Source: none, MSE A.1; crop-flip with autoaugment, VCI 6.1; reflect-crop-flip, the code base of
    INFO 6; erasing, VCI 6.1 for vision transformers.

    Args:
        traits: Properties of the data set.
        augmentation: Change of the images in training.

    Raises:
        InputError: If the augmentation does not fit the data set.
    """

    def __init__(self, traits: Traits, augmentation: Augmentation = "none") -> None:
        if augmentation not in AUGMENTATIONS:
            found, fix = repr(augmentation), f"pass one of {', '.join(AUGMENTATIONS)}"
            raise InputError(expected="a known augmentation", found=found, fix=fix)
        if augmentation.endswith("crop-flip") and not traits.mirrored:
            fix = "pass crop, which shifts and does not mirror"
            expected = "an augmentation that keeps the labels"
            found = f"{augmentation} for images that lose their label when mirrored"
            raise InputError(expected=expected, found=found, fix=fix)
        if augmentation.startswith("reflect") and traits.native is None:
            found = f"{augmentation} for photographs of all sizes"
            expected = "an augmentation for photographs"
            raise InputError(expected=expected, found=found, fix="pass crop-flip")
        self.traits, self.random = traits, augmentation != "none"
        self._mean = 255 * torch.tensor(traits.mean, device="cpu")[:, None, None]
        self._deviation = 255 * torch.tensor(traits.deviation, device="cpu")[:, None, None]
        self._plain = self._random = _build_plain_steps(traits)
        if self.random:
            self._random = _build_random_steps(traits, augmentation)
        erasing = augmentation == "autoaugment-erasing"
        self._erase = v2.RandomErasing(p=0.25, value="random") if erasing else None

    def prepare_plain(self, picture: Picture) -> Float[Tensor, "*n c h w"]:
        """Return the input without augmentation; a tensor may hold several images.

        Raises:
            InputError: If an image differs in size from the others.
        """
        native = self.traits.native
        if isinstance(picture, Image) and native is not None and picture.size != (native, native):
            raise InputError(
                expected=f"images of {native} x {native} pixels, as others of the data set",
                found=" x ".join(map(str, picture.size)),
                fix="resize the images, or pass --preprocess FILE.py:FUNCTION that does",
            )
        return self.normalise(self._plain(picture))

    def prepare_random(self, picture: Picture) -> Float[Tensor, "c h w"]:
        """Return the input with augmentation, drawn from torch's global generator."""
        image = self.normalise(self._random(picture))
        return image if self._erase is None else self._erase(image)

    def normalise(self, picture: Picture | Float[Tensor, "*n c h w"]) -> Float[Tensor, "*n c h w"]:
        """Shift and scale pixels from 0 to 255 by channel."""
        pixels = picture if isinstance(picture, Tensor) else v2.functional.pil_to_tensor(picture)
        return (pixels.float() - self._mean) / self._deviation


def _build_plain_steps(traits: Traits) -> Steps:
    size, native = traits.size, traits.native
    if native is None:
        return v2.Compose([v2.Resize(size * 256 // 224), v2.CenterCrop(size)])
    if native == size:
        return v2.Identity()
    if traits.resized:
        return v2.Resize([size, size])
    before = (size - native) // 2
    after = size - native - before
    return v2.Pad([before, before, after, after])


def _build_random_steps(traits: Traits, augmentation: Augmentation) -> Steps:
    steps: list[Steps] = []
    if traits.native is None:
        steps.append(v2.RandomResizedCrop(traits.size))
    else:
        fill = "reflect" if augmentation.startswith("reflect") else "constant"
        crop = v2.RandomCrop(traits.size, padding=traits.size // 8, padding_mode=fill)
        steps += [_build_plain_steps(traits), crop]
    # AutoAugment itself never mirrors, so it serves sets of digits too.
    if traits.mirrored and augmentation != "crop":
        steps.append(v2.RandomHorizontalFlip())
    if augmentation.startswith("autoaugment"):
        steps.append(v2.AutoAugment(traits.policy))
    return v2.Compose(steps)
