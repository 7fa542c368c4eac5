"""Solvers of surrogate models: the papers' plain gradient descent, and a fast solver."""
