"""Checks of what the papers prove: one module of statements for each topic, one table."""
