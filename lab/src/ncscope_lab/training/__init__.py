"""Training of classifiers: settings, losses, the loop and its checkpoints."""
