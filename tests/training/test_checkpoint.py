"""Checkpoints are whole, hold nothing that must be unpickled, and refuse what they cannot read."""

import pickle
from pathlib import Path

import pytest
import torch

from ncscope import files
from ncscope.errors import InputError
from ncscope.training.checkpoint import Checkpoints


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


def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path / "checkpoint.pt")
    checkpoints.save({"epoch": 1})

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoints.save({"epoch": 2})
    assert checkpoints.load() == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_too_little_space_is_known_before(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path / "checkpoint.pt")
    checkpoints.check_space({"w": torch.zeros(10)})
    usage = type("usage", (), {"free": 100})
    monkeypatch.setattr("ncscope.training.checkpoint.shutil.disk_usage", lambda path: usage)
    with pytest.raises(InputError, match=r"bytes free for checkpoints in .*, found 100; free some"):
        checkpoints.check_space({"w": torch.zeros(10)})


def test_a_checkpoint_is_due_after_the_wait(tmp_path):
    assert not Checkpoints(tmp_path / "a", seconds=1000).due
    assert Checkpoints(tmp_path / "a", seconds=0).due
