"""Features that the classifier is trained on: batch norms use the statistics of their batch."""

from copy import deepcopy

from torch import nn

from ncscope.data.loaders import make_training_loader
from ncscope.data.order import EpochBatches
from ncscope.lab.observations import Observation
from ncscope.lab.training.loop import EpochEnd
from ncscope.lab.training.supervised import Bench
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options

TRAINING_MODE = "train, training mode"
"""Name of the split in the rows of these features."""


def with_batch_statistics(model: nn.Module) -> nn.Module:
    """Return a copy whose batch norms use the statistics of the batch in evaluation mode too.

    The networks of the paper have no other module that depends on the mode.

    Args:
        model: Network; it is left as it is.
    """
    copy = deepcopy(model)
    for module in copy.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean = module.running_var = None
            module.num_batches_tracked = None
            module.track_running_stats = False
    return copy


def training_mode(bench: Bench, end: EpochEnd) -> list[Observation]:
    """Measure the MSE parts of features in training mode, in the batches of the next epoch.

    The parameters are those at the end of the epoch, for all batches.

    Args:
        bench: The run.
        end: State of training at the end of the epoch.
    """
    settings, fabric = bench.settings, bench.fabric
    order = EpochBatches(
        len(bench.data.train),
        settings.optimisation.batch_size,
        settings.steps_seed,
        fabric.global_rank,
        fabric.world_size,
    )
    order.begin(end.epoch, 0)
    options = Options(
        layers=(),
        groups=("mse",),
        weight_decay=settings.optimisation.decay_of_loss,
        progress=False,
    )
    copy = with_batch_statistics(bench.learner.evaluated)
    loader = make_training_loader(bench.data.train, order, bench.workers)
    layer = measure_layers(copy, loader, options).record.layers[-1]
    values = dict(layer.metrics)
    return [Observation(end.step, end.epoch, TRAINING_MODE, layer.layer, values=values)]
