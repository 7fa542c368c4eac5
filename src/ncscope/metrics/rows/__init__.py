"""The table of metrics, a file for each group."""
