"""Labelled images: named sets, the papers' preprocessing, orders that depend on seed and epoch."""
