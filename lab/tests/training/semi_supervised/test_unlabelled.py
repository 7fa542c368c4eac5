"""The images to train on without labels: of most sets the training images, of STL-10 more."""

import torch

from ncscope.data.catalogue import load
from ncscope.data.draws import Draw
from ncscope_lab.training.semi_supervised.unlabelled import UNKNOWN, load_unlabelled
from ncscope_lab.training.semi_supervised.views import Views
from tests.data.on_disk import WRITERS


def test_of_most_sets_they_are_the_training_images(tmp_path) -> None:
    data = load("digits")
    assert load_unlabelled(data, tmp_path, download=False) is data.train


def test_stl10_has_its_own_beside_the_training_images(tmp_path, monkeypatch) -> None:
    WRITERS["stl10"](tmp_path, monkeypatch)  # with one black image without a label
    data = load("stl10", tmp_path)
    images = load_unlabelled(data, tmp_path, download=False)
    assert len(images) == len(data.train) + 1
    assert images.labels.tolist() == [*data.train.labels.tolist(), UNKNOWN]
    assert not torch.as_tensor(images.picture(len(data.train))).any()
    for index in (0, 7):
        assert torch.equal(images[index][0], data.train[index][0])
    weak, strong = Views(images, "randaugment", ("weak", "strong")).__getitems__(
        [Draw(0, 0, 0), Draw(0, 0, len(data.train))]
    )
    assert weak.shape == strong.shape == (2, 3, 96, 96)
