"""Experiments of VCI."""
