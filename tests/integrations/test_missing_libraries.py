"""What is said where the library that a module is named after is not installed."""

import sys
from importlib.util import find_spec, module_from_spec

import pytest

NEEDS = {
    "torchmetrics": ("torchmetrics", "torchmetrics"),
    "lightning": ("lightning", "lightning"),
    "huggingface": ("transformers", "huggingface"),
}


@pytest.mark.parametrize("name", NEEDS)
def test_it_is_named_with_its_extra(name: str, monkeypatch) -> None:
    library, extra = NEEDS[name]
    spec = find_spec(f"ncscope.integrations.{name}")
    for each in [each for each in sys.modules if each.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, each, None)
    monkeypatch.setitem(sys.modules, library, None)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=rf'library {library}, .*pip install "\.\[{extra}\]"'):
        spec.loader.exec_module(module_from_spec(spec))
