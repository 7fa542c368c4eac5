"""Public functions: measurements, and results that can plot and save themselves."""
