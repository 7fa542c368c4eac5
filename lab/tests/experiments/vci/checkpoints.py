"""Results of pretraining and probes that have the numbers of the paper's tables 1 and 2."""

from collections.abc import Callable
from dataclasses import replace

from lab.tests.observed import nudged

from ncscope_lab.experiments.vci.published import DOWNSTREAM
from ncscope_lab.experiments.vci.transfer import PAPER, read_paper_tables
from ncscope_lab.experiments.vci.variability_runs import name_setting
from ncscope_lab.observations import Observation, Results

TABLES = read_paper_tables()


def from_tables(
    change: Callable[[Observation], Observation] = nudged,
    source: Callable[[str, str], str] = lambda run, split: name_setting(run),
) -> Results:
    """Results as if every run had yielded the paper's numbers.

    Args:
        change: Change of each row.
        source: Setting in the tables whose row a run has on a split.
    """
    return Results(
        change(replace(row, part=run))
        for run in PAPER.runs
        for split in ("train", "test", *DOWNSTREAM)
        for row in TABLES.find(f"{source(run, split)}, seed 0").path(split)
    )
