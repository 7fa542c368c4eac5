r"""Weakly and strongly augmented views of images without their labels, for consistency training.

Two kinds, of images of one size that are all in memory. `randaugment`: weak views are shifted by up
to an eighth of the side, the border reflected, and half of them mirrored; strong ones go through
two operations of RandAugment and cutout besides. `warp`: weak views are rotated by up to 9
degrees, sheared, zoomed by up to 6 % and shifted by up to an eighth; strong ones three times as
far, shifted half as far again, lit by up to half more or less, and cut out.

The first is FixMatch's, and FreeMatch's and INFO's through the code they share. Operations and
their ranges are torchvision's RandAugment, at a magnitude that is drawn anew for every operation,
as FixMatch draws it: FixMatch darkens where torchvision also brightens, and moves images by up to
0.3 of their side where torchvision goes to 0.45. Cutout greys a square of up to half the side, its
centre anywhere. Mirroring is left out where a mirrored image loses its label.

The second is for small grey images such as digits, where most of RandAugment's operations on
colours do nothing, and mirroring and cropping with reflection change what a digit is. It acts on
whole batches.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from ncscope.data.draws import Draw, seeded
from ncscope.data.images import Images
from ncscope.data.preprocessing import Picture, Preprocessing, Traits
from ncscope.errors import InputError
from ncscope.lab.training.semi_supervised.streams import StreamBatches
from ncscope.lab.training.semi_supervised.uniforms import uniforms

Kind = Literal["randaugment", "warp"]
Strength = Literal["weak", "strong"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Batch: TypeAlias = Float[Tensor, "n c h w"]

_OPERATIONS, _MAGNITUDES, _GREY = 2, 31, 127


class Views(Dataset[tuple[Tensor, ...]]):
    """A view of each strength of each image: ``views.__getitems__(keys)`` is a batch of them.

    An image's views depend on its key alone. There are no labels in it.

    Args:
        images: The set.
        kind: See the module.
        strengths: Strength of each view.

    Raises:
        InputError: Images that are photographs of all sizes.
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
        """Return the views of one image, channels before rows before columns."""
        return tuple(batch[0] for batch in self.__getitems__([key]))

    def __getitems__(self, keys: Sequence[Draw]) -> tuple[Tensor, ...]:
        """Return the views of a batch of images, a tensor for each strength."""
        if self._kind == "warp":
            return self._warped(keys)
        views = [self._augmented(key) for key in keys]
        return tuple(torch.stack(view) for view in zip(*views, strict=True))

    def _augmented(self, key: Draw) -> list[Tensor]:
        picture = self._images.picture(key.image)
        with seeded(*key):
            return [self._measured.normalised(augment(picture)) for augment in self._augment]

    def _warped(self, keys: Sequence[Draw]) -> tuple[Batch, ...]:
        pictures = [_tensor(self._images.picture(key.image)) for key in keys]
        pixels = torch.stack(pictures).float()
        numbers = uniforms(keys, len(self._strengths) * _NUMBERS).split(_NUMBERS, dim=1)
        warped = [
            warp(pixels, _WARPS[strength], own)
            for strength, own in zip(self._strengths, numbers, strict=True)
        ]
        return tuple(self._measured.normalised(view) for view in warped)


def view_loader(
    views: Views, batches: StreamBatches, workers: int = 0
) -> DataLoader[tuple[Tensor, ...]]:
    """Batches of views; ``batches.begin(epoch, step)`` says which come next.

    Args:
        views: Views of a set of images.
        batches: Its order.
        workers: Processes that read ahead; 0 reads in this one.
    """
    return DataLoader(
        views,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=_whole,
        generator=torch.Generator().manual_seed(0),  # or the global one would be drawn from
    )


def _whole(batch: Any) -> Any:
    """Return a batch that comes whole from the set."""
    return batch


class LabelledViews(Views):
    """Views of labelled images: a batch of them ends with the labels."""

    def __getitems__(self, keys: Sequence[Draw]) -> tuple[Tensor, ...]:
        """Return the views of a batch of images, a tensor for each strength, and the labels."""
        labels = self._images.labels[torch.tensor([key.image for key in keys])]
        return (*super().__getitems__(keys), labels)


@dataclass(frozen=True)
class Warp:
    """Largest warp in each direction.

    Attributes:
        degrees: Largest rotation in degrees.
        shear: Tangent of the angle.
        zoom: Share by which the image grows or shrinks.
        shift: Share of the side.
        brightness: Share by which pixels grow or shrink.
        cutout: Largest side of the blackened square, as a share of the image's.
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
_NUMBERS = 9  # that a warp draws


def warp(pixels: Batch, most: Warp, numbers: Float[Tensor, "n 9"]) -> Batch:
    """Each image under an affine map, its brightness changed, a square of it black.

    Args:
        pixels: Black is 0, and what comes in from outside is black.
        most: Largest warp.
        numbers: In [0, 1), a row an image: rotation, shear, zoom, shift across and down,
            brightness, the square's centre across and down, and its side.

    Example:
        >>> images = torch.rand(2, 1, 8, 8)
        >>> same = warp(images, Warp(0, 0, 0, 0, 0, 0), torch.rand(2, 9))
        >>> bool(torch.isclose(same, images, atol=1e-6).all())
        True
    """
    turn, shear, zoom, across, down, light, *square = numbers.T
    angle = math.radians(most.degrees) * _signed(turn)
    factor = 1 + most.zoom * _signed(zoom)
    cosine, sine, lean = factor * angle.cos(), factor * angle.sin(), most.shear * _signed(shear)
    shifts = [2 * most.shift * _signed(shift) for shift in (across, down)]  # the side is 2
    rows = [
        torch.stack([cosine, cosine * lean - sine, shifts[0]], dim=1),
        torch.stack([sine, sine * lean + cosine, shifts[1]], dim=1),
    ]
    grid = F.affine_grid(torch.stack(rows, dim=1), list(pixels.shape), align_corners=False)
    moved = F.grid_sample(pixels, grid, align_corners=False)
    lit = moved * (1 + most.brightness * _signed(light))[:, None, None, None]
    return lit * ~_squares(pixels.shape[-1], most.cutout, *square)


def _signed(numbers: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    return 2 * numbers - 1


def _squares(
    side: int,
    most: float,
    across: Float[Tensor, " n"],
    down: Float[Tensor, " n"],
    share: Float[Tensor, " n"],
) -> Tensor:
    """Mark each image's square."""
    centres = torch.arange(side) + 0.5
    half = (most * share * side / 2)[:, None]
    columns, rows = ((centres - side * at[:, None]).abs() < half for at in (across, down))
    return (rows[:, :, None] & columns[:, None, :])[:, None]


def _tensor(picture: object) -> UInt8[Tensor, "c h w"]:
    assert isinstance(picture, Tensor)
    return picture


def _randaugment(traits: Traits, strength: Strength) -> Callable[[Picture], Picture]:
    """From pixels to pixels, drawn from torch's global generator."""
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
    """One operation of RandAugment at a random magnitude."""
    return v2.RandomChoice([v2.RandAugment(1, index) for index in range(_MAGNITUDES)])


def cutout(picture: UInt8[Tensor, "c h w"]) -> UInt8[Tensor, "c h w"]:
    """Cover a random grey square, its side up to half the image's, its centre anywhere.

    Source: DeVries and Taylor 2017, as FixMatch B.2 uses it.

    Args:
        picture: Drawn on with torch's global generator.
    """
    square = _squares(picture.shape[-1], 0.5, *torch.rand(3, 1))[0]
    return picture.masked_fill(square, _GREY)
