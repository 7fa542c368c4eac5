"""Surrogate models as studies: each with settings of its own, for `ncscope simulate`."""
