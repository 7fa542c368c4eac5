r"""Scores that predict transfer, compared on a zoo of networks. Page: ``docs/transfer-zoo.md``.

Command: ``ncscope reproduce transfer/zoo``; then ``ncscope zoo runs/transfer-zoo-small`` adds a
user's scores, and the time of each. The protocol is that of `ncscope.lab.zoo.design`.
"""

from functools import partial

from ncscope.lab.experiment import Part
from ncscope.lab.findings import Finding
from ncscope.lab.observations import Results
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Recipe
from ncscope.lab.zoo.cells import Tuning, cell_events
from ncscope.lab.zoo.design import TransferZoo, is_tuned, networks, targets_of
from ncscope.lab.zoo.figures import drawings_of
from ncscope.lab.zoo.results import cells_of
from ncscope.lab.zoo.tables import tables_of
from ncscope.lab.zoo.verdicts import Verdicts, claims_on, report_half
from ncscope.report.tables import Summary


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


def _verdicts(config: TransferZoo, rows: Results) -> Verdicts:
    return Verdicts(config, report_half(config, cells_of(config, rows)))


def _claims(config: TransferZoo, rows: Results) -> list[Finding]:
    """Judge a whole zoo; a shard is judged together with the others, by ``ncscope zoo``."""
    if config.shards > 1:
        return []
    return claims_on(_verdicts(config, rows))


def _tables(config: TransferZoo, rows: Results) -> list[Summary]:
    if config.shards > 1:
        return []
    return tables_of(_verdicts(config, rows))


def _drawings(config: TransferZoo, rows: Results) -> list[Drawing]:
    if config.shards > 1:
        return []
    return drawings_of(_verdicts(config, rows))


def _medium() -> TransferZoo:
    """Return the zoo for a GPU: wider networks, images of 32 pixels."""
    small = TransferZoo()
    large = {"patterns-20": "patterns-32-100", "warped-digits": "warped-digits", "digits": "digits"}
    larger = {name: large.get(name, f"{name}-32") for name in (*small.targets, *small.sources)}
    return TransferZoo(
        sources=tuple(larger[name] for name in small.sources),
        design_targets=tuple(larger[name] for name in small.design_targets),
        report_targets=tuple(larger[name] for name in small.report_targets),
        design_architectures=("pfc-cifar10", "resnet18", "resnet34", "vgg11", "vgg13"),
        held_out_architectures=("densenet40", "wrn-28-2", "deit-tiny"),
        image_size=32,
        epochs=(10, 20, 40, 80),
    )


RECIPE: Recipe[TransferZoo] = Recipe(
    id="transfer/zoo",
    title="Transfer scores on a zoo of networks",
    lead=(
        "Small networks of eight architectures are trained in many ways, and probed on other sets. "
        "Every score that is said to predict transfer is judged by how well it orders them, on "
        "targets on which nothing was chosen, and within architectures on which nothing was chosen."
    ),
    source="ours",
    config=TransferZoo,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    tables=_tables,
    columns=("accuracy", "tuned_accuracy", "explained_entropy", "log_me"),
    scales={"medium": _medium(), "small": TransferZoo()},
    cost={
        "medium": "10 hours of one GPU (estimated)",
        "small": "90 minutes on one core",
    },
)
