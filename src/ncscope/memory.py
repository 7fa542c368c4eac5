"""Memory that this process can still allocate, and a check of planned allocations."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ncscope.errors import InputError

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def check_memory(needed: int, what: str, fix: str) -> None:
    """Refuse an allocation that does not fit into memory, before it is made.

    Args:
        needed: Bytes that will be allocated.
        what: Description of the allocation, for example ``"the arrays of a.npz"``.
        fix: Remedy for the message.

    Raises:
        InputError: If fewer bytes are available.
    """
    available = available_memory()
    if available is not None and needed > available:
        raise InputError(
            expected=f"{needed:,} bytes of memory for {what}",
            found=f"{available:,} available",
            fix=fix,
        )


def available_memory() -> int | None:
    """Return the bytes that can still be allocated, or None if the system does not report them.

    The result is the minimum of the system's memory (free memory, caches that can be released, and
    swap) and of the remainder of each limit on a group of processes, which containers and batch
    systems set. Systems other than Linux report the installed memory only, or nothing.
    """
    limits = [_system_memory(), *_group_memory()]
    return min((limit for limit in limits if limit is not None), default=None)


def _system_memory() -> int | None:
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
    except OSError:
        return _installed_memory()
    kibibytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
    if "MemAvailable" not in kibibytes:  # Linux before 3.14
        return _installed_memory()
    return 1024 * (kibibytes["MemAvailable"] + kibibytes.get("SwapFree", 0))


def _installed_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def _group_memory() -> Iterator[int]:
    """Yield the remainder of the limits of this process's control group and of its parents."""
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            # In a container the path is that of the host, and the group itself is at the root.
            for part in (Path(path), *Path(path).parents):
                yield from _left_in(_CGROUPS / controllers / part.relative_to("/"))


def _left_in(group: Path) -> Iterator[int]:
    """Yield a group's limit minus its use; file caches count as free, as they can be released."""
    names = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}
    for limit, use in names.items():
        try:
            most, used = (group / limit).read_text().strip(), int((group / use).read_text())
            lines = (group / "memory.stat").read_text().splitlines()
        except OSError:
            continue
        if most != "max":
            yield max(0, int(most) - used + _file_caches(dict(line.split() for line in lines)))


def _file_caches(stat: Mapping[str, str]) -> int:
    """Return the bytes of file caches in a group and its children."""
    return sum(
        int(stat.get(f"total_{name}", stat.get(name, 0)))
        for name in ("active_file", "inactive_file")
    )
