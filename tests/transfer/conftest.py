"""Lighter rankings for the tests of what is made of them."""

from functools import partial

import pytest

from ncscope.transfer.probes.selection import choose_for_samples


@pytest.fixture
def few_strengths(monkeypatch):
    """Three strengths in place of 97, for tests that are not about the choice among them."""
    few = partial(choose_for_samples, strengths=(100.0, 1.0, 0.01))
    monkeypatch.setattr("ncscope.transfer.ranking.choose_for_samples", few)
