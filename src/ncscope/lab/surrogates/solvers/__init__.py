"""How a surrogate model is minimised: the papers' plain descent, and a fast way."""
