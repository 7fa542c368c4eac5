"""Options of the suite, and the check of signatures.

In continuous integration (``CI=1``), shapes and types in signatures are checked at the first of
ten calls of a function in a test (`tests.signatures`). The slow tests and those of the bare install
repeat the calls of the others, and leave that out (``SIGNATURES=0``). The hook must be in place
before anything imports ncscope; pytest imports this file first. The examples of hypothesis are the
same every time.
"""

import atexit
import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import jaxtyping
import pytest
from hypothesis import settings
from tests import bare, signatures
from tests.browser import browser

__all__ = ["browser", "unchecked_signatures", "unchecked_signatures_of_module"]

if os.environ.get("CI") and os.environ.get("SIGNATURES") != "0":
    signatures.install()

# Ray's workers yield to every other process, and beside a busy test they would hardly begin.
os.environ.setdefault("RAY_worker_niceness", "0")

settings.register_profile("suite", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bare", action="store_true", help="Tests that need no optional library.")
    parser.addoption("--fuzz", default=1000, help="Examples of the fuzzer, of all its tests.")


def pytest_configure(config: pytest.Config) -> None:
    """All but the tests marked gpu run on the CPU, also where there is a GPU: many fork."""
    if "not gpu" in config.option.markexpr:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect what fits the environment: see `tests.bare`; None leaves the choice to pytest."""
    if not config.getoption("--bare"):
        return True if collection_path.name == "bare_install" else None
    return True if bare.left_out(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is imported and collected stays to the end: no search for garbage looks at it.

    The process that only hands out tests imports nothing of this, or the others would wait for it.
    """
    if session.config.getoption("dist", "no") != "no":
        return (yield)
    import torch

    # The suite's matrices are tiny: waiting for a second thread costs more than all of the work.
    torch.set_num_threads(1)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        # Not before: pytest itself looks for garbage ten times at its end.
        atexit.register(gc.unfreeze)


def pytest_runtest_setup(item: pytest.Item) -> None:
    signatures.forget_calls()
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


@pytest.fixture
def unchecked_signatures() -> Iterator[None]:
    """Bad input meets the library's own checks, as it does outside of this suite."""
    yield from _unchecked()


@pytest.fixture(scope="module")
def unchecked_signatures_of_module() -> Iterator[None]:
    """As `unchecked_signatures`, for a module whose own fixtures take most of the time."""
    yield from _unchecked()


def _unchecked() -> Iterator[None]:
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
