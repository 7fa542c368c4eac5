"""Training with few labels: eight methods, with or without the information losses."""
