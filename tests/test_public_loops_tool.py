"""The tool that runs public scripts with and without us: its edits, and that it sees a change."""

from pathlib import Path

import pytest
from tools.public_loops import IMPORT, MOST_LINES, SCRIPTS, Edit, Script, rows

OURS = '''"""A script of the tests."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(40, 4), torch.arange(40) % 2


def test(model):
    with torch.no_grad():
        output = model(inputs)
    return output


for _ in range(2):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    test(model)
'''
WATCH = (
    IMPORT,
    Edit(
        "    with torch.no_grad(), ncscope.watch(model) as seen:",
        instead="with torch.no_grad():",
        within="def test(",
    ),
    Edit("        seen.labels(labels)", after="output = model(", within="def test("),
    Edit('    print(seen.report()["nc1"])', before="return output"),
)


def test_a_line_stands_where_it_should() -> None:
    lines = OURS.splitlines()
    for each in WATCH:
        lines = each.apply(lines)
    assert lines[1] == "import ncscope"
    start = lines.index("def test(model):")
    assert [line.strip() for line in lines[start + 1 : start + 6]] == [
        "with torch.no_grad(), ncscope.watch(model) as seen:",
        "output = model(inputs)",
        "seen.labels(labels)",
        'print(seen.report()["nc1"])',
        "return output",
    ]
    assert len(lines) == len(OURS.splitlines()) + 3
    with pytest.raises(ValueError, match="no line that begins with 'import numpy'"):
        Edit("import ncscope", after="import numpy").apply(lines)


def test_no_script_needs_many_lines() -> None:
    assert len({script.repository for script in SCRIPTS}) >= 9
    assert max(len(script.edits) for script in SCRIPTS) <= MOST_LINES


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("    torch.rand(1)", "| yes | yes | no |"),
        ("    model.bias.data += 1", "| yes | no | yes |"),
        ("    raise ValueError", "| no | | | |"),
    ],
)
def test_what_a_line_changes_is_seen(line: str, said: str, tmp_path: Path, monkeypatch) -> None:
    """The process of a script reads the table of scripts again: the lines stand in the script."""
    (tmp_path / "our" / "scripts").mkdir(parents=True)
    (tmp_path / "our" / "scripts" / "train.py").write_text(OURS)
    script = Script("our/scripts", "train.py", (*WATCH, Edit(line, before="return output")))
    monkeypatch.setattr("tools.public_loops.SCRIPTS", (script,))
    (row,) = rows(tmp_path, "")
    assert said in row
