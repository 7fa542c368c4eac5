"""Processes below one, for tests that kill some and see that none is left."""

import re
from contextlib import suppress
from pathlib import Path


def descendants(process: int) -> list[int]:
    """Every process below this one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = [process]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def of_ray(processes: list[int]) -> set[int]:
    """Processes of a cluster. A browser that other tests share may start some of its own."""
    with_ray = set()
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError):
            command = Path(f"/proc/{process}/cmdline").read_text()
            if re.search(r"raylet|gcs_server|ray::|/ray/", command):
                with_ray.add(process)
    return with_ray
