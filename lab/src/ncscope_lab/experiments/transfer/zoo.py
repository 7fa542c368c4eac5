r"""Scores that predict transfer, compared on a zoo of networks. Page: ``docs/transfer-zoo.md``.

Command: ``ncscope run transfer/zoo``; then ``ncscope zoo runs/transfer-zoo-small`` adds a user's
scores, and the time of each. The protocol is that of `ncscope_lab.experiments.transfer.design`.
"""

from dataclasses import dataclass
from functools import partial

from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.transfer.cells import Tuning, cell_events, collect_cells
from ncscope_lab.experiments.transfer.design import (
    TransferZoo,
    is_tuned,
    list_networks,
    list_targets,
)
from ncscope_lab.experiments.transfer.judgement import Verdicts, judge_claims, select_half
from ncscope_lab.experiments.transfer.tables import draw_figures, make_tables
from ncscope_lab.findings import Finding
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Runs


def list_parts(settings: TransferZoo) -> list[Part]:
    """Return a part for each network of the shard: pretraining, then targets, as epochs."""
    parts = []
    for number, (name, training) in enumerate(list_networks(settings).items()):
        targets = list_targets(training.data, settings.targets)
        tuned = [one for one in targets if is_tuned(number, settings.targets.index(one))]
        run = partial(cell_events, training, targets, tuned, Tuning(settings.tuning_epochs))
        work = training.optimisation.epochs + len(targets)
        parts.append(Part(name, work, run, trains=True))
    return parts[settings.shard :: settings.shards]


def judge_report_half(settings: TransferZoo, runs: Runs) -> Verdicts | None:
    """Judge a whole zoo; a shard is judged together with the others, by ``ncscope zoo``."""
    if settings.shards > 1:
        return None
    cells = collect_cells(settings, (row for run in runs for row in run.rows))
    return Verdicts(settings, select_half(settings, cells, "report"))


@dataclass(frozen=True, kw_only=True)
class ZooExperiment(Experiment[TransferZoo]):
    """The zoo, whose claims compare scores over all networks and are no quantities of one run."""

    def judge(self, settings: TransferZoo, results: Results) -> list[Finding]:
        """Judge the claims on the report half."""
        verdicts = judge_report_half(settings, self.collect(settings, results))
        return [] if verdicts is None else judge_claims(verdicts)


EXPERIMENT = ZooExperiment(
    id="transfer/zoo",
    title="Transfer scores on a zoo of networks",
    question=(
        "Small networks of eight architectures are trained in many ways, and probed on other sets. "
        "Every score that is said to predict transfer is judged by how well it orders them, on "
        "targets on which nothing was chosen, and within architectures on which nothing was chosen."
    ),
    source="ours",
    scales={"small": TransferZoo()},
    cost={"small": "90 minutes on one core"},
    parts=list_parts,
    claims=(),
    figures=lambda settings, runs: (
        [] if (verdicts := judge_report_half(settings, runs)) is None else draw_figures(verdicts)
    ),
    tables=lambda settings, runs: (
        [] if (verdicts := judge_report_half(settings, runs)) is None else make_tables(verdicts)
    ),
    columns=("accuracy", "tuned_accuracy", "explained_entropy", "log_me"),
)
