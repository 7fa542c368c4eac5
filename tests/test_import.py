"""Importing ncscope is light: what only training or drawing needs is loaded when it is used."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

import ncscope

HEAVY = (
    "lightning",
    "torchmetrics",
    "torchvision",
    "timm",
    "transformers",
    "ray",
    "matplotlib",
    "plotly",
)
LOADED = "import sys; print([name for name in {names} if name in sys.modules])"


def loaded(code: str, names: tuple[str, ...]) -> tuple[str, str]:
    """What the code printed, and which of the modules it loaded, as a last line; and its errors."""
    whole = f"{code}\n{LOADED.format(names=names)}"
    # -W error: nor does it warn
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", whole], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr  # else nothing may be printed
    return done.stdout.strip().splitlines()[-1], done.stderr


@pytest.mark.slow
def test_what_is_public_or_a_list_of_names_is_there_without_anything_heavy() -> None:
    code = "import ncscope, ncscope.report, ncscope.models.networks.catalogue; "
    code += "[getattr(ncscope, name) for name in ncscope.__all__]"
    # The import of rich draws from Python's random numbers, which measuring leaves as they are.
    assert loaded(code, (*HEAVY, "torch", "rich")) == ("['torch']", "")


def test_the_check_sees_what_is_imported() -> None:
    assert loaded("import matplotlib", HEAVY)[0] == "['matplotlib']"


def test_help_does_not_wait_for_torch() -> None:
    code = "\n".join(
        [
            "from ncscope.cli.running import main",
            "for words in (['--help'], ['measure', '--help']):",
            "    try: main(words)",
            "    except SystemExit: pass",
        ]
    )
    assert loaded(code, ("torch",)) == ("[]", "")


MISSING = (
    "measure gone.npz",
    "measure gone*.npz",
    "measure --features gone.npy --labels gone.npy",
    "measure {here} --weight gone.npy",
    "measure {here} --ood gone.npy",
    "measure {here} --save gone/report.html",
    "measure-model gone.py:Net digits",
    "measure-model timm:resnet18 gone",
    "measure-model timm:resnet18 digits --weights gone.pt",
    "measure-model timm:resnet18 digits --ood gone",
    "measure-model timm:resnet18 digits --preprocess gone.py:prepare",
    "report gone.json",
    *(["measure-model hf:gone digits"] if find_spec("torchvision") else []),
)


@pytest.mark.slow
def test_what_is_missing_is_said_before_torch_is_imported() -> None:
    here = "tests/test_import.py"
    lines = [line.format(here=here).split() for line in MISSING]
    code = "\n".join(
        [
            "import contextlib, io",
            "from ncscope.cli.running import main",
            f"for words in {lines}:",
            "    said = io.StringIO()",
            "    with contextlib.redirect_stderr(said):",
            "        try: main(words)",
            "        except SystemExit as end: assert end.code == 2",
            "    assert 'gone' in said.getvalue(), (words, said.getvalue())",
        ]
    )
    assert loaded(code, ("torch",)) == ("[]", "")


def test_modules_are_there_without_an_import_of_their_own() -> None:
    assert callable(ncscope.losses.mutual_information)
    assert {"losses", "measure", "transfer"} <= set(dir(ncscope))
    with pytest.raises(AttributeError, match="no attribute 'measures'"):
        ncscope.measures  # noqa: B018
