"""Settings changed by name: stars, patterns of the runs to keep."""

from typing import Any

import pytest

from ncscope.errors import InputError
from ncscope_lab.catalogue import EXPERIMENTS, find_experiment
from ncscope_lab.cli.options import parse_settings
from ncscope_lab.observations import Results
from ncscope_lab.runs.settings import change_settings


def small(name: str) -> Any:
    return find_experiment(name).scales["small"]


def test_a_star_stands_for_any_text_and_the_last_change_counts() -> None:
    config = find_experiment("info/training").scales["small"]
    one = next(iter(config.runs))
    changes = {"runs.*.optimisation.epochs": 7, f"runs.{one}.optimisation.epochs": 8}
    changed = change_settings(config, changes)
    epochs = {name: run.optimisation.epochs for name, run in changed.runs.items()}
    assert epochs == dict.fromkeys(config.runs, 7) | {one: 8}
    with pytest.raises(InputError, match=r"found 'runs\.\*\.epoch'"):
        change_settings(config, {"runs.*.epoch": 7})


@pytest.mark.parametrize(
    "name", [name for name in EXPERIMENTS if isinstance(dict(small(name)).get("runs"), dict)]
)
def test_a_pattern_keeps_the_runs_that_it_names(name: str) -> None:
    config = small(name)
    seed = next(iter(config.runs.values())).seed
    kept = change_settings(config, {"runs": f"*, seed {seed}"}).runs
    assert kept == {key: run for key, run in config.runs.items() if run.seed == seed}
    assert 0 < len(kept) < len(config.runs)
    # A few runs have claims too, which stay undecided.
    few = change_settings(config, {"runs": f"*, seed {seed}", "runs.*.optimisation.epochs": 6})
    assert all(run.optimisation.epochs == 6 for run in few.runs.values())
    assert {each.verdict for each in find_experiment(name).judge(few, Results())} == {"undecided"}


@pytest.mark.parametrize("pattern", ["*, seed 99", 3, None])
def test_a_pattern_that_keeps_nothing_is_refused(pattern: object) -> None:
    with pytest.raises(InputError, match="runs as a pattern of the names to keep, of 32"):
        change_settings(small("info/training"), {"runs": pattern})


def test_a_pattern_is_no_alias_of_yaml() -> None:
    assert parse_settings(["runs=*, seed 7", "steps=20"]) == {"runs": "*, seed 7", "steps": 20}
