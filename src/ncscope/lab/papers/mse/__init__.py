"""Experiments of MSE."""
