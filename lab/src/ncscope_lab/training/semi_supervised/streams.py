"""Batches from an endless stream of samples, for training whose epochs are numbers of steps."""

from collections.abc import Iterator

from torch.utils.data import Sampler

from ncscope.data.draws import Draw
from ncscope.data.order import epoch_order
from ncscope.errors import InputError


class StreamBatches(Sampler[list[Draw]]):
    """This process's share of each global batch of an epoch of a fixed number of steps.

    The stream concatenates random orders of all samples, and each batch of the run takes the next
    samples of the stream. A batch larger than the data set therefore holds samples several times,
    each time with another key: the key's epoch is the number of the pass over the data set.

    Args:
        count: Number of samples.
        batch_size: Size of the global batch.
        steps: Batches in an epoch.
        seed: Seed of the orders and of the augmentation.
        rank: This process's number, from 0.
        world: Number of processes.

    Raises:
        InputError: If the batch cannot be divided evenly among the processes.

    Example:
        >>> batches = StreamBatches(2, batch_size=3, steps=2, seed=0)
        >>> [[key.epoch for key in batch] for batch in batches]
        [[0, 0, 1], [1, 2, 2]]
        >>> batches.begin(epoch=1, step=1)
        >>> [[key.epoch for key in batch] for batch in batches]
        [[4, 5, 5]]
    """

    def __init__(
        self, count: int, batch_size: int, steps: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        if batch_size % world:
            expected = f"a global batch that {world} processes can share evenly"
            fix = f"pass a multiple of {world}"
            raise InputError(expected=expected, found=f"{batch_size} samples", fix=fix)
        self._count, self._batch_size, self._steps, self._seed = count, batch_size, steps, seed
        self._rank, self._world = rank, world
        self.begin(0)

    def begin(self, epoch: int, step: int = 0) -> None:
        """Set the epoch and the step at which the next iteration starts.

        Args:
            epoch: Epoch, counted from 0.
            step: Number of steps of the epoch that are already done.
        """
        self._epoch, self._step = epoch, step

    def __len__(self) -> int:
        return self._steps - self._step

    def __iter__(self) -> Iterator[list[Draw]]:
        share = self._batch_size // self._world
        orders: dict[int, list[int]] = {}
        for step in range(self._step, self._steps):
            batch = self._epoch * self._steps + step
            start = batch * self._batch_size + self._rank * share
            passes = range(start // self._count, (start + share - 1) // self._count + 1)
            orders = {lap: orders.get(lap) or self._order(lap) for lap in passes}
            places = (divmod(place, self._count) for place in range(start, start + share))
            yield [Draw(self._seed, lap, orders[lap][place]) for lap, place in places]

    def _order(self, lap: int) -> list[int]:
        order: list[int] = epoch_order(self._count, self._seed, lap).tolist()
        return order
