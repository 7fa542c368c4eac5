"""Unlabelled images for training: those of the training set, and STL-10's unlabelled split."""

from pathlib import Path

import torch

from ncscope.data.images import ImageData, Images, Pictures
from ncscope.data.preprocessing import Picture
from ncscope.data.torchvision_sets import read_stl10_unlabelled

UNKNOWN = -1
"""Label of an image whose class is unknown."""


def load_unlabelled(data: ImageData, folder: Path, download: bool) -> Images:
    """Load the images to train on without labels: all training images, labelled ones included.

    STL-10 adds 100,000 images whose labels are unknown.

    Args:
        data: Whole data set, before the labelled images are chosen from it.
        folder: Folder of the files of stored sets.
        download: Fetch missing files if True.

    Raises:
        InputError: If files are missing or broken.
    """
    if data.name != "stl10":
        return data.train
    extra = read_stl10_unlabelled(folder, download)

    def picture(index: int) -> Picture:
        labelled = len(data.train)
        return data.train.picture(index) if index < labelled else extra[index - labelled]

    labels = torch.cat([data.train.labels, torch.full((len(extra),), UNKNOWN)])
    return Images(Pictures(picture, labels), data.train.preprocessing)
