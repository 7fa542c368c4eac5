"""Reading any classifier: its head, its layers, its features, and models by name."""
