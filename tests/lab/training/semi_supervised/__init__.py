"""Training with few labels."""
