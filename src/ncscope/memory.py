"""Memory that this process can still allocate, and a check of planned allocations."""

import os
from collections.abc import Iterator
from pathlib import Path

from ncscope.errors import InputError

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_LIMITS = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}
"""Files of a control group's limit and use of memory, in version 2 and in version 1."""


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
        lines = []
    kibibytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
    if "MemAvailable" in kibibytes:  # Linux since 3.14
        return 1024 * (kibibytes["MemAvailable"] + kibibytes.get("SwapFree", 0))
    try:  # else the installed memory
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def _group_memory() -> Iterator[int]:
    """Yield what is left of the limits of this process's control group and of its parents."""
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        # In a container the path is that of the host, and the group itself is at the root.
        for part in (Path(path), *Path(path).parents):
            group = _CGROUPS / controllers / part.relative_to("/")
            for limit, use in _LIMITS.items():
                try:
                    most, used = (group / limit).read_text().strip(), int((group / use).read_text())
                    stat = dict(
                        row.split() for row in (group / "memory.stat").read_text().splitlines()
                    )
                except OSError:
                    continue
                if most != "max":
                    # Cached files count as used, but the system releases them when it needs memory.
                    # In version 1, the names with total_ are those that include the children.
                    caches = sum(
                        int(stat.get(f"total_{name}", stat.get(name, 0)))
                        for name in ("active_file", "inactive_file")
                    )
                    yield max(0, int(most) - used + caches)
