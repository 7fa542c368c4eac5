"""Numerical checks of the papers' statements: one module per topic, and one table of all."""
