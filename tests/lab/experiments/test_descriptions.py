"""Settings of experiments: each is described by a sentence, and seeds are bounded."""

import pytest
from pydantic import BaseModel

from ncscope.lab.catalogue import SIMULATIONS, experiment, simulation

CONFIGS: list[type[BaseModel]] = [simulation(name).config for name in SIMULATIONS]
CONFIGS += [experiment(name).config for name in ("pfc/mufm", "xufm/extended", "xufm/ufm")]


@pytest.mark.parametrize("config", CONFIGS)
def test_settings_are_described_and_seeds_bounded(config: type[BaseModel]) -> None:
    for name, field in config.model_fields.items():
        said = field.description or ""
        assert said[:1].isupper(), name
        assert said.endswith("."), name
        if name.endswith("seed"):
            assert any(getattr(bound, "lt", None) == 2**63 for bound in field.metadata), name
