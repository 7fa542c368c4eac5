"""Measurement of shards in files, in this process or on a Ray cluster; an interrupted run resumes.

The state of each finished shard can be kept in a folder, and is read again by the next call.
"""

import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, TypeAlias

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

import ncscope
from ncscope.api.files import explain_read_errors
from ncscope.api.readable import is_address
from ncscope.api.result import Report
from ncscope.api.shard_files import shard_identity, shard_name
from ncscope.api.shards import ShardPass, measure_shards
from ncscope.api.writable import save_bytes
from ncscope.cluster import check_address, join_cluster
from ncscope.errors import InputError
from ncscope.files import explain_write_errors
from ncscope.labels import list_marks
from ncscope.stats.decisions import DecisionCounts
from ncscope.stats.moments import ClassMoments
from ncscope.tensor_files import TensorFile

State: TypeAlias = ClassMoments | DecisionCounts
Progress: TypeAlias = Callable[[str, int, int], None]
"""Function of the name of a pass, the number of shards done, and their number."""

Runner: TypeAlias = Callable[[ShardPass, Mapping[int, Any]], Iterable[tuple[int, State]]]
"""Function that runs a pass over numbered shards, and gives each result when it is there."""

_DIGITS = 32
"""Length of the digest that names the file of a state."""

_RETRIES = 5
"""Number of times that Ray runs a task again after its worker has died."""


def measure_files(
    files: Sequence[Any],
    *,
    cluster: str | None = None,
    work: Path | None = None,
    on_shard: Progress = lambda *_: None,
    **options: Any,
) -> Report:
    """Measure shards in files, in this process or on a Ray cluster.

    Args:
        files: Paths and addresses of shards, or pairs of paths of .npy files.
        cluster: ``"local"`` or the address of a Ray cluster; None for this process.
        work: Folder for the states of finished shards, which a second call takes from there; None
            to keep none after the call.
        on_shard: Function called after each shard with the progress.
        options: Options of `measure_shards`.

    Raises:
        InputError: As `measure_shards` does; or if there is no such cluster.
    """

    def map_here(shard_pass: ShardPass, shards: Sequence[Any]) -> Iterator[State]:
        for done, shard in enumerate(shards):
            on_shard(shard_pass.name, done, len(shards))
            yield shard_pass(shard)

    def run_here(shard_pass: ShardPass, shards: Mapping[int, Any]) -> Iterator[tuple[int, State]]:
        for index, shard in shards.items():
            yield index, shard_pass(shard)

    # Workers of a cluster have another working directory.
    files = [
        tuple(map(_absolute, file)) if isinstance(file, tuple) else _absolute(file)
        for file in files
    ]
    if work is None and cluster is None:
        return measure_shards(files, map=map_here, **options)
    with ExitStack() as stack:
        run = run_here if cluster is None else stack.enter_context(RayTasks(cluster))
        # Ray's results come in any order, and `measure_shards` takes them in order: what comes
        # early waits on the disk, since the moments of all shards may not fit into memory.
        folder = Path(stack.enter_context(TemporaryDirectory()) if work is None else work)
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return measure_shards(files, map=ResumableMap(folder, run, on_shard), **options)


def _absolute(file: str | Path) -> str:
    return str(file) if is_address(str(file)) else str(Path(file).absolute())


class RayTasks:
    """Runner of passes on a Ray cluster, one task for each shard; the first task joins the cluster.

    Args:
        address: ``"local"`` to start Ray on this machine, or the address of a cluster.

    Raises:
        InputError: If no cluster answers at the address.
    """

    def __init__(self, address: str) -> None:
        check_address(address)
        self.address, self._is_joined = address, False

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
        if self._is_joined:
            import ray

            ray.shutdown()

    def __call__(
        self, shard_pass: ShardPass, shards: Mapping[int, Any]
    ) -> Iterator[tuple[int, Any]]:
        """Yield the number of a shard and the state of its samples as soon as it is there.

        Raises:
            InputError: If a shard is refused.
            RuntimeError: If the worker of a shard has died more often than Ray tries.
        """
        if not shards:
            return
        if not self._is_joined:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            handler = signal.getsignal(signal.SIGTERM)
            join_cluster(self.address)
            self._is_joined = True
            signal.signal(signal.SIGTERM, handler)  # Ray's handler would change the exit code
        import ray
        from ray.exceptions import RayError

        shared = ray.put(shard_pass)  # class means and classifier travel once to each machine
        pending = {}
        for index, shard in shards.items():
            title = f"{shard_pass.name}: {shard_name(shard)}"
            task = ray.remote(_run_task).options(num_cpus=1, max_retries=_RETRIES, name=title)
            pending[task.remote(shared, shard)] = index
        while pending:
            (done, *_), _ = ray.wait(list(pending))
            index = pending.pop(done)
            try:
                result = ray.get(done)
            except RayError as error:
                msg = f"{shard_pass.name} of {shard_name(shards[index])}: {error}"[:500]
                raise RuntimeError(msg) from error
            if isinstance(result, InputError):
                raise result
            yield index, result


def _run_task(shard_pass: ShardPass, shard: Any) -> Any:
    """Return the result of a pass, or the refusal: an error that is raised comes back wrapped."""
    try:
        return shard_pass(shard)
    except InputError as error:
        return error


class ResumableMap:
    """Map over files that writes the state of each finished shard, and reads those written before.

    The name of a state's file is a digest of the shard (path, size, date) and of the pass and its
    options, so a state is used again only for the same work. A damaged state is computed again.

    Args:
        folder: Folder of the states.
        run: Function that runs a pass over the shards that lack a state.
        on_shard: Function called with the progress.
    """

    def __init__(self, folder: Path, run: Runner, on_shard: Progress) -> None:
        self.folder, self.run, self.on_shard = folder, run, on_shard

    def __call__(self, shard_pass: ShardPass, shards: Sequence[Any]) -> Iterator[State]:
        """Yield the state of each shard, in order; states are read one at a time."""
        work = _describe_pass(shard_pass)
        names = [hashlib.sha256(f"{work} {shard_identity(shard)}".encode()) for shard in shards]
        files = [self.folder / f"{name.hexdigest()[:_DIGITS]}.safetensors" for name in names]
        left = {i: s for i, s in enumerate(shards) if _read_state(files[i], shard_pass) is None}
        done = len(shards) - len(left)
        self.on_shard(shard_pass.name, done, len(shards))
        for index, state in self.run(shard_pass, left):
            save_bytes(files[index], _encode_state(state))
            done += 1
            self.on_shard(shard_pass.name, done, len(shards))
        for shard, file in zip(shards, files, strict=True):
            state_on_disk = _read_state(file, shard_pass)
            # A file that someone damages or removes meanwhile costs time, not the run.
            yield shard_pass(shard) if state_on_disk is None else state_on_disk


def remove_states(folder: Path) -> None:
    """Remove the states in a folder, and the folder if nothing else is in it."""
    for file in folder.glob(f"{'[0-9a-f]' * _DIGITS}.safetensors"):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _describe_pass(shard_pass: ShardPass) -> str:
    """Return a text of all that the result of a pass depends on, besides the shard.

    The version of the package is part of it: another version may compute other values.
    """
    options: list[Any] = [ncscope.__version__, shard_pass.num_classes, shard_pass.dim]
    options += [shard_pass.prior, shard_pass.precision, *astuple(shard_pass.columns)]
    options += [list_marks(shard_pass.ignore_index), shard_pass.class_names, shard_pass.look]
    tensors = {"class_counts": shard_pass.class_counts}
    second = shard_pass.second
    if second is not None:
        tensors |= {name: getattr(second, name) for name in ("classes", "means", "weight", "bias")}
        options += [second.exponent, "by class"]
    present = {name: value for name, value in tensors.items() if value is not None}
    return json.dumps([*options, *shard_pass.statistics, _digest(present)])


def _digest(tensors: Mapping[str, Tensor], names: str = "") -> str:
    digest = hashlib.sha256(names.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()


def _encode_state(state: State) -> bytes:
    names = ""
    if isinstance(state, ClassMoments):
        tensors = state.state_dict()
        names = json.dumps(state.class_names)
    else:
        counts = {name: value for name, value in vars(state).items() if value is not None}
        tensors = {name: torch.as_tensor(value, device="cpu") for name, value in counts.items()}
    # A flipped byte in the numbers leaves the file readable; only the digest tells. One entry,
    # since several are written in any order, and a state is the same bytes each time.
    return save(tensors, metadata={"sha256": f"{_digest(tensors, names)} {names}"})


def _read_state(path: Path, shard_pass: ShardPass) -> State | None:
    """Read a state; None if there is none, or it is damaged."""
    if not path.is_file():
        return None
    try:
        with explain_read_errors(TensorFile.at(path)), safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            digest, _, names = (file.metadata() or {}).get("sha256", "").partition(" ")
            if digest != _digest(tensors, names):
                return None
            if shard_pass.second is None:
                moments = shard_pass([])  # of the same form, without samples
                assert isinstance(moments, ClassMoments)
                if shard_pass.look:
                    moments = ClassMoments(statistics=(), class_names=json.loads(names))
                moments.load_state_dict(tensors)
                return moments
            counts: dict[str, Any] = {"head_hits": None, "disagreements": None}
            counts["by_class"] = tensors.pop("by_class", None)
            return DecisionCounts(**counts | {name: int(n) for name, n in tensors.items()})
    except InputError:
        return None
