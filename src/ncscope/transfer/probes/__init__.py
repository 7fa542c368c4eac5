"""Linear classifiers on frozen features, each fitted to the minimum of its objective."""
