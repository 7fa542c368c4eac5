"""Each format is read through the real loader; nothing is downloaded or unpickled unasked."""

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import datasets

from ncscope.data.catalogue import CATALOGUE, load
from ncscope.data.images import Images
from ncscope.errors import InputError
from tests.data.on_disk import WRITERS, write_cifar, write_idx, write_svhn

DOWNLOADABLE = sorted(set(WRITERS) - {"imagenet"})


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **kwargs: object) -> None:
        raise AssertionError("the internet was asked")

    monkeypatch.setattr("urllib.request.urlopen", refused)


def grey_levels(images: Images, name: str) -> torch.Tensor:
    """The measured images with the normalisation undone."""
    mean, deviation = (torch.tensor(s)[:, None, None] for s in CATALOGUE[name].statistics)
    measured = torch.stack([images[i][0] for i in range(len(images))])
    return 255 * (measured * deviation + mean)


@pytest.mark.parametrize("name", WRITERS)
def test_pixels_and_labels_are_those_on_disk(name, tmp_path, monkeypatch):
    written = WRITERS[name](tmp_path, monkeypatch)
    data = load(name, tmp_path)
    for images, (pixels, labels) in ((data.train, written.train), (data.test, written.test)):
        assert images.labels.tolist() == labels.tolist()
        assert [images[i][1] for i in range(len(images))] == labels.tolist()
        torch.testing.assert_close(
            grey_levels(images, name), torch.tensor(pixels).float(), atol=1e-3, rtol=0
        )
    assert data.num_classes == written.train[1].max() + 1
    assert data.train[0][0].shape == data.shape


@pytest.mark.parametrize("name", WRITERS)
def test_a_missing_set_says_what_to_do(name, tmp_path):
    with pytest.raises(InputError, match=str(tmp_path)) as error:
        load(name, tmp_path)
    assert ("pass --download" in str(error.value)) == (name in DOWNLOADABLE)
    assert "found no " in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", WRITERS)
def test_one_missing_file_is_named(name, tmp_path, monkeypatch):
    WRITERS[name](tmp_path, monkeypatch)
    lost = sorted(file for file in tmp_path.rglob("*") if file.is_file())[0]
    for sibling in lost.parent.iterdir():  # a class folder must lose all its photographs
        if name == "imagenet" or sibling == lost:
            sibling.unlink()
    shown = "n01440764" if name == "imagenet" else lost.name
    with pytest.raises(InputError, match=shown):
        load(name, tmp_path)


@pytest.mark.parametrize("name", DOWNLOADABLE)
def test_with_consent_torchvision_downloads(name, tmp_path):
    """It gets as far as the internet, which the fixture refuses."""
    with pytest.raises(InputError, match=r"expected to download .* the internet was asked"):
        load(name, tmp_path, download=True)


@pytest.mark.parametrize("name", WRITERS)
def test_consent_downloads_nothing_that_is_there(name, tmp_path, monkeypatch):
    written = WRITERS[name](tmp_path, monkeypatch)
    assert len(load(name, tmp_path, download=True).train) == len(written.train[1])


@pytest.mark.parametrize("kind", [datasets.MNIST, datasets.FashionMNIST])
def test_packed_idx_files_are_read_where_they_lie(kind, tmp_path):
    written = write_idx(kind, tmp_path, packed=True)
    before = sorted(tmp_path.rglob("*"))
    name = {"MNIST": "mnist", "FashionMNIST": "fashion-mnist"}[kind.__name__]
    data = load(name, tmp_path)
    read = grey_levels(data.train, name).round().to(torch.uint8).numpy()
    assert np.array_equal(read, written.train[0])
    assert sorted(tmp_path.rglob("*")) == before


def test_a_cut_off_packed_file_is_an_input_error(tmp_path):
    write_idx(datasets.MNIST, tmp_path, packed=True)
    file = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="EOFError"):
        load("mnist", tmp_path)


def test_a_cut_off_idx_file_is_an_input_error(tmp_path):
    write_idx(datasets.MNIST, tmp_path, packed=False)
    file = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="whole and unchanged"):
        load("mnist", tmp_path)


class Trap:
    """Leaves a mark when unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("victim", ["data_batch_3", "test_batch", "batches.meta"])
def test_a_changed_pickle_is_never_opened(victim, tmp_path, monkeypatch):
    write_cifar(datasets.CIFAR10, tmp_path, monkeypatch)
    mark = tmp_path / "opened"
    (tmp_path / "cifar-10-batches-py" / victim).write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(InputError, match=r"CIFAR10.*delete them and pass --download"):
        load("cifar10", tmp_path)
    assert not mark.exists()


def test_a_changed_matlab_file_is_refused(tmp_path, monkeypatch):
    write_svhn(tmp_path, monkeypatch)
    with (tmp_path / "train_32x32.mat").open("ab") as file:
        file.write(b"more")
    with pytest.raises(InputError, match="SVHN"):
        load("svhn", tmp_path)


def test_class_folders_of_both_halves_must_agree(tmp_path, monkeypatch):
    WRITERS["imagenet"](tmp_path, monkeypatch)
    val = tmp_path / "imagenet" / "val"
    (val / "n02102040").rename(val / "n03000684")
    with pytest.raises(InputError, match=r"2 in one only, n02102040"):
        load("imagenet", tmp_path)


def test_gzip_is_not_told_by_chance(tmp_path):
    """A half-unpacked folder is read from both kinds of file."""
    written = write_idx(datasets.MNIST, tmp_path, packed=True)
    packed = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz"
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    assert load("mnist", tmp_path).test.labels.tolist() == written.test[1].tolist()
