"""Surrogate models, each run at settings of its own."""
