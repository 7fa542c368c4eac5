"""Snapshots in order: by split, and on one axis of time."""

from collections.abc import Iterable

from ncscope.probing.records import ProbeRecord, Snapshot


def time_unit(snapshots: Iterable[Snapshot]) -> str:
    """``epoch``, or ``step`` where a split is measured more than once in an epoch."""
    seen = [(snapshot.split, snapshot.epoch) for snapshot in snapshots]
    return "epoch" if len(set(seen)) == len(seen) else "step"


def moment(snapshot: Snapshot, unit: str) -> int:
    """Return the snapshot's position on the time axis."""
    return snapshot.epoch if unit == "epoch" else snapshot.step


def by_split(snapshots: Iterable[Snapshot]) -> dict[str, list[Snapshot]]:
    """Group the snapshots by split, in order of time, the training split first."""
    splits: dict[str, list[Snapshot]] = {}
    for snapshot in sorted(snapshots, key=lambda snapshot: (snapshot.step, snapshot.epoch)):
        splits.setdefault(snapshot.split, []).append(snapshot)
    return dict(sorted(splits.items(), key=lambda item: (item[0] != "train", item[0])))


def layer_names(probes: Iterable[ProbeRecord]) -> list[str]:
    """Every layer's name, in forward order of first appearance."""
    return list(dict.fromkeys(record.layer for probe in probes for record in probe.layers))
