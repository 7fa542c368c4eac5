"""The experiments of MSE."""
