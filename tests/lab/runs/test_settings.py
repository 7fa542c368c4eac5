"""Every setting of every experiment can be named, and set by its name."""

import pytest

from ncscope.lab.catalogue import EXPERIMENTS, experiment
from ncscope.lab.runs.settings import by_dotted_name, overridden


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_setting_is_set_by_its_name(name: str) -> None:
    for config in experiment(name).scales.values():
        known = by_dotted_name(config)
        assert overridden(config, known) == config
        seed = next(field for field in known if field.endswith(("seed", "seeds")))
        other = known[seed] + (1 if isinstance(known[seed], int) else [7])
        changed = by_dotted_name(overridden(config, {seed: other}))
        assert {field for field in known if changed[field] != known[field]} == {seed}
