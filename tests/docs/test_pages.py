from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.docs.pages import PAGES, ROOT, Block, blocks, run_commands, run_examples, run_page

LANGUAGES = {"python", "bash", "text", "yaml"}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_code(page: Path) -> bool:
    return any(block.language in ("python", "bash") for block in blocks(page))


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of its own for what a page writes, and torch's seed as it was."""
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        yield


def with_code_by_pace() -> Iterator[object]:
    """The pages with code: the first in the default suite; at night the one that starts Ray."""
    paces = {"README.md": (), "docs/scale/shards.md": pytest.mark.nightly}
    for page in filter(with_code, PAGES):
        yield pytest.param(page, marks=paces.get(name_of(page), pytest.mark.slow))


@pytest.mark.parametrize("page", list(with_code_by_pace()), ids=name_of)
def test_code_of_page_runs(page: Path):
    run_page(page)


def test_every_fence_is_a_block_that_the_suite_sees():
    for page in PAGES:
        fences = page.read_text().count("```")
        found = list(blocks(page))
        assert fences == 2 * len(found), f"fence of {page} indented or not closed"
        assert {block.language for block in found} <= LANGUAGES, page


def test_a_wrong_value_is_seen():
    wrong = Block("python", ">>> 1 + 1\n3\n", 6)
    with pytest.raises(AssertionError, match=r"line 7(.|\n)*Expected:\n *3\nGot:\n *2"):
        run_examples(wrong, Path("page.md"), {})


def test_a_failing_command_is_seen():
    with pytest.raises(AssertionError, match="ended with 2"):
        run_commands(Block("bash", "ncscope measure missing.npz\n", 0))


def test_names_carry_over_from_example_to_example():
    names: dict[str, object] = {}
    run_examples(Block("python", ">>> value = 2\n", 0), Path("page.md"), names)
    run_examples(Block("python", ">>> value\n2\n", 0), Path("page.md"), names)
