"""A scope for neural collapse."""
