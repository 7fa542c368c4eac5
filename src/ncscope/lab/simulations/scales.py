"""Logarithmic axes, for curves that may be zero throughout."""

import numpy as np
from matplotlib.axes import Axes


def logarithmic_values(axes: Axes) -> None:
    """A logarithmic vertical axis, if what is drawn has a positive value anywhere.

    Args:
        axes: With all of its lines.
    """
    if any((np.asarray(line.get_ydata(), dtype=float) > 0).any() for line in axes.lines):
        axes.set_yscale("log")
