"""Count what a reader of the code has to carry: files, pieces, records, names, parameters.

    python tools/counts.py                  the instrument of this checkout
    python tools/counts.py OLD NEW          two checkouts side by side
    python tools/counts.py --list once      names of what is counted: once, records, participles

Only the syntax is read; nothing is imported, so that any state of the code can be counted.
"""

import argparse
import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FRONT_DOOR = ("api", "losses", "transfer", "integrations")
"""Packages whose functions and classes without an underscore are looked through for parameters."""

IRREGULAR = frozenset(
    """
    begun bent bound bought broken brought built burnt caught chosen dealt done drawn driven
    fallen felt flung forgotten forbidden found frozen given gone got ground grown heard
    held hidden kept known laid led left lent lost made meant met paid proven quit said seen
    sent shaken shown shrunk slept sold spent spoken stolen struck stuck sung sunk taken
    taught thought thrown told torn understood undone unseen unknown won worn woven written
    wrought
    """.split()  # noqa: SIM905
)
ED_WORDS = frozenset(
    """
    need seed feed speed embed bed red breed exceed proceed succeed shed
    """.split()  # noqa: SIM905
)
FIELD_TERMS = (
    "squared_error",
    "SquaredError",
    "expected_",
    "explained_entropy",
    "ExplainedEntropy",
)
# Nouns of the field among them: coding rate, Hugging Face, rounding error, training set.
ING_WORDS = frozenset(
    """
    coding everything hugging king nothing packing padding pretraining preprocessing ranking ring
    rounding sing spring string thing timing training
    """.split()  # noqa: SIM905
)


@dataclass
class Count:
    """Counts of one checkout; each list names its items."""

    files: list[str] = field(default_factory=list)
    lines: int = 0
    code: int = 0
    comments: int = 0
    functions: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    once: list[str] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    participles: list[str] = field(default_factory=list)
    neighbours: list[str] = field(default_factory=list)
    public: list[str] = field(default_factory=list)
    parameters: dict[str, int] = field(default_factory=dict)


def is_participle(name: str) -> bool:
    """Return whether the first word of a name is a participle, as in `measured_layers`."""
    word = re.split(r"_|(?<=[a-z])(?=[A-Z])", name.strip("_"))[0].lower()
    if name.strip("_").startswith(FIELD_TERMS):
        return False
    if word.endswith("ed"):
        return word not in ED_WORDS and len(word) > 3
    if word.endswith("ing"):
        return word not in ING_WORDS
    return word in IRREGULAR


def count_checkout(root: Path) -> Count:
    """Count the instrument of one checkout, all of `ncscope` but its laboratory."""
    package = root / "src" / "ncscope"
    laboratory = root / "lab" / "src" / "ncscope_lab"  # inside the package in earlier checkouts
    result = Count()
    mentions: Counter[str] = Counter()
    importers: dict[str, set[str]] = {}
    definitions: list[tuple[str, ast.AST]] = []
    for path in sorted([*package.rglob("*.py"), *laboratory.rglob("*.py")]):
        is_outside = path.is_relative_to(laboratory)
        module = _module_name(path, laboratory if is_outside else package)
        is_lab = is_outside or module.startswith("ncscope.lab")
        tree = ast.parse(path.read_text())
        for name in _imports(tree, module):
            importers.setdefault(name, set()).add(module)
        if is_lab:
            continue
        result.files.append(str(path.relative_to(package)))
        _count_lines(path, tree, result)
        mentions.update(_mentions(tree))
        definitions += [(f"{module}.{name}", node) for name, node in _definitions(tree)]
    for name, node in definitions:
        own = name.rpartition(".")[2]
        is_class = isinstance(node, ast.ClassDef)
        (result.classes if is_class else result.functions).append(name)
        if is_participle(own):
            result.participles.append(name)
        if is_class and _is_record(node):
            result.records.append(name)
        private = own.startswith("_") and not own.startswith("__")
        if not is_class and private and mentions[own] == 1:
            result.once.append(name)
    modules = {_module_name(package / file, package) for file in result.files}
    for module, users in sorted(importers.items()):
        if module in modules and len(users) == 1:
            user = next(iter(users))
            if user.rpartition(".")[0] == module.rpartition(".")[0]:
                result.neighbours.append(f"{module} <- {user}")
    result.public = _public_names(package)
    result.parameters = _parameters(definitions)
    return result


def _module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _count_lines(path: Path, tree: ast.Module, result: Count) -> None:
    """Add a file's lines, its lines of code (no docstring, comment or blank), and its comments."""
    text = path.read_text()
    result.lines += len(text.splitlines())
    code: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                result.comments += 1
            elif token.type not in _BLANK:
                code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):  # a docstring, of a value too
                code.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    result.code += len(code)


_BLANK = {
    tokenize.ENCODING,
    tokenize.NEWLINE,
    tokenize.NL,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def _definitions(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield functions and classes with their dotted names, those inside others too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
            for name, inner in _definitions(node):
                yield f"{node.name}.{name}", inner
        else:
            yield from _definitions(node)


def _mentions(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]


def _imports(tree: ast.AST, module: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ncscope"):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("ncscope"))


def _is_record(node: ast.AST) -> bool:
    assert isinstance(node, ast.ClassDef)
    marks = [*node.decorator_list, *node.bases]
    return any(ast.unparse(mark).startswith(_RECORDS) for mark in marks)


_RECORDS = ("dataclass", "dataclasses.dataclass", "NamedTuple", "TypedDict", "BaseModel")


def _public_names(package: Path) -> list[str]:
    """Return the names in `__all__` of the package and of its public modules."""
    names = []
    for module in ("", "losses", "transfer", "integrations"):
        tree = ast.parse((package / module / "__init__.py").read_text())
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names += [f"{module}.{name}".strip(".") for name in ast.literal_eval(node.value)]
    return names


def _parameters(definitions: list[tuple[str, ast.AST]]) -> dict[str, int]:
    """Return the number of parameters of the public functions at the front door."""
    counts = {}
    for name, node in definitions:
        parts = name.split(".")
        hidden = any(part.startswith("_") for part in parts)
        if isinstance(node, ast.FunctionDef) and parts[1] in FRONT_DOOR and not hidden:
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            counts[name] = len([it for it in every if it.arg not in ("self", "cls")])
    return counts


def rows(count: Count) -> list[tuple[str, str]]:
    """Return the table of one checkout: what is counted, and how many."""
    named = len(count.functions) + len(count.classes)
    most = sorted(count.parameters.items(), key=lambda it: -it[1])[:1]
    mean = sum(count.parameters.values()) / max(len(count.parameters), 1)
    return [
        ("files", f"{len(count.files)}"),
        ("lines", f"{count.lines:,}"),
        ("lines of code", f"{count.code:,}"),
        ("comments a 100 lines of code", f"{100 * count.comments / count.code:.1f}"),
        ("functions", f"{len(count.functions):,}"),
        (
            "private functions named once",
            f"{len(count.once)} ({len(count.once) / len(count.functions):.0%})",
        ),
        ("classes", f"{len(count.classes)}"),
        ("records", f"{len(count.records)}"),
        (
            "participles as names",
            f"{len(count.participles)} ({len(count.participles) / named:.1%})",
        ),
        ("modules with one importer, next door", f"{len(count.neighbours)}"),
        ("public names", f"{len(count.public)}"),
        ("parameters of a public function, mean", f"{mean:.2f}"),
        *((f"most parameters ({name})", f"{number}") for name, number in most),
    ]


def main() -> None:
    """Print the table, or the items of one count."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--list", dest="listed", help="Print the items of one count.")
    options = parser.parse_args()
    counts = [count_checkout(root) for root in options.checkouts or [ROOT]]
    if options.listed:
        print(*getattr(counts[-1], options.listed), sep="\n")
        return
    tables = [rows(count) for count in counts]
    for lines in zip(*tables, strict=True):
        print(f"{lines[0][0]:<42}", *(f"{value:>14}" for _, value in lines))


if __name__ == "__main__":
    main()
