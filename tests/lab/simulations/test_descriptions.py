"""Settings of studies and recipes: each is described by a sentence, and seeds are bounded."""

import pytest
from pydantic import BaseModel

from ncscope.lab.papers.pfc import mufm as pfc_mufm
from ncscope.lab.papers.xufm import extended as xufm_extended
from ncscope.lab.papers.xufm import ufm as xufm_ufm
from ncscope.lab.simulations import (
    central_path,
    extended,
    geodesic,
    mufm,
    perturbed,
    ufm,
    ufm_cross_entropy,
)

STUDIES = (central_path, extended, geodesic, mufm, perturbed, ufm, ufm_cross_entropy)
CONFIGS: list[type[BaseModel]] = [module.STUDY.config for module in STUDIES]
CONFIGS += [module.RECIPE.config for module in (pfc_mufm, xufm_extended, xufm_ufm)]


@pytest.mark.parametrize("config", CONFIGS)
def test_settings_are_described_and_seeds_bounded(config: type[BaseModel]) -> None:
    for name, field in config.model_fields.items():
        said = field.description or ""
        assert said[:1].isupper(), name
        assert said.endswith("."), name
        if name.endswith("seed"):
            assert any(getattr(bound, "lt", None) == 2**63 for bound in field.metadata), name
