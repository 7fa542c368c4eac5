"""Measurement during training with other libraries; each module needs the library of its name."""
