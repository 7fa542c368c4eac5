"""The papers' experiments and the surrogate models, one file each."""
