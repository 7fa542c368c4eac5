"""Settings of experiments: each is described by a sentence, and seeds are bounded."""

import pytest

from ncscope_lab.catalogue import EXPERIMENTS, find_experiment

NAMES = [name for name in EXPERIMENTS if "/" not in name]
NAMES += ["pfc/mufm", "xufm/extended", "xufm/ufm"]


@pytest.mark.parametrize("experiment", NAMES)
def test_settings_are_described_and_seeds_bounded(experiment: str) -> None:
    for name, field in find_experiment(experiment).config.model_fields.items():
        said = field.description or ""
        assert said[:1].isupper(), name
        assert said.endswith("."), name
        if name.endswith("seed"):
            assert any(getattr(bound, "lt", None) == 2**63 for bound in field.metadata), name
