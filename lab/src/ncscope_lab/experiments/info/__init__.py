"""Experiments of INFO: matrix information, and training with few labels."""
