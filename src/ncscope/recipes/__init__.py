"""One file an experiment: source, cost, claims, figures."""
