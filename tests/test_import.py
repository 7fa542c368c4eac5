"""Importing ncscope is light: what only training or drawing needs is loaded when it is used."""

import subprocess
import sys

HEAVY = (
    "lightning",
    "torchmetrics",
    "torchvision",
    "timm",
    "transformers",
    "matplotlib",
    "plotly",
)


def test_importing_ncscope_imports_nothing_heavy() -> None:
    code = f"import sys, ncscope; print([name for name in {HEAVY} if name in sys.modules])"
    # -W error: nor does it warn
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_check_sees_what_is_imported() -> None:
    code = f"import sys, matplotlib; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['matplotlib']"
