"""Folder, lock, settings, resources and seeds of a run."""
