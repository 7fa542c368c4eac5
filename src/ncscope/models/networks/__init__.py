"""Networks of the papers' experiments, and the catalogue of their names."""
