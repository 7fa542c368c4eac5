"""Collapse metrics: pure functions of class statistics, and the table of all metrics."""
