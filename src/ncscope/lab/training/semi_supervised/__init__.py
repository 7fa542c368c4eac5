"""Training with few labels: FixMatch and FreeMatch, with or without the information losses."""
