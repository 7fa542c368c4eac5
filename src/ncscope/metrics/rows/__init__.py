"""Table of metrics, with a file for each group."""
