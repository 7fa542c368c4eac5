"""The mutation tester: what it mutates, which mutants it draws, and what it says of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import mutants

ROOT = Path(__file__).parents[1]
SOURCE = '''
LIMIT = 7


class Box:
    """3 < 4"""

    @property
    def size(self: int | None = 5) -> int | float:
        """Compare 3 < 4."""
        side: int | None = 2
        options = {**dict(**{})}
        return f"{side + 1}" if side < LIMIT else 0
'''


def test_bodies_are_mutated_but_annotations_messages_and_defaults_are_not(tmp_path):
    path = tmp_path / "box.py"
    path.write_text(SOURCE)
    found = {
        (m.operator.removeprefix("core/"), *m.key.split("|")[2:]) for m in mutants.mutants_of(path)
    }
    returned = 'return f"{side + 1}" if side < LIMIT else 0'
    assert found == {
        ("NumberReplacer", "side: int ", " None = 2", "0"),
        ("NumberReplacer", "side: int ", " None = 2", "1"),
        ("NumberReplacer", returned, "0"),
        ("NumberReplacer", returned, "1"),
        ("ReplaceComparisonOperator_Lt_LtE", returned, "0"),
        ("ReplaceComparisonOperator_Lt_GtE", returned, "0"),
        ("AddNot", returned, "0"),
    }
    assert {m.function for m in mutants.mutants_of(path)} == {(str(path), 8)}


def test_a_mutant_differs_from_the_source_in_one_line(tmp_path):
    path = tmp_path / "box.py"
    path.write_text(SOURCE)
    for mutant in mutants.mutants_of(path):
        pairs = zip(mutant.source().splitlines(), SOURCE.splitlines(), strict=True)
        assert sum(new != old for new, old in pairs) == 1


@pytest.mark.nightly
def test_the_sample_of_a_seed_is_the_same_and_its_keys_are_different(monkeypatch):
    monkeypatch.chdir(ROOT)
    once, again, other = mutants.sample(60, 0), mutants.sample(60, 0), mutants.sample(60, 1)
    assert once == again != other
    keys = [mutant.key for some in once.values() for mutant in some]
    assert len(keys) == len(set(keys))
    assert 57 <= len(keys) <= 63  # rounded once a package
    larger = {mutant.key for some in mutants.sample(120, 0).values() for mutant in some}
    assert larger > set(keys)


@pytest.mark.nightly
def test_mutants_called_equivalent_are_in_the_code(monkeypatch):
    monkeypatch.chdir(ROOT)
    equivalent = json.loads(mutants.EQUIVALENT.read_text()).keys()
    paths = {Path(key.split("|")[0]) for key in equivalent}
    assert equivalent <= {mutant.key for path in paths for mutant in mutants.mutants_of(path)}


def test_a_fork_leaves_its_parent_alone():
    numbers = [1]
    assert mutants.in_fork(lambda: [numbers.append(2), *numbers]) == [None, 1, 2]
    assert numbers == [1]
    assert mutants.in_fork(lambda: os._exit(1)) is None
    assert mutants.in_fork(lambda: 1 // 0).startswith("error: ZeroDivisionError")


@pytest.mark.nightly
def test_mutants_of_a_module_die_under_its_tests(tmp_path):
    results = tmp_path / "mutants.jsonl"
    command = [sys.executable, "-m", "tools.mutants", "math", "--files", "pairs"]
    for _ in range(2):  # the second run has nothing left to do
        subprocess.run([*command, "--results", results], cwd=ROOT, check=True)
        outcomes = mutants.outcomes(results)
        assert len(outcomes) == len(results.read_text().splitlines()) >= 2
    assert {outcome.split("::")[0] for outcome in outcomes.values()} == {
        "killed: tests/math/test_pairs.py"
    }
