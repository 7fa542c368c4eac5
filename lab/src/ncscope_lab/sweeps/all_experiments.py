"""All experiments of the papers in one folder, with one page of verdicts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ncscope.errors import InputError
from ncscope.files import write_text
from ncscope_lab.catalogue import EXPERIMENTS, REPRODUCTIONS, find_experiment
from ncscope_lab.execution import has_ended, load_run
from ncscope_lab.report.verdicts import ExperimentVerdicts, verdicts_page
from ncscope_lab.runs.resources import Resources
from ncscope_lab.runs.run_folder import RunFolder
from ncscope_lab.sweeps.requests import (
    OnChange,
    RunProgress,
    RunRequest,
    carry_out,
    use_one_device,
)

if TYPE_CHECKING:
    from ncscope_lab.experiment import Scale


@dataclass(frozen=True)
class Reproduction:
    """Result of `run_all`.

    Attributes:
        folder: Folder with ``report.html``, ``verdicts.json`` and one folder per experiment.
        experiments: Claims of each experiment, or the reason why its run has not ended.
    """

    folder: Path
    experiments: Sequence[ExperimentVerdicts]

    @property
    def page(self) -> Path:
        """The page of all verdicts."""
        return self.folder / "report.html"

    @property
    def failures(self) -> dict[str, str]:
        """Reason of each run that has not ended, by name of the experiment."""
        return {each.name: each.failure for each in self.experiments if each.failure}


def run_all(
    *,
    out: str | Path,
    scale: "Scale" = "small",
    only: Sequence[str] = (),
    resume: bool = False,
    cluster: str | None = None,
    resources: Resources | None = None,
    on_change: OnChange = lambda positions: None,
) -> Reproduction:
    """Repeat all experiments of the papers that have the scale, and write one page of verdicts.

    These are `REPRODUCTIONS`; others are no evidence, and run alone.
    An experiment that fails, for example for want of its data set, does not stop the others. The
    page and ``verdicts.json`` are written anew whenever an experiment has ended.

    Args:
        out: Folder with a folder for each experiment; on a cluster, all machines must see it.
        scale: "Scale" of all experiments; those without settings of this scale are left out.
        only: Names of experiments; by default all.
        resume: Resume in this folder: keep experiments that have ended, resume the others.
        cluster: Ray cluster that carries out the experiments, as in `sweep`; None carries out one
            after another in this process.
        resources: Resources of a run: data folder and accelerator. Each run has one process.
        on_change: Function called with the progress of the experiments.

    Raises:
        InputError: If an experiment does not exist, lacks the scale or only illustrates, or the
            folder cannot be written, another process writes to it, or it holds runs and ``resume``
            is False.
    """
    resources = use_one_device(resources or Resources())
    folder = Path(out).absolute()
    requests = [
        RunRequest(name, name, scale, {}, folder / name.replace("/", "-"), resources)
        for name in _choose_names(only, scale)
    ]
    with RunFolder(folder).lock():
        _check_folder(folder, requests, resume)
        ended = [each.name for each in requests if has_ended(each.folder)]
        written = set(ended)

        def report(positions: Mapping[str, RunProgress]) -> None:
            over = {name for name, at in positions.items() if at.state == "ended"}
            if over - written:
                written.update(over)
                _write_verdicts(folder, scale, requests, {})
            on_change(positions)

        left = [each for each in requests if each.name not in ended]
        failures = carry_out(left, folder, cluster, report, ended)
        return Reproduction(folder, _write_verdicts(folder, scale, requests, failures))


def _choose_names(only: Sequence[str], scale: "Scale") -> list[str]:
    """Return the names of the papers' experiments that have the scale."""
    for name in only:
        if name in EXPERIMENTS and name not in REPRODUCTIONS:
            expected = "experiments of the papers that are evidence"
            raise InputError(expected=expected, found=name, fix=f"run it alone: ncscope run {name}")
    wanted = list(dict.fromkeys(only)) or list(REPRODUCTIONS)
    with_scale = [name for name in wanted if scale in find_experiment(name).scales]
    lacking = [name for name in only if name not in with_scale]
    if lacking or not with_scale:
        found = ", ".join(lacking) or "none"
        fix = "pass another --scale, or leave the experiment out"
        raise InputError(expected=f"experiments with a {scale} scale", found=found, fix=fix)
    return with_scale


def _check_folder(folder: Path, requests: Sequence[RunRequest], resume: bool) -> None:
    """Refuse a folder that holds runs, unless they are to be resumed."""
    if RunFolder.read_config(folder) is not None or (folder / "sweep.yaml").exists():
        found = f"one of a single run or of a sweep, {folder}"
        fix = "pass another --out"
        raise InputError(expected="a folder for all experiments", found=found, fix=fix)
    begun = [each.name for each in requests if (each.folder / "config.yaml").exists()]
    if begun and not resume:
        found = f"one with {begun[0]} in it, {folder}"
        fix = "pass --resume to go on with it, or another --out"
        raise InputError(expected="an output folder without runs", found=found, fix=fix)


def _write_verdicts(
    folder: Path, scale: "Scale", requests: Sequence[RunRequest], failures: Mapping[str, str]
) -> list[ExperimentVerdicts]:
    """Write the page and ``verdicts.json``, and return their content."""
    experiments = [_read_verdicts(each, failures.get(each.name, "")) for each in requests]
    record = {
        "scale": scale,
        "experiments": {
            each.name: {
                "failure": each.failure,
                "claims": [claim.record() for claim in each.claims],
            }
            for each in experiments
        },
    }
    write_text(folder / "verdicts.json", json.dumps(record, indent=2, allow_nan=False) + "\n")
    write_text(folder / "report.html", verdicts_page(scale, experiments))
    return experiments


def _read_verdicts(request: RunRequest, failure: str) -> ExperimentVerdicts:
    if failure:
        return ExperimentVerdicts(request.name, failure=failure)
    if not has_ended(request.folder):
        return ExperimentVerdicts(request.name, failure="not run yet")
    return ExperimentVerdicts(request.name, load_run(request.folder).claims)
