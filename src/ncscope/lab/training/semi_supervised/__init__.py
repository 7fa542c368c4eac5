"""Train with few labels: FixMatch, FreeMatch, and either with the information losses."""
