"""Every setting of every experiment can be named, and set by its name."""

import pytest

from ncscope.errors import InputError
from ncscope_lab.catalogue import EXPERIMENTS, find_experiment
from ncscope_lab.runs.settings import change_settings, list_settings


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_setting_is_set_by_its_name(name: str) -> None:
    for config in find_experiment(name).scales.values():
        known = list_settings(config)
        assert change_settings(config, known) == config
        seeds = (field for field in known if field.endswith(("seed", "seeds")))
        seed = next(seeds, "networks")  # of the zoo
        other = known[seed] + (1 if isinstance(known[seed], int) else [7])
        changed = list_settings(change_settings(config, {seed: other}))
        assert {field for field in known if changed[field] != known[field]} == {seed}


def test_a_star_stands_for_any_text_and_the_last_change_counts() -> None:
    config = find_experiment("info/training").scales["small"]
    one = next(iter(config.runs))
    changes = {"runs.*.optimisation.epochs": 7, f"runs.{one}.optimisation.epochs": 8}
    changed = change_settings(config, changes)
    epochs = {name: run.optimisation.epochs for name, run in changed.runs.items()}
    assert epochs == dict.fromkeys(config.runs, 7) | {one: 8}
    with pytest.raises(InputError, match=r"found 'runs\.\*\.epoch'"):
        change_settings(config, {"runs.*.epoch": 7})
