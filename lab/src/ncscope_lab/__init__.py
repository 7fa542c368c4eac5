"""Laboratory: train networks, run surrogate models, check theorems, repeat the papers.

The names here are those that an experiment of your own needs. No module of ncscope imports the
laboratory: the command ``ncscope`` finds its verbs through the entry-point group
``ncscope.commands``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncscope_lab.claims import Claim, above, below, within
    from ncscope_lab.execution import load_run, run
    from ncscope_lab.experiment import Experiment, Part, Trainings, train_runs
    from ncscope_lab.figures import Curve, draw_grid, draw_over_epochs
    from ncscope_lab.observations import Observation
    from ncscope_lab.quantities import (
        Run,
        Runs,
        first,
        last,
        last_over_first,
        quantity,
        zero_error_row,
    )
    from ncscope_lab.report.drawing import Drawing
    from ncscope_lab.training.optimisation import Optimisation
    from ncscope_lab.training.settings import Training

__all__ = [
    "Claim",
    "Curve",
    "Drawing",
    "Experiment",
    "Observation",
    "Optimisation",
    "Part",
    "Run",
    "Runs",
    "Training",
    "Trainings",
    "above",
    "below",
    "draw_grid",
    "draw_over_epochs",
    "first",
    "last",
    "last_over_first",
    "load_run",
    "quantity",
    "run",
    "train_runs",
    "within",
    "zero_error_row",
]

# Loaded when it is asked for, as in ncscope: the command must not wait for torch to print its help.
_HOMES = {
    "Claim": "claims",
    "Curve": "figures",
    "Drawing": "report.drawing",
    "Experiment": "experiment",
    "Observation": "observations",
    "Optimisation": "training.optimisation",
    "Part": "experiment",
    "Run": "quantities",
    "Runs": "quantities",
    "Training": "training.settings",
    "Trainings": "experiment",
    "above": "claims",
    "below": "claims",
    "draw_grid": "figures",
    "draw_over_epochs": "figures",
    "first": "quantities",
    "last": "quantities",
    "last_over_first": "quantities",
    "load_run": "execution",
    "quantity": "quantities",
    "run": "execution",
    "train_runs": "experiment",
    "within": "claims",
    "zero_error_row": "quantities",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        msg = f"module 'ncscope_lab' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"ncscope_lab.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
