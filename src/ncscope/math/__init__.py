"""Simplex frames and symmetric linear algebra: tensors in, tensors out."""
