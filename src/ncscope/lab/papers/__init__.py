"""Experiments of the five papers, one module each: source, cost, claims, figures."""
