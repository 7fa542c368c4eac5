"""Measurement of a model: forward passes, features of its layers, statistics, plain records."""
