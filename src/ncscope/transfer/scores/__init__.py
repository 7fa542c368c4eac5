"""Scores that predict the accuracy of a linear probe: one file for each, and `all_scores`."""
