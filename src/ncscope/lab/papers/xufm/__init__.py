"""Experiments of XUFM."""
