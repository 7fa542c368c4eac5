"""Choice of the tests that run in an environment with only the bare package and torchmetrics."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
OPTIONAL = frozenset(
    {
        "PIL",
        "accelerate",
        "datasets",
        "foolbox",
        "h5py",
        "lightning",
        "mkdocs",
        "pandas",
        "playwright",
        "polars",
        "pyarrow",
        "pydantic",
        "ray",
        "sklearn",
        "threadpoolctl",
        "timm",
        "torchvision",
        "transformers",
        "webdataset",
    }
)
"""Libraries that the bare package does without."""
NEEDING = (
    "ncscope_lab",
    "ncscope.data",
    "ncscope.integrations.huggingface",
    "ncscope.integrations.lightning",
    "ncscope.models.networks",
    "docs.hooks",
    "benchmarks.gpu_report",  # starts benchmarks of the laboratory
    "tools.mutants",  # needs cosmic-ray
)
"""Packages of this repository that need one of them."""


SAME_EVERYWHERE = ("losses", "math", "measurement", "metrics", "report", "stats")
"""Packages of ncscope that import nothing but the bare package's dependencies, anywhere.

Neither do the modules that they import. Their tests would show in a bare environment what they show
in the full one; `tests.test_bare` looks at the imports instead.
"""


def left_out(path: Path) -> bool:
    """Return whether a file or folder of tests has no place in a bare environment."""
    tests = ROOT / "tests"
    if not path.is_relative_to(tests):
        return not tests.is_relative_to(path)
    inside = path.relative_to(tests).parts
    if inside and inside[0] in ("docs", *SAME_EVERYWHERE):
        return True
    return path.suffix == ".py" and path.name.startswith("test_") and _needs_more(path)


@cache
def _needs_more(path: Path) -> bool:
    """Return whether a module, or a module of tests that it imports, imports what is optional."""
    for name in imports(path):
        if name.split(".")[0] in OPTIONAL or name.startswith(NEEDING):
            return True
        own = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        if name.startswith("tests.") and own != path and own.exists() and _needs_more(own):
            return True
    return False


def imports(path: Path) -> list[str]:
    """Return the names of what a module imports, inside functions too."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names
