"""Logging through Lightning's trainer, beside the values of the module and of other callbacks."""

from collections.abc import Mapping

import torch
from lightning.pytorch import Trainer

_SOURCE = "ncscope"
"""Name of the callback among the hooks whose values Lightning's result collection holds."""


def log_apart(trainer: Trainer, metrics: Mapping[str, float], device: torch.device) -> None:
    """Log values beside those of the module; of one name, the module's value is shown.

    `LightningModule.log` averages values of one name and one hook, and callbacks run before the
    module: a value that the module then logs under the same name would be averaged with the
    callback's value. Under another source, Lightning holds both and shows the later one, which is
    the module's.
    """
    results = trainer._results
    assert results is not None
    for name, value in metrics.items():
        earlier = results.get(f"{_SOURCE}.{name}")
        if earlier is not None:
            earlier.reset()
        results.log(
            _SOURCE,
            name,
            torch.tensor(value, device=device, dtype=_log_type()),
            batch_size=1,
            # Every process has the same values. Lightning warns unless it is told to average them.
            sync_dist=trainer.world_size > 1,
            sync_dist_fn=trainer.strategy.reduce,
        )


def _log_type() -> torch.dtype:
    """Return the type of logged values: the default type, but at least float32."""
    default = torch.get_default_dtype()
    return default if default == torch.float64 else torch.float32


def names_of_others(trainer: Trainer) -> set[str]:
    """Return the names that the module and the other callbacks have logged in this run."""
    fitting = trainer.fit_loop.epoch_loop
    loops = (fitting, fitting.val_loop, trainer.validate_loop)
    return {
        name
        for loop in loops
        for each in loop._results.values()
        if each.meta.fx != _SOURCE
        for name in (each.meta.name, each.meta.forked_name(True), each.meta.forked_name(False))
    }
