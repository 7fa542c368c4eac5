"""The zoo of networks on which transfer scores are compared. Command: ``reproduce transfer/zoo``."""

from collections.abc import Sequence
from functools import partial

from ncscope.lab.observations import Results
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.zoo.cells import Tuning, cell_events
from ncscope.lab.zoo.design import TransferZoo, is_tuned, networks, targets_of
from ncscope.report.claims import Claim


def _parts(config: TransferZoo) -> list[Part]:
    """Return a part for each network of the shard: pretraining, then targets, as epochs."""
    parts = []
    for number, (name, training) in enumerate(networks(config).items()):
        targets = targets_of(training.data, config.targets)
        tuned = [one for one in targets if is_tuned(number, config.targets.index(one))]
        run = partial(cell_events, training, targets, tuned, Tuning(config.tuning_epochs))
        work = training.optimisation.epochs + len(targets)
        parts.append(Part(name, work, run, trains=True))
    return parts[config.shard :: config.shards]


def _claims(config: TransferZoo, rows: Results) -> list[Claim]:
    return []


def _drawings(config: TransferZoo, rows: Results) -> list[Drawing]:
    return []


RECIPE: Recipe[TransferZoo] = Recipe(
    id="transfer/zoo",
    title="Transfer scores on a zoo of networks",
    lead="x",
    source="ours",
    config=TransferZoo,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    columns=("accuracy", "tuned_accuracy"),
    scales={"small": TransferZoo()},
    cost={"small": "x"},
)
