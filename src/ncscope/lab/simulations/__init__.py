"""Studies of the surrogate models, each with its settings, for `ncscope simulate`."""
