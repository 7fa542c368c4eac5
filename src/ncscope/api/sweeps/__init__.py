"""Run an experiment over a grid or a list of settings, here or on a Ray cluster."""

from ncscope.api.sweeps.plan import grid
from ncscope.api.sweeps.position import OnChange, Position
from ncscope.api.sweeps.sweep import Sweep, sweep

__all__ = ["OnChange", "Position", "Sweep", "grid", "sweep"]
