"""Linear classifiers on frozen features, each at its minimum."""
