"""Memory that this process can still take, and the refusal of what needs more."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ncscope.errors import InputError

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def check_memory(needed: int, what: str, fix: str) -> None:
    """Refuse what does not fit into memory, before it is allocated.

    Args:
        needed: Bytes that will be allocated.
        what: Phrase for what takes them, for example ``"the arrays of a.npz"``.
        fix: Remedy.

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
    """Return the bytes that can still be allocated, or None where the system does not say.

    The least of what the system has (free, given back by caches, and swap) and of what each limit
    on a group of processes leaves, as containers and batch systems set it. Systems other than Linux
    tell the installed memory only, and some not even that.
    """
    known = [_system_memory(), *_group_memory()]
    return min((found for found in known if found is not None), default=None)


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
    """Yield what the limit of this process's control group leaves, and of those around it."""
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            # In a container the path is the host's, and the group itself lies at the top.
            for part in (Path(path), *Path(path).parents):
                yield from _left_in(_CGROUPS / controllers / part.relative_to("/"))


def _left_in(group: Path) -> Iterator[int]:
    """Yield a group's limit less its use; caches of files in its use can be given back."""
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
    """Return the bytes of caches in a group and those below it."""
    return sum(
        int(stat.get(f"total_{name}", stat.get(name, 0)))
        for name in ("active_file", "inactive_file")
    )
