"""Lighter rankings for the tests of what is made of them."""

import pytest


@pytest.fixture
def few_strengths(monkeypatch):
    """Three strengths in place of 97, for tests that are not about the choice among them."""
    monkeypatch.setattr("ncscope.transfer.ranking.scale_strengths", lambda _: [100.0, 1.0, 0.01])
