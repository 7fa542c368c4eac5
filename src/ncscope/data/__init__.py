"""Labelled images: data sets by name, folders of images, and preprocessing."""
