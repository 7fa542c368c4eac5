"""Figures, tables and pages of experiments."""
