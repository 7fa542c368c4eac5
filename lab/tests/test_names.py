"""The names of ncscope_lab, which an experiment of one's own needs."""

import pytest

import ncscope_lab
from tests.test_import import loaded


def test_every_name_is_the_object_of_that_name():
    assert sorted(ncscope_lab.__all__) == sorted(ncscope_lab._HOMES)
    for name in ncscope_lab.__all__:
        assert getattr(ncscope_lab, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Claims'"):
        ncscope_lab.Claims  # noqa: B018


@pytest.mark.slow
def test_help_does_not_wait_for_torch() -> None:
    run = "try: main(['run', '--help'])\nexcept SystemExit: pass"
    assert loaded(f"from ncscope.cli.running import main\n{run}", ("torch",)) == ("[]", "")
