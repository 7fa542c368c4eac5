"""Shapes and types in signatures are checked while the suite runs.

The hook must be in place before anything imports ncscope; pytest imports this file first. The
examples of hypothesis are the same every time.
"""

import gc
from collections.abc import Generator, Iterator

import jaxtyping
import pytest
import torch
from hypothesis import settings

from tests import signatures
from tests.browser import browser

__all__ = ["browser", "unchecked_signatures"]

jaxtyping.install_import_hook("ncscope", f"{signatures.__name__}.{signatures.checked.__name__}")

settings.register_profile("suite", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("suite")

# The suite's matrices are tiny: waiting for a second thread costs more than all of the work.
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz", default=5000, help="Examples of the fuzzer, of all its tests.")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: no search for garbage looks at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture
def unchecked_signatures() -> Iterator[None]:
    """Bad input meets the library's own checks, as it does outside of this suite."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
