"""Logarithmic axes, for curves that may be zero throughout."""

import numpy as np
from matplotlib.axes import Axes


def logarithmic_values(axes: Axes) -> None:
    """Make the vertical axis logarithmic if a positive value is drawn on it.

    Args:
        axes: Axes on which all lines are already drawn.
    """
    if any((np.asarray(line.get_ydata(), dtype=float) > 0).any() for line in axes.lines):
        axes.set_yscale("log")
