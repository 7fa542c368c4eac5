"""Sufficient statistics of labelled features: one pass, mergeable, exact."""
