"""Minimisers of surrogate models: the papers' plain descent, and a fast solver."""
