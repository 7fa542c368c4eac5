"""Every setting of every experiment can be named, and set by its name."""

import pytest

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
