"""Sizes of arrays in .npy format, from their headers alone."""

import io
import math

import numpy as np

LONGEST_HEADER = 10_000
"""Bytes: numpy refuses longer headers too, but only after it has read one of up to 4 GiB."""


def check_array(head: bytes, size: int) -> int:
    """Return the bytes of an array's numbers, and check that they are there.

    Args:
        head: First `LONGEST_HEADER` bytes of an array in .npy format.
        size: Bytes of the whole, as the file system or the archive says.

    Raises:
        ValueError: If the header is damaged, promises more numbers than there are, or is of
            Python objects.
    """
    start = io.BytesIO(head)
    version = np.lib.format.read_magic(start)
    first = version == (1, 0)  # the others have a longer field for the header's length
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(start)
    if dtype.hasobject:
        msg = "Object arrays are pickled"
        raise ValueError(msg)
    # An entry of no bytes is counted as one: a shape is otherwise free to be of any size.
    needed, held = math.prod(shape) * max(1, dtype.itemsize), size - start.tell()
    if min(shape, default=0) < 0 or needed > held:
        what = f"{dtype} of shape {shape}"
        msg = f"{what[:80]} takes {needed:,} bytes, and there are {held:,}"
        raise ValueError(msg)
    return needed
