"""Checkpoints are whole, hold nothing that must be unpickled, and refuse what they cannot read."""

import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ncscope import files
from ncscope.errors import InputError
from ncscope_lab.training.checkpoint import Checkpoints


def test_a_state_comes_back_as_it_was(tmp_path):
    state = {"model": {"w": torch.randn(3)}, "place": {"epoch": 2, "loss": 0.1}, "rows": [{"a": 1}]}
    checkpoints = Checkpoints(tmp_path / "new" / "checkpoint.pt")
    assert checkpoints.load() is None
    checkpoints.save(state)
    found = checkpoints.load()
    assert torch.equal(found["model"]["w"], state["model"]["w"])
    assert found["place"] == state["place"]
    assert found["rows"] == state["rows"]


class Trap:
    def __reduce__(self):
        return Path.touch, (Path("sprung"),)


def test_a_pickle_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "checkpoint.pt"
    file.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match="expected a checkpoint that ncscope wrote, found"):
        Checkpoints(file).load()
    assert not Path("sprung").exists()


@pytest.mark.parametrize("place", range(0, 4000, 400))
def test_a_byte_that_changed_is_seen(place, tmp_path):
    """torch reads such numbers without a word: it checks no checksums."""
    checkpoints = Checkpoints(tmp_path / "checkpoint.pt")
    numbers = torch.arange(1000.0)
    checkpoints.save({"numbers": numbers})
    content = bytearray(checkpoints.path.read_bytes())
    content[content.find(numbers.numpy().tobytes()) + place] ^= 4
    checkpoints.path.write_bytes(content)
    with pytest.raises(InputError, match=r"that ncscope wrote, found .*checkpoint.pt: .*; remove"):
        checkpoints.load()


@pytest.mark.parametrize("other", [torch.zeros(3), [1, 2], 3, None, "text"])
def test_a_file_that_holds_something_else_is_refused(other, tmp_path):
    torch.save(other, tmp_path / "checkpoint.pt")
    with pytest.raises(InputError, match=r"that ncscope wrote, found .*checkpoint.pt: .*; remove"):
        Checkpoints(tmp_path / "checkpoint.pt").load()


def test_a_compressed_file_that_could_fill_the_memory_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoint.pt")
    checkpoints.save({"w": torch.zeros(10**5)})
    packed = tmp_path / "packed.pt"
    with zipfile.ZipFile(checkpoints.path) as old, zipfile.ZipFile(packed, "w", 8) as new:
        for record in old.infolist():
            new.writestr(record.filename, old.read(record))
    assert packed.stat().st_size < 10**4
    with pytest.raises(InputError, match="expected a checkpoint that ncscope wrote, found"):
        Checkpoints(packed).load()


def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path / "checkpoint.pt")
    checkpoints.save({"epoch": 1})

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputError, match=r"No space left on device; .* which is whole"):
        checkpoints.save({"epoch": 2})
    assert checkpoints.load() == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_too_little_space_is_known_before(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path / "checkpoint.pt")
    state = {"w": torch.zeros(10)}
    checkpoints.save(state)
    size = checkpoints.path.stat().st_size
    checkpoints.path.unlink()
    free = SimpleNamespace()
    monkeypatch.setattr("ncscope_lab.training.checkpoint.shutil.disk_usage", lambda path: free)
    free.free = int(2.2 * (size + 500))
    checkpoints.check_space(state, to_come=500)
    free.free -= 1
    said = rf"expected {free.free + 1:,} bytes free .*, found {free.free:,}; free"
    with pytest.raises(InputError, match=said):
        checkpoints.check_space(state, to_come=500)
    checkpoints.save(state)  # resumed, one is there already
    free.free -= size - 1
    checkpoints.check_space(state, to_come=500)


def test_what_a_killed_save_left_is_removed_on_request(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoint.pt")
    checkpoints.save({"epoch": 1})
    (tmp_path / "checkpoint.ptx9k.part").write_bytes(b"half")
    (tmp_path / "other.part").write_bytes(b"another's")
    checkpoints.clean()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["checkpoint.pt", "other.part"]
    assert checkpoints.load() == {"epoch": 1}


def test_a_checkpoint_is_due_after_the_wait(tmp_path):
    assert not Checkpoints(tmp_path / "a", interval=1000).due
    assert Checkpoints(tmp_path / "a", interval=0).due
