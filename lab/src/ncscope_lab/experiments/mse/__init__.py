"""Experiments of MSE: collapse under the squared loss, and the central path."""
