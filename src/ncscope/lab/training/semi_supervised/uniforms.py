"""Uniform random numbers of many images at once, each image's own."""

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
    """Numbers from 0 to 1: a row depends on its key alone, so on no other image of the batch.

    SplitMix64 (Steele, Lea and Flood 2014), counting from a hash of the key. A torch generator
    for every image would take ten times as long as the warp that the numbers are for.

    Args:
        keys: Keys of the images.
        count: Numbers for each.

    Example:
        >>> one, other = Draw(0, 3, 17), Draw(0, 3, 18)
        >>> bool((uniforms([one, other], 4)[1] == uniforms([other], 4)[0]).all())
        True
    """
    parts = np.array([tuple(key) for key in keys], dtype=np.uint64).reshape(-1, len(Draw._fields))
    with np.errstate(over="ignore"):  # modulo 2^64 is meant
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
