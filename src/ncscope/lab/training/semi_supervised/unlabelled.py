"""Images whose labels training does not see: the training set's, and STL-10's own."""

from pathlib import Path

import torch

from ncscope.data.images import ImageData, Images, LabelledPictures
from ncscope.data.preprocessing import Picture
from ncscope.data.torchvision_sets import read_stl10_unlabelled

UNKNOWN = -1
"""The label of an image that nobody has labelled."""


def unlabelled(data: ImageData, folder: Path, download: bool) -> Images:
    """Load the images to train on without labels: all training images, labelled ones included.

    STL-10 has 100,000 more, of which nobody knows the labels.

    Args:
        data: The whole set, before labelled images are chosen from it.
        folder: Folder of the files of stored sets.
        download: Fetch missing files if True.

    Raises:
        InputError: If files are missing or broken.
    """
    if data.name != "stl10":
        return data.train
    extra = read_stl10_unlabelled(folder, download)

    def picture(index: int) -> Picture:
        known = len(data.train)
        return data.train.picture(index) if index < known else extra[index - known]

    labels = torch.cat([data.train.labels, torch.full((len(extra),), UNKNOWN)])
    return Images(LabelledPictures(picture, labels), data.train.preprocessing)
