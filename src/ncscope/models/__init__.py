"""Access to the head, the layers and the features of any classifier, and models by name."""
