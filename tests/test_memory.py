"""Memory that is left, as the system and the limits on groups of processes tell it."""

from pathlib import Path

import pytest
import torch

from ncscope import InputError, measure, memory


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system that says nothing yet."""
    monkeypatch.setattr(memory, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "cgroup")
    return tmp_path


def write(path: Path, **files: object) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (path / name.replace("__", ".")).write_text(f"{content}\n")


def test_what_the_system_has() -> None:
    found = memory.available_memory()
    assert found is not None
    assert 2**20 < found < 2**50


def test_free_memory_and_swap(system: Path) -> None:
    write(system / "proc", meminfo="MemTotal: 100 kB\nMemAvailable: 7 kB\nSwapFree: 2 kB")
    assert memory.available_memory() == 9 * 1024


def test_without_either_the_installed_memory(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(memory.os, "sysconf", sizes.__getitem__)
    assert memory.available_memory() == 40960
    write(system / "proc", meminfo="MemTotal: 100 kB")
    assert memory.available_memory() == 40960
    monkeypatch.delattr(memory.os, "sysconf")
    assert memory.available_memory() is None
    memory.check_memory(2**60, "anything", "nothing")


def test_a_limit_on_a_group_of_processes(system: Path) -> None:
    write(system / "proc", meminfo="MemAvailable: 1000 kB\nSwapFree: 0 kB")
    write(system / "proc" / "self", cgroup="0::/batch/job")
    group = system / "cgroup" / "batch"
    stat = "anon 5\nactive_file 30\ninactive_file 20"
    write(group / "job", memory__max="max", memory__current=10, memory__stat=stat)
    assert memory.available_memory() == 1000 * 1024
    write(group, memory__max=500, memory__current=100, memory__stat=stat)
    assert memory.available_memory() == 450
    write(group / "job", memory__max=200, memory__current=100, memory__stat=stat)
    assert memory.available_memory() == 150
    write(group / "job", memory__max=20, memory__current=100, memory__stat=stat)
    assert memory.available_memory() == 0


def test_a_limit_as_older_systems_set_it(system: Path) -> None:
    write(system / "proc", meminfo="MemAvailable: 1000 kB\nSwapFree: 0 kB")
    write(system / "proc" / "self", cgroup="5:cpu:/x\n4:memory:/docker/1")
    stat = "active_file 1\ntotal_active_file 3\ntotal_inactive_file 4"
    limits = {"memory__limit_in_bytes": 100, "memory__usage_in_bytes": 60, "memory__stat": stat}
    write(system / "cgroup" / "memory", **limits)  # in a container the path is the host's
    assert memory.available_memory() == 47


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    memory.check_memory(1000, "this", "pass less")
    with pytest.raises(InputError) as refused:
        memory.check_memory(1001, "this", "pass less")
    said = "expected 1,001 bytes of memory for this, found 1,000 available; pass less"
    assert str(refused.value) == said


def test_a_covariance_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    features = torch.randn(12, 100, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(12) % 3
    monkeypatch.setattr(memory, "available_memory", lambda: 8 * 100**2 - 1)
    with pytest.raises(InputError, match="80,000 bytes of memory for the covariance of 100 feat"):
        measure(features, labels)
    assert measure(features, labels, groups=["pfc"])["pfc1"] > 0
    monkeypatch.setattr(memory, "available_memory", lambda: 8 * 100**2)
    assert measure(features, labels, groups=["nc1"])["nc1_quotient"] > 0
