"""Dynamics of collapse: flows on the central path, and their closed forms."""
