"""Experiments of VCI: variability that the classifier sees, and transfer."""
