"""Features kept for a second look come back bit by bit, from memory and from disk."""

from pathlib import Path

import pytest
import torch

from ncscope.stats.store import FeatureStore

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
        assert bool(list(tmp_path.iterdir())) == (budget < bytes_of(expected))
    assert list(tmp_path.iterdir()) == []


def test_memory_holds_up_to_the_budget(tmp_path: Path) -> None:
    with FeatureStore(250, tmp_path) as store:
        for _ in range(3):
            store.append({"x": torch.zeros(10, 1)}, torch.zeros(10, dtype=torch.int64))
        assert store.bytes_in_memory == 240
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert sorted(path.stat().st_size for path in files) == [40, 80]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_removes_the_files(error: type[BaseException], tmp_path: Path) -> None:
    def spill_and_fail() -> None:
        with FeatureStore(0, tmp_path) as store:
            store.append({"x": torch.ones(4, 2)}, torch.zeros(4, dtype=torch.int64))
            assert any(path.is_file() for path in tmp_path.rglob("*"))
            raise error

    with pytest.raises(error):
        spill_and_fail()
    assert list(tmp_path.iterdir()) == []


def test_writing_to_what_comes_back_does_not_change_what_is_kept(tmp_path: Path) -> None:
    with FeatureStore(0, tmp_path) as store:
        store.append({"x": torch.ones(2, 2)}, torch.zeros(2, dtype=torch.int64))
        next(iter(store))[0]["x"].zero_()
        assert next(iter(store))[0]["x"].sum() == 4


def test_an_empty_store_has_no_batches() -> None:
    with FeatureStore() as store:
        assert list(store) == []


def test_layers_of_any_name_go_to_disk(tmp_path: Path) -> None:
    names = ["x" * 300, "a/b", "a\0b", "..", "\udcff", "a", "A"]
    with FeatureStore(0, tmp_path) as store:
        for _ in range(2):
            kept = {name: torch.full((2, 1), float(place)) for place, name in enumerate(names)}
            store.append(kept, torch.tensor([0, 1]))
        for rows, _ in store:
            assert {name: float(own.sum()) / 2 for name, own in rows.items()} == {
                name: place for place, name in enumerate(names)
            }
