r"""Weakly and strongly augmented views of images without their labels, for consistency training.

There are two kinds of views, for images of one size that are all in memory.

`randaugment`: weak views are shifted by up to an eighth of the side, with the border reflected, and
half of them are mirrored. Strong views also pass through two operations of RandAugment and through
cutout. FixMatch uses these views, and so do FreeMatch and INFO, which share its code. Operations
and their ranges are those of torchvision's RandAugment; the magnitude is drawn anew for every
operation, as in FixMatch. The ranges differ from FixMatch's: torchvision brightens as well as
darkens, and translates images by up to 0.45 of their side instead of 0.3. Cutout paints a grey
square of up to half the side, centred anywhere. Images whose label mirroring would change are not
mirrored.

`warp`: weak views are rotated by up to 9 degrees, sheared, zoomed by up to 6 % and shifted by up to
an eighth of the side. Strong views are rotated, sheared and zoomed about three times as far, and
shifted one and a half times as far; their brightness changes by up to half, and a square is cut
out. This kind is for small grey images such as digits: most of RandAugment's colour operations have
no effect on them, and mirroring or cropping with reflection can turn a digit into another one. It
acts on whole batches.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from ncscope.data.draws import Draw, seed_global_generator
from ncscope.data.images import Images
from ncscope.data.preprocessing import Picture, Preprocessing, Traits
from ncscope.errors import InputError
from ncscope_lab.training.semi_supervised.streams import StreamBatches

Kind = Literal["randaugment", "warp"]
Strength = Literal["weak", "strong"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Batch: TypeAlias = Float[Tensor, "n c h w"]

_OPERATIONS, _MAGNITUDES, _GREY = 2, 31, 127


class Views(Dataset[tuple[Tensor, ...]]):
    """Views of images, one per strength: ``views.__getitems__(keys)`` is a batch of views.

    The views of an image depend on its key only. The data set returns no labels.

    Args:
        images: Images to augment.
        kind: Kind of the views; see the module.
        strengths: Strength of each view.

    Raises:
        InputError: If the images are photographs of different sizes.
    """

    def __init__(self, images: Images, kind: Kind, strengths: Sequence[Strength]) -> None:
        traits = images.preprocessing.traits
        if traits.native is None:
            raise InputError(
                expected=f"images of one size for {kind} views",
                found="photographs of all sizes",
                fix="resize them beforehand",
            )
        self._images, self._kind, self._strengths = images, kind, tuple(strengths)
        self._augment = [_randaugment(traits, strength) for strength in strengths]
        self._measured = Preprocessing(traits)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, key: Draw) -> tuple[Tensor, ...]:
        """Return the views of one image, each of shape (channels, rows, columns)."""
        return tuple(batch[0] for batch in self.__getitems__([key]))

    def __getitems__(self, keys: Sequence[Draw]) -> tuple[Tensor, ...]:
        """Return the views of a batch of images, a tensor for each strength."""
        if self._kind == "warp":
            return self._warp(keys)
        views = [self._augment_one(key) for key in keys]
        return tuple(torch.stack(view) for view in zip(*views, strict=True))

    def _augment_one(self, key: Draw) -> list[Tensor]:
        picture = self._images.picture(key.image)
        with seed_global_generator(*key):
            return [self._measured.normalise(augment(picture)) for augment in self._augment]

    def _warp(self, keys: Sequence[Draw]) -> tuple[Batch, ...]:
        pictures = [_tensor(self._images.picture(key.image)) for key in keys]
        pixels = torch.stack(pictures).float()
        numbers = uniforms(keys, len(self._strengths) * _NUMBERS).split(_NUMBERS, dim=1)
        warped = [
            warp(pixels, _WARPS[strength], draws)
            for strength, draws in zip(self._strengths, numbers, strict=True)
        ]
        return tuple(self._measured.normalise(view) for view in warped)


def view_loader(
    views: Views, batches: StreamBatches, workers: int = 0
) -> DataLoader[tuple[Tensor, ...]]:
    """Return a loader of batches of views; ``batches.begin(epoch, step)`` sets its position.

    Args:
        views: Views of a set of images.
        batches: Sampler of the batches of keys.
        workers: Processes that read ahead; 0 reads in the calling process.
    """
    return DataLoader(
        views,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=_whole,
        generator=torch.Generator().manual_seed(0),  # else it draws from the global one
    )


def _whole(batch: Any) -> Any:
    """Return the batch unchanged: `Views.__getitems__` has already collated it."""
    return batch


class LabelledViews(Views):
    """Views of labelled images; the last element of a batch holds the labels."""

    def __getitems__(self, keys: Sequence[Draw]) -> tuple[Tensor, ...]:
        """Return the views of a batch of images, a tensor for each strength, and the labels."""
        labels = self._images.labels[torch.tensor([key.image for key in keys])]
        return (*super().__getitems__(keys), labels)


class NumberedViews(Views):
    """Views of unlabelled images; the last element of a batch holds the images' indices."""

    def __getitems__(self, keys: Sequence[Draw]) -> tuple[Tensor, ...]:
        """Return the views of a batch of images, a tensor for each strength, and the indices."""
        return (*super().__getitems__(keys), torch.tensor([key.image for key in keys]))


@dataclass(frozen=True)
class Warp:
    """Largest warp in either direction.

    Attributes:
        degrees: Largest rotation in degrees.
        shear: Tangent of the largest shear angle.
        zoom: Largest relative change of the image's size.
        shift: Largest shift, as a share of the image's side.
        brightness: Largest relative change of the pixel values.
        cutout: Largest side of the blackened square, as a share of the image's side.
    """

    degrees: float
    shear: float
    zoom: float
    shift: float
    brightness: float
    cutout: float


_WARPS: dict[Strength, Warp] = {
    "weak": Warp(9, 0.09, 0.06, 0.125, 0.0, 0.0),
    "strong": Warp(30, 0.3, 0.2, 0.1875, 0.5, 0.5),
}
_NUMBERS = 9  # random numbers per warp


def warp(pixels: Batch, most: Warp, numbers: Float[Tensor, "n 9"]) -> Batch:
    """Apply a random affine map, change of brightness and black square to each image.

    Args:
        pixels: Images, with black as 0; the map fills pixels from outside the image with black.
        most: Largest warp.
        numbers: Numbers in [0, 1), one row per image: rotation, shear, zoom, horizontal and
            vertical shift, brightness, the square's horizontal and vertical centre, and its side.

    Example:
        >>> images = torch.rand(2, 1, 8, 8)
        >>> same = warp(images, Warp(0, 0, 0, 0, 0, 0), torch.rand(2, 9))
        >>> bool(torch.isclose(same, images, atol=1e-6).all())
        True
    """
    turn, shear, zoom, across, down, light, *square = numbers.T
    angle = math.radians(most.degrees) * _sign(turn)
    factor = 1 + most.zoom * _sign(zoom)
    cosine, sine, lean = factor * angle.cos(), factor * angle.sin(), most.shear * _sign(shear)
    shifts = [2 * most.shift * _sign(shift) for shift in (across, down)]  # the grid has side 2
    rows = [
        torch.stack([cosine, cosine * lean - sine, shifts[0]], dim=1),
        torch.stack([sine, sine * lean + cosine, shifts[1]], dim=1),
    ]
    grid = F.affine_grid(torch.stack(rows, dim=1), list(pixels.shape), align_corners=False)
    moved = F.grid_sample(pixels, grid, align_corners=False)
    lit = moved * (1 + most.brightness * _sign(light))[:, None, None, None]
    return lit * ~_squares(pixels.shape[-1], most.cutout, *square)


def _sign(numbers: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    return 2 * numbers - 1


def _squares(
    side: int,
    most: float,
    across: Float[Tensor, " n"],
    down: Float[Tensor, " n"],
    share: Float[Tensor, " n"],
) -> Tensor:
    """Return each image's mask of a square."""
    centres = torch.arange(side) + 0.5
    half = (most * share * side / 2)[:, None]
    columns, rows = ((centres - side * at[:, None]).abs() < half for at in (across, down))
    return (rows[:, :, None] & columns[:, None, :])[:, None]


def _tensor(picture: object) -> UInt8[Tensor, "c h w"]:
    assert isinstance(picture, Tensor)
    return picture


def _randaugment(traits: Traits, strength: Strength) -> Callable[[Picture], Picture]:
    """Return the augmentation of a strength, which draws from torch's global generator."""
    steps: list[Callable[[Tensor], Tensor]] = []
    if traits.native is not None and traits.native < traits.size:
        before = (traits.size - traits.native) // 2
        after = traits.size - traits.native - before
        steps.append(v2.Pad([before, before, after, after]))
    steps.append(v2.RandomCrop(traits.size, padding=traits.size // 8, padding_mode="reflect"))
    if traits.mirrored:
        steps.append(v2.RandomHorizontalFlip())
    if strength == "strong":
        steps += [_any_magnitude() for _ in range(_OPERATIONS)] + [cutout]
    return v2.Compose(steps)


def _any_magnitude() -> v2.Transform:
    """Return one operation of RandAugment at a random magnitude."""
    return v2.RandomChoice([v2.RandAugment(1, index) for index in range(_MAGNITUDES)])


def cutout(picture: UInt8[Tensor, "c h w"]) -> UInt8[Tensor, "c h w"]:
    """Paint a grey square with random centre and a side of up to half the image's side.

    Source: DeVries and Taylor 2017, as FixMatch B.2 uses it.

    Args:
        picture: Image to paint on; the draws come from torch's global generator.
    """
    square = _squares(picture.shape[-1], 0.5, *torch.rand(3, 1))[0]
    return picture.masked_fill(square, _GREY)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MANTISSA = 53


def uniforms(keys: Sequence[Draw], count: int) -> Float[Tensor, "n count"]:
    """Draw uniform numbers in [0, 1); a row depends on its key only, not on the rest of the batch.

    The generator is SplitMix64 (Steele, Lea and Flood 2014), started from a hash of the key. One
    torch generator per image would take ten times as long as the warp that uses the numbers.

    Args:
        keys: Keys of the images.
        count: Numbers per image.

    Example:
        >>> one, other = Draw(0, 3, 17), Draw(0, 3, 18)
        >>> bool((uniforms([one, other], 4)[1] == uniforms([other], 4)[0]).all())
        True
    """
    parts = np.array([tuple(key) for key in keys], dtype=np.uint64).reshape(-1, len(Draw._fields))
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is intended
        state = np.zeros(len(parts), dtype=np.uint64)
        for part in parts.T:
            state = _mix(state + part + _GOLDEN)
        steps = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        bits = _mix(state[:, None] + steps)
    shift = np.uint64(64 - _MANTISSA)
    return torch.from_numpy(((bits >> shift) * 2.0**-_MANTISSA).astype(np.float32))


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))
