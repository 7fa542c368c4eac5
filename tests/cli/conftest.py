"""Commands are quick in these tests: no line of progress is due, however slow the machine."""

import pytest


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncscope.cli.terminal.monotonic", lambda: 0.0)
