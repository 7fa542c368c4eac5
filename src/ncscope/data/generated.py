r"""Generated images, which replace the papers' data sets at the `small` scale.

There are three kinds, all of 8-bit pixels so that every augmentation works as on photographs.

* Warped digits: scikit-learn's handwritten digits, enlarged, warped and faded, with noise. No
  original image is used for both training and held-out images.
* Patterns: each class is a smooth random image. A sample is this image, shifted cyclically,
  mirrored or not, with changed contrast, plus clutter, which is another smooth random image drawn
  for the sample, plus noise.

Both are hard enough that a small network needs several epochs to fit the training set, and then
still makes errors on held-out images.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int, UInt8
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from ncscope.data.draws import generator
from ncscope.data.images import Pictures
from ncscope.errors import InputError

IMAGE_SIZE = 16
_TEST_SHARE = 0.25


def make_warped_digits(
    train_per_class: int = 200,
    test_per_class: int = 100,
    noise: float = 0.1,
    digits: range = range(10),
    seed: int = 0,
) -> tuple[Pictures, Pictures]:
    r"""Make digits of 16 x 16 pixels, rotated, sheared, scaled, bent and faded, with noise.

    The held-out images are made from a quarter of scikit-learn's originals, the training images
    from the others.

    Args:
        train_per_class: Number of training images of each class.
        test_per_class: Number of held-out images of each class.
        noise: Standard deviation of the pixels' noise; the ink has the value 1.
        digits: Digits that are the classes, numbered from 0 in this order.
        seed: Seed of all draws.

    Returns:
        Training and held-out images.

    Example:
        >>> make_warped_digits(5, 2)[0].pictures.shape
        torch.Size([50, 1, 16, 16])
    """
    images, labels = load_digits(return_X_y=True)
    grey = torch.as_tensor(images, dtype=torch.float32, device="cpu").reshape(-1, 1, 8, 8) / 16
    large = functional.interpolate(
        grey, size=(IMAGE_SIZE - 4, IMAGE_SIZE - 4), mode="bicubic", align_corners=False
    )
    large = functional.pad(large.clamp(0, 1), (2, 2, 2, 2))
    mask = (labels >= digits.start) & (labels < digits.stop)
    large = large[mask]
    classes = torch.as_tensor(labels[mask] - digits.start, dtype=torch.int64, device="cpu")
    halves = []
    for half, per_class in enumerate((train_per_class, test_per_class)):
        originals = _choose_originals(classes, half, per_class, seed)
        halves.append(Pictures(_wear(large[originals], noise, seed, half), classes[originals]))
    train, test = halves
    return train, test


def make_patterns(
    num_classes: int = 10,
    train_per_class: int = 200,
    test_per_class: int = 100,
    clutter: float = 1.0,
    noise: float = 0.5,
    seed: int = 0,
    size: int = IMAGE_SIZE,
) -> tuple[Pictures, Pictures]:
    r"""Make coloured images: a class's shifted, mirrored pattern with clutter.

    $x = a\,T(p_k) + \beta q + \sigma\varepsilon$ with $T$ a cyclic shift by up to 3 sixteenths of
    the side in each direction and, half of the time, a reflection; $a$ from 0.7 to 1.3; $p_k$ and
    $q$ smooth random images of unit variance; $\varepsilon$ white noise.

    Args:
        num_classes: $K$.
        train_per_class: Number of training images of each class.
        test_per_class: Number of held-out images of each class.
        clutter: $\beta$.
        noise: $\sigma$.
        seed: Seed of all draws, the classes' patterns included.
        size: Pixels per side.

    Returns:
        Training and held-out images.

    Example:
        >>> make_patterns(3, 5, 2)[1].labels.tolist()
        [0, 0, 1, 1, 2, 2]
    """
    prototypes = _draw_smooth(num_classes, size, generator(seed, 0))
    halves = []
    for half, per_class in enumerate((train_per_class, test_per_class)):
        draws = generator(seed, 1 + half)
        labels = torch.arange(num_classes, device="cpu").repeat_interleave(per_class)
        count = len(labels)
        gain = 0.7 + 0.6 * torch.rand(count, 1, 1, 1, generator=draws, device="cpu")
        image = gain * _shift_and_mirror(prototypes[labels], draws, reach=3 * size // 16)
        image += clutter * _draw_smooth(count, size, draws)
        image += noise * torch.randn(image.shape, generator=draws, device="cpu")
        spread = math.sqrt(1.03 + clutter**2 + noise**2)
        halves.append(Pictures(_quantise(0.5 + image / (6 * spread)), labels))
    train, test = halves
    return train, test


FACTORS = {"orientation": 8, "frequency": 4, "colour": 6}
"""Factors of gratings, with the number of levels of each."""


def make_gratings(
    factors: Sequence[str] = tuple(FACTORS),
    train_per_class: int = 100,
    test_per_class: int = 50,
    clutter: float = 0.5,
    noise: float = 0.5,
    seed: int = 0,
    size: int = IMAGE_SIZE,
) -> tuple[Pictures, Pictures]:
    r"""Make coloured waves whose class is the level of one factor, or of several together.

    $x = a\,c_h\sin\bigl(2\pi f(u\cos\theta + v\sin\theta) + \varphi\bigr) + \beta q +
    \sigma\varepsilon$ with coordinates $u$, $v$ from 0 to 1, a phase $\varphi$ drawn for the
    sample, and $a$, $q$, $\varepsilon$ as in `make_patterns`. The orientation $\theta$ has 8 levels
    from 0 to $\pi$; the frequency $f$ has 4, from 1.5 to 4.5 waves a side in equal ratios; the
    colour $c_h$ has 6, unit vectors without a grey part at angles $h$ from 0 to $\pi$. Each is off
    its level by up to a quarter of the spacing. Factors that are no part of the class have levels
    drawn at random for every sample.

    Args:
        factors: Keys of `FACTORS`; the classes are all combinations of their levels, the last
            factor's levels varying fastest.
        train_per_class: Number of training images of each class.
        test_per_class: Number of held-out images of each class.
        clutter: $\beta$.
        noise: $\sigma$.
        seed: Seed of all draws.
        size: Pixels per side.

    Returns:
        Training and held-out images.

    Raises:
        InputError: If a factor is unknown or named twice, or none is named.

    Example:
        >>> train, test = make_gratings(["orientation", "colour"], 2, 1)
        >>> train.pictures.shape, int(train.labels.max())
        (torch.Size([96, 3, 16, 16]), 47)
    """
    if not factors or len({*factors}) < len(factors) or not {*factors} <= {*FACTORS}:
        fix = f"name one or more of {', '.join(FACTORS)}, each once"
        raise InputError(expected="factors of gratings", found=repr(list(factors)), fix=fix)
    counts = [FACTORS[name] for name in factors]
    halves = []
    for half, per_class in enumerate((train_per_class, test_per_class)):
        draws = generator(seed, 1 + half)
        labels = torch.arange(math.prod(counts), device="cpu").repeat_interleave(per_class)
        levels = {
            name: torch.randint(count, (len(labels),), generator=draws, device="cpu")
            for name, count in FACTORS.items()
        }
        rest = labels
        for name, count in zip(reversed(factors), reversed(counts), strict=True):
            levels[name], rest = rest % count, rest // count
        image = _draw_waves(levels, draws, size)
        image += clutter * _draw_smooth(len(labels), size, draws)
        image += noise * torch.randn(image.shape, generator=draws, device="cpu")
        spread = math.sqrt(1.03 / 6 + clutter**2 + noise**2)
        halves.append(Pictures(_quantise(0.5 + image / (6 * spread)), labels))
    train, test = halves
    return train, test


def _draw_waves(
    levels: Mapping[str, Int[Tensor, " n"]], draws: torch.Generator, size: int
) -> Float[Tensor, "n 3 h w"]:
    """Draw gratings near the given levels of all factors, without clutter and noise."""
    count = len(levels["orientation"])

    def near(name: str) -> Float[Tensor, "n 1 1"]:
        off = (torch.rand(count, generator=draws, device="cpu") - 0.5) / 2
        return ((levels[name] + off) / FACTORS[name])[:, None, None]

    turn, hue = math.pi * near("orientation"), math.pi * near("colour").flatten()
    # Four levels in equal ratios: the first is 1.5, the last 4.5.
    waves = 1.5 * 3 ** (near("frequency") * 4 / 3)
    across = torch.arange(size, device="cpu") / size
    way = across * turn.cos() + across[:, None] * turn.sin()
    phase = 2 * math.pi * torch.rand(count, 1, 1, generator=draws, device="cpu")
    gain = 0.7 + 0.6 * torch.rand(count, 1, 1, generator=draws, device="cpu")
    wave = gain * (2 * math.pi * waves * way + phase).sin()
    red = torch.tensor([2.0, -1.0, -1.0], device="cpu") / math.sqrt(6)
    green = torch.tensor([0.0, 1.0, -1.0], device="cpu") / math.sqrt(2)
    colour = hue.cos()[:, None] * red + hue.sin()[:, None] * green
    return colour[:, :, None, None] * wave[:, None]


def _choose_originals(
    classes: Int[Tensor, " m"], half: int, per_class: int, seed: int
) -> Int[Tensor, " n"]:
    """Choose the originals of training or held-out images, each about equally often."""
    # The same stream for both halves: with another, an original could be in both.
    draws = generator(seed, 0)
    originals = []
    for label in range(int(classes.max()) + 1):
        members = (classes == label).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=draws, device="cpu")]
        held_out = round(_TEST_SHARE * len(members))
        pool = members[:held_out] if half else members[held_out:]
        originals.append(pool.repeat(-(-per_class // len(pool)))[:per_class])
    return torch.cat(originals)


def _wear(
    images: Float[Tensor, "n 1 h w"], noise: float, seed: int, half: int
) -> UInt8[Tensor, "n 1 h w"]:
    """Bend and fade each image and add noise, with random numbers drawn for the image."""
    draws = generator(seed, 1 + half)
    count, size = len(images), images.shape[-1]
    grid = functional.affine_grid(
        _draw_affine_maps(count, draws), list(images.shape), align_corners=False
    )
    bends = 0.08 * torch.randn(count, 2, 4, 4, generator=draws, device="cpu")
    smooth = functional.interpolate(bends, size=(size, size), mode="bicubic", align_corners=False)
    grid = grid + smooth.movedim(1, -1)
    warped = functional.grid_sample(images, grid, align_corners=False)
    ink = 0.7 + 0.3 * torch.rand(count, 1, 1, 1, generator=draws, device="cpu")
    # Zero is mapped to a quarter of the range, so that noise without ink is not clipped.
    grey = ink * warped + noise * torch.randn(warped.shape, generator=draws, device="cpu")
    return _quantise(0.25 + 0.5 * grey)


def _draw_affine_maps(count: int, draws: torch.Generator) -> Float[Tensor, "n 2 3"]:
    """Draw turns by up to 25 degrees, shears by 0.3, scales by 0.8 to 1.25, shifts by an eighth."""

    def uniform(limit: float) -> Float[Tensor, " n"]:
        return limit * (2 * torch.rand(count, generator=draws, device="cpu") - 1)

    turn, shear = uniform(math.radians(15)), uniform(0.2)
    scale = torch.exp(uniform(math.log(1.25)))
    rows = [
        [torch.cos(turn), shear * torch.cos(turn) - torch.sin(turn), uniform(0.125) / scale],
        [torch.sin(turn), shear * torch.sin(turn) + torch.cos(turn), uniform(0.125) / scale],
    ]
    return scale[:, None, None] * torch.stack([torch.stack(row, -1) for row in rows], 1)


def _draw_smooth(count: int, size: int, draws: torch.Generator) -> Float[Tensor, "n 3 h w"]:
    """Make random periodic images of unit variance, of waves of at least a quarter of the side."""
    white = torch.randn(count, 3, size, size, generator=draws, device="cpu")
    frequency = torch.fft.fftfreq(size, device="cpu") * size
    radius = (frequency[:, None] ** 2 + frequency**2).sqrt()
    passed = ((radius > 0) & (radius <= 4)).float()
    image = torch.fft.ifft2(torch.fft.fft2(white) * passed).real
    return image / image.std(dim=(1, 2, 3), keepdim=True)


def _shift_and_mirror(
    images: Float[Tensor, "n c h w"], draws: torch.Generator, reach: int
) -> Float[Tensor, "n c h w"]:
    """Shift each image cyclically, and mirror half of the images."""
    count, _, height, width = images.shape
    shift = torch.randint(-reach, reach + 1, (2, count, 1), generator=draws, device="cpu")
    rows = (torch.arange(height, device="cpu") + shift[0]) % height
    columns = (torch.arange(width, device="cpu") + shift[1]) % width
    mirrored = torch.rand(count, 1, generator=draws, device="cpu") < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    picked = images.gather(2, rows[:, None, :, None].expand_as(images))
    return picked.gather(3, columns[:, None, None, :].expand_as(images))


def _quantise(grey: Float[Tensor, "n c h w"]) -> UInt8[Tensor, "n c h w"]:
    return (255 * grey.clamp(0, 1)).round().to(torch.uint8)
