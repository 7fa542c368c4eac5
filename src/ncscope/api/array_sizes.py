"""Sizes of arrays in .npy format, from their headers alone."""

import io
import math

import numpy as np

LONGEST_HEADER = 10_000
"""Longest header in bytes. NumPy refuses longer ones only after reading them: up to 4 GiB."""


def check_array(head: bytes, size: int) -> int:
    """Return the bytes of an array's numbers, after checking that the file is large enough.

    Args:
        head: First `LONGEST_HEADER` bytes of an array in .npy format.
        size: Bytes of header and numbers, as the file system or the archive reports them.

    Raises:
        ValueError: If the header is damaged, announces more numbers than the file can hold, or
            announces Python objects.
    """
    start = io.BytesIO(head)
    version = np.lib.format.read_magic(start)
    first = version == (1, 0)  # later versions have a longer field for the header's length
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(start)
    if dtype.hasobject:
        msg = "Object arrays are pickled"
        raise ValueError(msg)
    # An entry of a type without bytes counts as one byte, or its shape could have any size.
    needed, held = math.prod(shape) * max(1, dtype.itemsize), size - start.tell()
    if min(shape, default=0) < 0 or needed > held:
        array = f"{dtype} of shape {shape}"
        msg = f"{array[:80]} takes {needed:,} bytes, and there are {held:,}"
        raise ValueError(msg)
    return needed
