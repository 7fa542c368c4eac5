"""How collapse comes about in time: flows on the central path, and their closed forms."""
