"""Functions that simulate surrogate models, repeat papers' experiments and compare runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ncscope.errors import InputError
from ncscope.lab.catalogue import experiment, simulation
from ncscope.lab.experiment import Scale
from ncscope.lab.observations import together
from ncscope.lab.report.study_page import run_sections
from ncscope.lab.runs.finished import KeptResults
from ncscope.lab.runs.resources import Resources
from ncscope.lab.runs.run_folder import RunFolder
from ncscope.lab.runs.running import OnRow, StudyRun, run_study
from ncscope.lab.runs.settings import overridden, settings


def simulate(
    model: str,
    /,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    on_row: OnRow = lambda part, done, total: None,
    **given: Any,
) -> StudyRun:
    """Run a surrogate model.

    Args:
        model: One of ``ufm``, ``ufm-cross-entropy``, ``extended``, ``perturbed``, ``mufm``,
            ``geodesic``, ``central-path``.
        out: Folder for settings, rows, claims, figures and report; None writes nothing.
        resume: Resume the run in the folder from the point at which it was stopped.
        on_row: Function called after every measurement, and also between distant measurements.
        **given: Settings of the model; settings that are not given have their defaults.

    Raises:
        InputError: If the model or a setting does not exist, a value is out of bounds, or the
            folder cannot be written, holds a run, or another process writes to it.

    Example:
        >>> run = simulate("ufm", num_classes=3, dim=4, per_class=2, steps=10)
        >>> run.rows[0].step, run.rows[-1].step
        (0, 10)
    """
    study = simulation(model)
    config = settings(study.config, given)
    return run_study(
        study,
        config,
        {"model": model},
        out=out,
        resume=resume,
        resources=Resources(),
        on_row=on_row,
    )


def reproduce(
    name: str,
    *,
    out: str | Path,
    scale: Scale = "small",
    resume: bool = False,
    overrides: Mapping[str, Any] = {},
    resources: Resources | None = None,
    on_row: OnRow = lambda part, done, total: None,
) -> StudyRun:
    """Repeat a paper's experiment and test its claims.

    Args:
        name: Name of the experiment, for example ``"xufm/ufm"``.
        out: Folder for config.yaml, metrics.jsonl, claims.json, figures and report.html.
        scale: ``"paper"`` for the paper's settings, ``"small"`` for settings for two CPU cores.
        resume: Resume the run in the folder from the point at which it was stopped.
        overrides: Values by dotted field, for example ``{"runs.digits.seed": 1}``.
        resources: Resources of experiments that train: data folder and accelerator.
        on_row: Function called after every measurement, and also between distant measurements.

    Raises:
        InputError: If the experiment or a field does not exist, a value is out of bounds, the
            folder cannot be written, or another process writes to it. Also if the folder holds a
            run and ``resume`` is False, or holds a run with other settings, or one with damage
            that running parts again cannot repair.
    """
    recipe, config = configured(name, scale, overrides)
    labels = {"recipe": name, "scale": scale}
    resources = resources or Resources()
    return run_study(
        recipe, config, labels, out=out, resume=resume, resources=resources, on_row=on_row
    )


def configured(name: str, scale: Scale, overrides: Mapping[str, Any]) -> tuple[Any, BaseModel]:
    """Return the recipe of an experiment, and the settings of a run with these arguments.

    Args:
        name: Name of the experiment, as in `reproduce`.
        scale: Scale whose settings to start from.
        overrides: Values by dotted field.

    Raises:
        InputError: If the experiment, scale or a field does not exist, or a value is out of bounds.
    """
    recipe = experiment(name)
    if scale not in recipe.scales:
        expected = f"a scale of {name}: {' or '.join(recipe.scales)}"
        fix = "pass small unless you have the time"
        raise InputError(expected=expected, found=repr(scale), fix=fix)
    return recipe, overridden(recipe.scales[scale], overrides)


def load_run(folder: str | Path) -> StudyRun:
    """Read a run of `simulate` or `reproduce` from its folder.

    Args:
        folder: Folder of the run. For unfinished parts the rows so far are returned.

    Raises:
        InputError: If the folder holds no such run, or the run is damaged; the message names the
            file or the part.
    """
    path = Path(folder)
    config = RunFolder.config_of(path)
    if config is None or "settings" not in config or not {"model", "recipe"} & set(config):
        fix = "pass what --out was when it was run"
        found = f"{path} without one"
        raise InputError(expected="the folder of a run", found=found, fix=fix)
    # Look for claims before reading the record of finished parts: a run writes its claims only
    # after that record is complete.
    claimed = (path / "claims.json").exists()
    kept = RunFolder.kept_of(path)
    if kept is None:
        raise InputError(
            expected=f"{path / 'finished.json'}, which counts and hashes the rows of the run",
            found="none",
            fix=_RUN_AGAIN,
        )
    _refuse_damaged(path, kept)
    labels = {key: str(value) for key, value in config.items() if key != "settings"}
    known = simulation(labels["model"]) if "model" in labels else experiment(labels["recipe"])
    own = settings(known.config, config["settings"])
    parts = [part.name for part in known.parts(own)]
    missing = [name for name in parts if name not in kept.parts]
    if claimed and missing:
        raise InputError(
            expected=f"part {missing[0]!r} among the finished parts in {path / 'finished.json'}, "
            "as the run has ended",
            found=f"{len(kept.parts)} of {len(parts)} parts there",
            fix=_RUN_AGAIN,
        )
    if missing:
        return StudyRun(known, labels, own, kept.whole, [], ended=False)
    results = together(kept.parts[name] for name in parts)
    return StudyRun(known, labels, own, results, known.judge(own, results))


def has_ended(folder: Path) -> bool:
    """Return whether a run has written its report, which it writes last, and is undamaged.

    Args:
        folder: Folder of the run, which need not exist.
    """
    try:
        return (folder / "report.html").exists() and load_run(folder).ended
    except InputError:
        return False  # run it again, which repairs the damage or reports it


def _refuse_damaged(path: Path, kept: KeptResults) -> None:
    """Raise InputError if the rows of a finished part are not as the run wrote them."""
    for name, difference in kept.damaged.items():
        raise InputError(
            expected=f"the rows of part {name!r} in {path} as the run wrote them",
            found=difference,
            fix=_RUN_AGAIN,
        )


_RUN_AGAIN = "run the same command with --resume to make them anew"


_OF_A_RUN = ("config.yaml", "finished.json", "metrics.jsonl")


def page_sections(folders: Mapping[str, Path]) -> dict[str, Any]:
    """Return the sections of a page about runs: figures, claims, tables and settings.

    Args:
        folders: Folders by their name on the page; one that holds a history.json alone is no run
            of this package, and has no part in the sections.

    Raises:
        InputError: If a run is damaged.
    """
    runs = {
        name: load_run(folder)
        for name, folder in folders.items()
        if any((folder / file).exists() for file in _OF_A_RUN)
        or not (folder / "history.json").exists()
    }
    if not runs:
        return {}
    studies = list(dict.fromkeys(run.study.title for run in runs.values()))
    first = next(iter(runs.values()))
    views = [run.view(name if len(folders) > 1 else "") for name, run in runs.items()]
    return {
        "title": studies[0] if len(studies) == 1 else "Runs side by side",
        "lead": first.study.question if len(studies) == 1 else "; ".join(studies) + ".",
        "facts": list(dict.fromkeys(run.study.source for run in runs.values())),
        **run_sections(views),
    }
