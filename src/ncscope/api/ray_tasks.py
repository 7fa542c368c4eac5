"""Passes over shards as tasks of a Ray cluster, one task for each shard."""

import os
import signal
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from ncscope.api.shard_files import name_of
from ncscope.api.shards import ShardPass
from ncscope.cluster import check_address, join_cluster
from ncscope.errors import InputError

_RETRIES = 5
"""Number of times that Ray runs a task again after its worker has died."""


class RayTasks:
    """Runner of passes on a Ray cluster, which is joined for the first task.

    Args:
        address: ``"local"`` to start Ray on this machine, or the address of a cluster.

    Raises:
        InputError: If no cluster answers at the address.
    """

    def __init__(self, address: str) -> None:
        check_address(address)
        self.address, self._joined = address, False

    def __enter__(self) -> "RayTasks":
        """Return the runner."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the cluster; Ray then ends what still runs."""
        if self._joined:
            import ray

            ray.shutdown()

    def __call__(self, function: ShardPass, shards: Mapping[int, str]) -> Iterator[tuple[int, Any]]:
        """Yield the number of a shard and the state of its samples as soon as it is there.

        Raises:
            InputError: If a shard is refused.
            RuntimeError: If the worker of a shard has died more often than Ray tries.
        """
        if not shards:
            return
        self._join()
        import ray
        from ray.exceptions import RayError

        shared = ray.put(function)  # class means and classifier travel once to each machine
        pending = {}
        for index, shard in shards.items():
            named = f"{function.name}: {name_of(shard)}"
            task = ray.remote(_result).options(num_cpus=1, max_retries=_RETRIES, name=named)
            pending[task.remote(shared, shard)] = index
        while pending:
            (done, *_), _ = ray.wait(list(pending))
            index = pending.pop(done)
            try:
                result = ray.get(done)
            except RayError as error:
                msg = f"{function.name} of {name_of(shards[index])}: {error}"[:500]
                raise RuntimeError(msg) from error
            if isinstance(result, InputError):
                raise result
            yield index, result

    def _join(self) -> None:
        if self._joined:
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        before = signal.getsignal(signal.SIGTERM)
        join_cluster(self.address)
        self._joined = True
        signal.signal(signal.SIGTERM, before)  # Ray's handler would change the exit code


def _result(function: ShardPass, shard: str) -> Any:
    """Return the result of a pass, or the refusal; an error would come back wrapped by Ray."""
    try:
        return function(shard)
    except InputError as error:
        return error
