"""Names of all experiments. The module of one is imported only when it is requested."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncscope.errors import InputError
from ncscope.models.own_code import open_own

if TYPE_CHECKING:
    from ncscope_lab.experiment import Experiment

EXPERIMENTS: Mapping[str, str] = {
    "xufm/ufm": "XUFM figures 1-2 and 6-7: collapse of unconstrained features.",
    "xufm/extended": "XUFM figures 3-4 and 8-9: collapse at two levels, linear and ReLU.",
    "pfc/mufm": "PFC figures 4-5: features between the data and the simplex.",
    "mse/central-path": "MSE theorem 3 and its corollaries: the flow to collapse.",
    "mse/collapse": "MSE figures 3-8 and table 1: NC1 to NC4 while networks train under MSE.",
    "mse/decomposition": "MSE figure 2: the three parts of the loss while networks train.",
    "mse/loss-comparison": "MSE figures 10 and 12: NC1 under MSE and under cross-entropy.",
    "mse/robustness": "MSE figures 9 and 11: DeepFool margins at zero error and at the end.",
    "pfc/training": "PFC figures 2-3: collapse layer by layer while residual networks train.",
    "xufm/network": "XUFM figures 5 and 10: collapse by residual block, MSE and cross-entropy.",
    "info/training": "INFO figures 1-2: accuracy, MIR and HDR while networks train.",
    "info/connectivity": "INFO figures 3-4: networks between two that share their start.",
    "info/label-smoothing": "INFO figure 5: MIR and HDR under label smoothing.",
    "info/pruning": "INFO figure 6: MIR and HDR between a network and its pruned self.",
    "info/grokking": "INFO figure 7: a transformer learns addition by heart, then by rule.",
    "info/supervised": "INFO table 2: cross-entropy, with mutual information, with entropies.",
    "info/semi-supervised": "INFO table 1: few labels, FreeMatch with the information losses.",
    "vci/training": "VCI figures 1-3, 6 and 8: variability metrics while a network trains.",
    "vci/imagenet": "VCI figures 1, 2 and 4-6: the same on many classes, losses and a transformer.",
    "vci/transfer": "VCI figure 7 and tables 1-2: collapse in pretraining, and transfer.",
    "pfc/demo": "Collapse of every layer of a small network on handwritten digits, in seconds.",
    "transfer/zoo": "Scores that predict transfer, compared on 128 networks and 13 targets.",
    "ufm": "Unconstrained features under the MSE loss, with any kind of bias.",
    "ufm-cross-entropy": "Unconstrained features under the cross-entropy loss.",
    "extended": "Several layers of weights on unconstrained features, linear or ReLU.",
    "perturbed": "The best classifier on collapsed features that noise has moved.",
    "mufm": "Features tied to the data by the way they have come, layer by layer or reduced.",
    "geodesic": "The straight line from data to collapsed features.",
    "central-path": "Features under the best classifier, flowing down the MSE loss.",
}
"""Description of each experiment, by name. A name without a slash is that of a surrogate model."""

REPRODUCTIONS = tuple(
    name for name in EXPERIMENTS if "/" in name and name not in ("pfc/demo", "transfer/zoo")
)
"""Experiments that repeat one of a paper: ``ncscope run all`` runs them, and their verdicts count.

The demo is one run with settings chosen for a visible effect, and so no evidence; the zoo is ours.
"""


def refuse_unknown(name: str) -> None:
    """Refuse a name that is of no experiment and of no file.

    Args:
        name: Name of an experiment, or path of a file that ends in ``.py``.

    Raises:
        InputError: If no experiment has this name; the message has the nearest one.
    """
    if name not in EXPERIMENTS and not name.endswith(".py"):
        (nearest,) = get_close_matches(name.lower(), list(EXPERIMENTS), n=1, cutoff=0.0)
        expected = f"one of the experiments {', '.join(EXPERIMENTS)}, or a file of yours, NAME.py"
        raise InputError(expected=expected, found=repr(name), fix=f"the nearest is {nearest}")


def find_experiment(name: str) -> "Experiment[Any]":
    """Return an experiment.

    Args:
        name: Name of an experiment, or path of a file of yours that ends in ``.py`` and binds
            ``EXPERIMENT``; the code in this file is run.

    Raises:
        InputError: If no experiment has this name, there is no such file, its code fails, or the
            file has no experiment.
    """
    if name.endswith(".py"):
        from ncscope_lab.experiment import Experiment

        path = Path(name).resolve()
        experiment = open_own(f"{path}:EXPERIMENT")
        if not isinstance(experiment, Experiment):
            expected = f"an ncscope_lab.Experiment as EXPERIMENT in {path}"
            found = type(experiment).__name__
            raise InputError(
                expected=expected, found=found, fix="write EXPERIMENT = Experiment(...)"
            )
        # A run's folder and the machines of a cluster know an experiment by its id alone.
        return replace(experiment, id=str(path))
    refuse_unknown(name)
    place = name if "/" in name else f"models/{name}"
    module = place.replace("-", "_").replace("/", ".")
    return import_module(f"ncscope_lab.experiments.{module}").EXPERIMENT
