"""States of finished shards: used again for the same work alone, and never when damaged."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import ncscope
from ncscope.api.measure_files import measure_files, remove_states
from tests.api.shards import cut, save_npz, save_shards


class Stop(Exception):  # noqa: N818, nothing went wrong
    pass


def stop_after(after: int):
    """Progress that interrupts after some shards."""
    calls = 0

    def on_shard(part: str, done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Stop

    return on_shard


def measure_with_progress(
    files: Sequence[str], work: Path, **options
) -> tuple[ncscope.Report, list]:
    """The report, and the pass and number of shards done whenever these are told."""
    progress = []
    report = measure_files(
        files, work=work, on_shard=lambda part, done, _: progress.append((part, done)), **options
    )
    return report, progress


def test_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path) -> None:
    samples = cut()
    files, work = save_shards(tmp_path, samples, (".npz", ".safetensors")), tmp_path / "work"
    head = {"weight": samples.weight, "bias": samples.bias, "prior": "uniform"}
    expected = ncscope.measure_shards(files, **head)
    with pytest.raises(Stop):
        measure_files(files, work=work, on_shard=stop_after(3), **head)
    assert len(list(work.iterdir())) == 3
    report, progress = measure_with_progress(files, work, **head)
    assert report.record == expected.record
    assert progress[0] == ("class counts", 3)
    again, progress = measure_with_progress(files, work, **head)
    assert again.record == expected.record
    assert progress == [(name, 6) for name in ("class counts", "first pass", "second pass")]


def test_another_shard_or_option_is_other_work(tmp_path) -> None:
    samples = cut((20, 20))
    files, work = save_shards(tmp_path, samples, (".npz",)), tmp_path / "work"
    measure_with_progress(files, work)
    for options in ({"num_classes": 9}, {"weight": samples.weight}, {"groups": ["nc4"]}):
        report, progress = measure_with_progress(files, work, **options)
        assert progress[0] == ("first pass", 0)
        assert dict(report) == dict(ncscope.measure_shards(files, **options))
    save_npz(Path(files[1]), *cut((30,), seed=1).parts[0])
    report, progress = measure_with_progress(files, work)
    assert (progress[0], report.num_samples) == (("first pass", 1), 50)


@pytest.mark.parametrize("damage", ["cut", "byte", "empty", "swapped", "other file"])
def test_a_damaged_state_is_computed_again(damage: str, tmp_path) -> None:
    samples = cut((20, 20, 20))
    files, work = save_shards(tmp_path, samples, (".npz",)), tmp_path / "work"
    expected, _ = measure_with_progress(files, work)
    for state in work.iterdir():
        content = bytearray(state.read_bytes())
        if damage == "cut":
            content = content[:-5]
        elif damage == "byte":
            content[-5] ^= 1
        elif damage == "swapped":
            content = Path(files[0]).read_bytes()
        elif damage == "empty":
            content = b""
        else:
            content = b"\x08" + bytes(7) + b"{}      "
        state.write_bytes(content)
    report, progress = measure_with_progress(files, work)
    assert progress[0] == ("first pass", 0)
    assert report.record == expected.record


def test_states_alone_are_removed(tmp_path) -> None:
    work = tmp_path / "work"
    measure_with_progress(save_shards(tmp_path, cut((20,)), (".npz",)), work)
    (work / "mine.safetensors").touch()
    remove_states(work)
    assert [file.name for file in work.iterdir()] == ["mine.safetensors"]
    (work / "mine.safetensors").unlink()
    remove_states(work)
    assert not work.exists()


def test_without_a_folder_nothing_is_left(tmp_path) -> None:
    files = save_shards(tmp_path, cut(), (".npz",))
    before = sorted(tmp_path.iterdir())
    progress = []
    measure_files(files, on_shard=lambda *words: progress.append(words))
    assert sorted(tmp_path.iterdir()) == before
    assert progress[-1] == ("second pass", 5, 6)
