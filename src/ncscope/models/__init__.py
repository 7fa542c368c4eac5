"""Backbones, and instruments on any classifier: its head, its layers, a mode to measure it in."""
