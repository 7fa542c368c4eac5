"""The shell completes commands, and groups of metrics after a comma."""

import os
import subprocess
import sys

import pytest

from ncscope.cli.options import complete_groups
from ncscope.metrics.names import ALIASES, GROUPS, TITLES
from ncscope.metrics.registry import METRICS


def test_names_known_without_torch_are_those_of_the_registry() -> None:
    assert METRICS.keys() == TITLES.keys()
    assert {alias for row in METRICS.values() for alias in row.aliases} == set(ALIASES)


def test_groups_are_offered_first_and_what_is_there_is_not_offered_again() -> None:
    assert [name for name, _ in complete_groups("")] == list(GROUPS)
    assert [name for name, _ in complete_groups("nc2,nc4,mse")] == [
        f"nc2,nc4,{name}" for name in ("mse", *(key for key in TITLES if key.startswith("mse")))
    ]
    offered = dict(complete_groups("nc1,nc"))
    assert "nc1,nc1" not in offered
    assert offered["nc1,nc2"] == "group: NC2: class means form a simplex ETF"
    assert [name for name, _ in complete_groups("key:")] == ["key:nc1"]
    assert complete_groups("nothing") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ncscope measure f.npz --groups nc1,inf", "nc1,information"),
        ("ncscope measure-model a b --groups sp", "spectra"),
        ("ncscope measure-", "measure-model"),
    ],
)
def test_bash_asks_the_command(words: str, expected: str) -> None:
    place = str(len(words.split()) - 1)
    asked = {"_NCSCOPE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": place}
    code = "import sys; from ncscope.cli import main\ntry: main()\nfinally: "
    code += "assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [expected]
