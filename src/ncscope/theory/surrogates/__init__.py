"""Models that stand in for a network: objectives over free matrices, and their minimisers."""
