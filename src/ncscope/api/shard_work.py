"""Passes over files of shards that keep finished states, so that an interrupted run resumes."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

import ncscope
from ncscope.api.files import reading
from ncscope.api.ray_tasks import RayTasks
from ncscope.api.result import Report
from ncscope.api.shard_files import identity_of, is_address
from ncscope.api.shards import ShardPass, measure_shards
from ncscope.api.writable import reporting, write_bytes
from ncscope.errors import InputError
from ncscope.stats.decisions import DecisionCounts
from ncscope.stats.moments import ClassMoments
from ncscope.tensor_files import TensorFile

State: TypeAlias = ClassMoments | DecisionCounts
Progress: TypeAlias = Callable[[str, int, int], None]
"""Function of the name of a pass, the number of shards done, and their number."""

Runner: TypeAlias = Callable[[ShardPass, Mapping[int, str]], Iterable[tuple[int, State]]]
"""Function that runs a pass over numbered shards, and gives each result when it is there."""

_DIGITS = 32
"""Length of the digest that names the file of a state."""


def measure_files(
    files: Sequence[str],
    *,
    cluster: str | None = None,
    work: Path | None = None,
    on_shard: Progress = lambda *_: None,
    **options: Any,
) -> Report:
    """Measure shards in files, in this process or on a Ray cluster.

    Args:
        files: Paths and addresses of shards.
        cluster: ``"local"`` or the address of a Ray cluster; None for this process.
        work: Folder for the states of finished shards, which a second call takes from there; None
            to keep none after the call.
        on_shard: Function called after each shard with the progress.
        options: Options of `measure_shards`.

    Raises:
        InputError: As `measure_shards` does; or if there is no such cluster.
    """
    files = [file if is_address(file) else str(Path(file).absolute()) for file in files]
    if work is None and cluster is None:
        return measure_shards(files, map=_followed(on_shard), **options)
    with ExitStack() as stack:
        run = _one_by_one if cluster is None else stack.enter_context(RayTasks(cluster))
        folder = Path(stack.enter_context(TemporaryDirectory()) if work is None else work)
        with reporting(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return measure_shards(files, map=KeptStates(folder, run, on_shard), **options)


def _followed(on_shard: Progress) -> Callable[[ShardPass, Sequence[str]], Iterator[State]]:
    """Return the builtin map with progress."""

    def run(function: ShardPass, shards: Sequence[str]) -> Iterator[State]:
        for done, shard in enumerate(shards):
            on_shard(function.name, done, len(shards))
            yield function(shard)

    return run


def _one_by_one(function: ShardPass, shards: Mapping[int, str]) -> Iterator[tuple[int, State]]:
    for index, shard in shards.items():
        yield index, function(shard)


class KeptStates:
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

    def __call__(self, function: ShardPass, shards: Sequence[str]) -> Iterator[State]:
        """Yield the state of each shard, in order; states are read one at a time."""
        work = _digest_of_pass(function)
        names = [hashlib.sha256(f"{work} {identity_of(shard)}".encode()) for shard in shards]
        files = [self.folder / f"{name.hexdigest()[:_DIGITS]}.safetensors" for name in names]
        left = {i: s for i, s in enumerate(shards) if _read_state(files[i], function) is None}
        done = len(shards) - len(left)
        self.on_shard(function.name, done, len(shards))
        for index, state in self.run(function, left):
            write_bytes(files[index], _written(state))
            done += 1
            self.on_shard(function.name, done, len(shards))
        for shard, file in zip(shards, files, strict=True):
            known = _read_state(file, function)
            yield function(shard) if known is None else known


def remove_states(folder: Path) -> None:
    """Remove the states in a folder, and the folder if nothing else is in it."""
    for file in folder.glob(f"{'[0-9a-f]' * _DIGITS}.safetensors"):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _digest_of_pass(function: ShardPass) -> str:
    """Return a digest of all that the result of a pass depends on, besides the shard."""
    options: list[Any] = [ncscope.__version__, function.num_classes, function.dim]
    options += [function.prior, function.precision]
    tensors = {"class_counts": function.class_counts}
    second = function.second
    if second is not None:
        tensors |= {name: getattr(second, name) for name in ("classes", "means", "weight", "bias")}
        options += [second.exponent, "by class"]
    known = {name: value for name, value in tensors.items() if value is not None}
    return json.dumps([*options, *function.statistics, _digest(known)])


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()


def _written(state: State) -> bytes:
    if isinstance(state, ClassMoments):
        tensors = state.state_dict()
    else:
        counts = {name: value for name, value in vars(state).items() if value is not None}
        tensors = {name: torch.as_tensor(value) for name, value in counts.items()}
    return save(tensors, metadata={"sha256": _digest(tensors)})


def _read_state(path: Path, function: ShardPass) -> State | None:
    """Read a state; None if there is none, or it is damaged."""
    if not path.is_file():
        return None
    try:
        with reading(TensorFile.at(path)), safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if (file.metadata() or {}).get("sha256") != _digest(tensors):
                return None
            if function.second is None:
                moments = function.empty()
                moments.load_state_dict(tensors)
                return moments
            counts: dict[str, Any] = {"head_hits": None, "disagreements": None}
            counts["by_class"] = tensors.pop("by_class", None)
            return DecisionCounts(**counts | {name: int(n) for name, n in tensors.items()})
    except InputError:
        return None
