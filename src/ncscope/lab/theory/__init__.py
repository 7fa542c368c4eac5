"""Checks of the papers' statements: one module of statements for each topic, one table."""
