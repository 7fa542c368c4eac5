"""Features kept for a second pass come back bit by bit, from memory and from disk."""

import os
import resource
import signal
from pathlib import Path

import pytest
import torch

from ncscope.stats.store import FeatureStore

from ..ranks import code_of, forked

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8]


def batches(dtype: torch.dtype) -> list[tuple[dict[str, torch.Tensor], torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            {
                "early": (20 * torch.randn(n, 7, generator=generator)).to(dtype),
                "blocks/1 late": (20 * torch.randn(3, n, generator=generator)).to(dtype).T,
            },
            torch.arange(n) % 2,
        )
        for n in (5, 1, 8)
    ]


def bytes_of(kept: list[tuple[dict[str, torch.Tensor], torch.Tensor]]) -> int:
    return sum(rows.nbytes for features, y in kept for rows in (*features.values(), y))


def assert_holds(store: FeatureStore, expected) -> None:
    found = list(store)
    assert len(found) == len(expected)
    for (rows, labels), (wanted, y) in zip(found, expected, strict=True):
        assert list(rows) == list(wanted)
        assert torch.equal(labels, y)
        for name in wanted:
            assert rows[name].dtype == wanted[name].dtype
            assert torch.equal(rows[name], wanted[name])


def on_disk(folder: Path) -> list[int]:
    """Sizes of this process's open files in a folder; none of them has a name in it."""
    assert list(folder.iterdir()) == []
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link.stat().st_size for link in links if str(link.readlink()).startswith(f"{folder}/")]


@pytest.mark.parametrize("budget", [0, 300, 10**6])
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_come_back_any_number_of_times(dtype, budget: int, tmp_path: Path) -> None:
    expected = batches(dtype)
    with FeatureStore(budget, tmp_path) as store:
        for rows, labels in expected:
            store.append(rows, labels)
        assert_holds(store, expected)
        assert_holds(store, expected)
        assert store.bytes_in_memory <= budget
        assert bool(on_disk(tmp_path)) == (budget < bytes_of(expected))
    assert on_disk(tmp_path) == []


def test_memory_holds_up_to_the_budget(tmp_path: Path) -> None:
    with FeatureStore(250, tmp_path) as store:
        for _ in range(3):
            store.append({"x": torch.zeros(10, 1)}, torch.zeros(10, dtype=torch.int64))
        assert store.bytes_in_memory == 240
        assert on_disk(tmp_path) == [64 + 80]  # 40 bytes of features, 80 of labels after them


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_frees_the_disk(error: type[BaseException], tmp_path: Path) -> None:
    def spill_and_fail() -> None:
        with FeatureStore(0, tmp_path) as store:
            store.append({"x": torch.ones(4, 2)}, torch.zeros(4, dtype=torch.int64))
            assert on_disk(tmp_path) == [64 + 32]
            raise error

    with pytest.raises(error):
        spill_and_fail()
    assert on_disk(tmp_path) == []


def test_writing_to_what_comes_back_does_not_change_what_is_kept(tmp_path: Path) -> None:
    with FeatureStore(0, tmp_path) as store:
        store.append({"x": torch.ones(2, 2)}, torch.zeros(2, dtype=torch.int64))
        next(iter(store))[0]["x"].zero_()
        assert next(iter(store))[0]["x"].sum() == 4


def test_an_empty_store_has_no_batches() -> None:
    with FeatureStore() as store:
        assert list(store) == []


def test_a_batch_without_rows_comes_back() -> None:
    empty = {"x": torch.ones(0, 2)}, torch.zeros(0, dtype=torch.int64)
    full = {"x": torch.ones(3, 2)}, torch.arange(3)
    with FeatureStore(0) as store:
        for batch in (empty, full, empty):
            store.append(*batch)
        assert_holds(store, [empty, full, empty])


def fill_the_disk(folder: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    with FeatureStore(0, folder) as store:
        store.append({"x": torch.ones(50, 2)}, torch.zeros(50, dtype=torch.int64))  # to byte 848
        with pytest.raises(OSError, match="File too large"):
            store.append({"x": torch.ones(10, 2)}, torch.zeros(10, dtype=torch.int64))


def test_a_full_disk_is_noticed_at_once(tmp_path: Path) -> None:
    assert code_of(forked(lambda: fill_the_disk(tmp_path))) == 0


def spill_and_wait(folder: Path, pipe: int) -> None:
    with FeatureStore(0, folder) as store:
        store.append({"x": torch.ones(4, 2)}, torch.zeros(4, dtype=torch.int64))
        os.write(pipe, bytes(on_disk(folder)))
        signal.pause()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_kill_leaves_nothing_on_the_disk(how: signal.Signals, tmp_path: Path) -> None:
    spilled, pipe = os.pipe()
    child = forked(lambda: spill_and_wait(tmp_path, pipe))
    os.close(pipe)  # or a child that fails would leave the parent reading
    assert os.read(spilled, 1) == bytes([96])
    os.close(spilled)
    os.kill(child, how)
    assert code_of(child) == -how
    assert list(tmp_path.iterdir()) == []


def test_layers_of_any_name_go_to_disk(tmp_path: Path) -> None:
    names = ["x" * 300, "a/b", "a\0b", "..", "\udcff", "a", "A"]
    with FeatureStore(0, tmp_path) as store:
        for _ in range(2):
            kept = {name: torch.full((2, 1), float(index)) for index, name in enumerate(names)}
            store.append(kept, torch.tensor([0, 1]))
        for rows, _ in store:
            assert {name: float(own.sum()) / 2 for name, own in rows.items()} == {
                name: index for index, name in enumerate(names)
            }
