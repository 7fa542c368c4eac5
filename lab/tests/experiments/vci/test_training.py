"""VCI figures 1-3, 6 and 8 on one residual network: claims, and spectra of a short run."""

import pytest
from lab.tests.observed import results_of

from ncscope_lab.experiment import Trainings
from ncscope_lab.experiments.vci.training import EXPERIMENT, SIZES, SMALL
from ncscope_lab.experiments.vci.variability_runs import read_spectra
from ncscope_lab.quantities import replace_fields

RUNS = list(SMALL.runs)


@pytest.mark.slow
def test_a_short_run_has_spectra_and_sweeps() -> None:
    name = RUNS[0]
    short = replace_fields(SMALL.runs[name], epochs=2, warmup_epochs=1, balanced=200)
    brief = Trainings(runs={name: short})
    results = results_of(*EXPERIMENT.parts(brief))
    rows = [(row.epoch, row.split) for row in results]
    sweeps = [(2, sweep) for sweep in ("cut", "noise") for _ in SIZES]
    splits = [(epoch, split) for epoch in (0, 1, 2) for split in ("train", "test")]
    assert sorted(rows) == sorted(splits + sweeps)
    (run,) = EXPERIMENT.collect(brief, results)
    between, total = read_spectra(run)
    assert (len(total), len(between)) == (384, 19)
    last = run.path()[-1]
    within = float(last["within_in_signal"]) + float(last["within_off_signal"])
    assert sum(between) == pytest.approx(within / float(last["nc1_quotient"]), rel=1e-9)
    assert sum(total) == pytest.approx(within + sum(between), rel=1e-9)
