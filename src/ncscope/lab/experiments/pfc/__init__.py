"""Experiments of PFC: collapse from layer to layer."""
