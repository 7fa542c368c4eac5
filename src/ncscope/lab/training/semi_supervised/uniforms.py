"""Uniform random numbers for many images at once, independent of how images are batched."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ncscope.data.draws import Draw

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
            state = _mixed(state + part + _GOLDEN)
        steps = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        bits = _mixed(state[:, None] + steps)
    shift = np.uint64(64 - _MANTISSA)
    return torch.from_numpy(((bits >> shift) * 2.0**-_MANTISSA).astype(np.float32))


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))
