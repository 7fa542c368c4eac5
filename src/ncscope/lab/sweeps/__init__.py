"""Run an experiment over a grid or a list of settings, here or on a Ray cluster."""

from ncscope.lab.sweeps.every_experiment import Reproduction, reproduce_all
from ncscope.lab.sweeps.plan import grid
from ncscope.lab.sweeps.run_request import OnChange, RunProgress
from ncscope.lab.sweeps.sweep import Sweep, sweep

__all__ = [
    "OnChange",
    "Reproduction",
    "RunProgress",
    "Sweep",
    "grid",
    "reproduce_all",
    "sweep",
]
