"""Faults of a stream's batches, kept on the device and read once at the end of a pass."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.array_checks import refuse_magnitude
from ncscope.errors import InputError


class BatchFaults:
    """First batch of a stream whose magnitude is not finite or out of range.

    Example:
        >>> faults = BatchFaults(torch.device("cpu"))
        >>> for magnitude in (1.0, math.nan):
        ...     faults.note(torch.tensor(magnitude).double(), limit=470)
        >>> refuse_faults({"last": faults})
        Traceback (most recent call last):
        ncscope.errors.InputError: expected finite features in layer 'last', found NaN or Inf...
    """

    def __init__(self, device: torch.device) -> None:
        self._batches = 0
        # Number of the batch, 0 for none, and its magnitude. On the device: to read it at every
        # batch would make the host wait for the work that is queued there.
        self._first = torch.zeros(2, dtype=torch.float64, device=device)

    def note(self, magnitude: Float[Tensor, ""], limit: int) -> None:
        """Note the magnitude of the next batch, without reading it.

        Args:
            magnitude: Largest magnitude, float64; NaN or infinite if a feature is.
            limit: Largest exponent of 2 of the magnitude, of either sign; zero is allowed.
        """
        self._batches += 1
        # NaN compares as False, and so is a fault.
        allowed = (magnitude >= 2.0**-limit) & (magnitude <= 2.0**limit) | (magnitude == 0)
        batch = torch.full_like(magnitude, self._batches)
        fault = torch.where(allowed, 0.0, torch.stack([batch, magnitude]))
        self._first = torch.where(self._first[0] > 0, self._first, fault)

    @property
    def first(self) -> Float[Tensor, "2"]:
        """Number of the first faulty batch, counted from 1, and its magnitude; zeros for none."""
        return self._first


def refuse_faults(faults: Mapping[str, BatchFaults], limit: int = 470) -> None:
    """Refuse the streams of which a batch was faulty. Cost: one wait for all streams.

    Args:
        faults: Faults of each layer.
        limit: Largest exponent of 2 that was allowed.

    Raises:
        InputError: If a batch was faulty; the message names the first such layer and its batch.
    """
    device = next(iter(faults.values())).first.device
    firsts = torch.stack([each.first.to(device) for each in faults.values()]).tolist()
    for name, (batch, magnitude) in zip(faults, firsts, strict=True):
        if batch:
            with name_batch(name, int(batch)):
                if not math.isfinite(magnitude):
                    fix = "drop those rows, or look for the overflow that made them"
                    raise InputError(expected="finite features", found="NaN or Inf", fix=fix)
                refuse_magnitude(math.frexp(magnitude)[1] - 1, limit)


@contextmanager
def name_batch(layer: str, batch: int) -> Iterator[None]:
    """Add the layer and the number of the batch to an InputError raised inside.

    Args:
        layer: Name of the layer.
        batch: Number of the batch, counted from 1.
    """
    try:
        yield
    except InputError as error:
        expected = f"{error.expected} in layer {layer!r}"
        raise error.but(expected=expected, found=f"{error.found} in batch {batch}") from error
