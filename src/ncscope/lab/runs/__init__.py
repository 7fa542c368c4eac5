"""Runs of experiments: recipe, settings, resources, seeds and the run folder."""
