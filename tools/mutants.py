"""Mutation tests: change one operator or number of the code, and see whether a test fails.

    python -m tools.mutants [package ...]

Cosmic-ray makes the mutants. Torch, the package and its tests are imported once; each mutant then
lives in a forked process, where the code of one function is replaced. The tests of the mutant's
package that call this function run until one fails, the fastest first. A file keeps
the results: an interrupted run goes on where it was.
"""

import argparse
import ast
import gc
import hashlib
import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

SOURCE = Path("src/ncscope")
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
PACKAGES = ("losses", "math", "metrics", "stats", "transfer")
OPTIONS = ["-n", "0", "-q", "-s", "-p", "no:cacheprovider"]
OPTIONS += ["-m", "not slow and not nightly and not gpu"]

# Each operator's nearest neighbours: any test sees that * became <<.
OPERATORS = [
    f"core/{kind}{name}"
    for kind, names in {
        "ReplaceBinaryOperator_": "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul"
        " BitAnd_BitOr BitOr_BitAnd",
        "ReplaceComparisonOperator_": "Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is Lt_LtE Lt_GtE LtE_Lt"
        " LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt",
        "ReplaceUnaryOperator_": "Delete_USub Delete_Not Delete_Invert",
        "Replace": "TrueWithFalse FalseWithTrue OrWithAnd AndWithOr BreakWithContinue"
        " ContinueWithBreak",
        "": "NumberReplacer AddNot ZeroIterationForLoop RemoveDecorator ExceptionReplacer",
    }.items()
    for name in names.split()
]

Position = tuple[int, int]
Place = tuple[str, int]  # file and first line of a function


class Span(NamedTuple):
    """Part of a file, from the start of one node to the end of another."""

    start: Position
    end: Position
    line: int  # the first line of the function that the part is the body of, or 0

    @classmethod
    def of(cls, first: ast.AST, last: ast.AST, line: int = 0) -> "Span":
        """Return the span of two nodes and what lies between them."""
        end = (last.end_lineno, last.end_col_offset)
        return cls((first.lineno, first.col_offset), end, line)


@dataclass(frozen=True)
class Mutant:
    """A change of one operator or number in the body of a function."""

    key: str  # file, operator, line of source and rank: it stays when other lines change
    path: str
    operator: str
    occurrence: int  # rank among what the operator can change in the file
    function: Place

    def lot(self, seed: int) -> str:
        """Return the hash by which mutants are drawn."""
        return hashlib.sha256(f"{seed}|{self.key}".encode()).hexdigest()

    def source(self) -> str:
        """Return the mutated source of the file."""
        code = Path(self.path).read_text()
        return mutate_code(code, get_operator(self.operator)(), self.occurrence)


def bodies_and_noise(source: str) -> tuple[list[Span], list[Span]]:
    """Return the bodies of functions; then annotations and messages, which are not mutated."""
    bodies, noise = [], []
    for node in ast.walk(ast.parse(source)):
        for part in (getattr(node, name, None) for name in ("annotation", "returns")):
            noise += [Span.of(part, part)] if part else []
        if isinstance(node, ast.JoinedStr):
            noise.append(Span.of(node, node))
        # cosmic-ray takes the two stars of unpacking for a power
        unpacked = [node.value] if isinstance(node, ast.keyword) and node.arg is None else []
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            unpacked += [value for key, value in pairs if key is None]
        for value in unpacked:
            row, column = value.lineno, value.col_offset
            noise.append(Span((row, column - 2), (row, column), 0))
        if isinstance(node, ast.Module | ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    line = min(first.lineno for first in (part, *part.decorator_list))
                    bodies.append(Span.of(part.body[0], part.body[-1], line))
    return bodies, noise


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file. What runs at import, such as defaults, is not mutated."""
    source = path.read_text()
    tree, lines = get_ast(source), source.splitlines()
    bodies, noise = bodies_and_noise(source)
    ranks: Counter[str] = Counter()
    for operator in OPERATORS:
        change = get_operator(operator)()
        starts = (at for node in ast_nodes(tree) for at, _ in change.mutation_positions(node))
        for occurrence, start in enumerate(starts):
            if any(span.start <= start < span.end for span in noise):
                continue
            name = f"{path}|{operator}|{lines[start[0] - 1].strip()}"
            key = f"{name}|{ranks[name]}"
            ranks[name] += 1
            for body in bodies:
                if body.start <= start < body.end:
                    yield Mutant(key, str(path), operator, occurrence, (str(path), body.line))


@cache
def every_mutant() -> dict[str, list[Mutant]]:
    """Return the mutants of each package."""
    files = {name: sorted((SOURCE / name).rglob("*.py")) for name in PACKAGES}
    return {name: [m for path in files[name] for m in mutants_of(path)] for name in PACKAGES}


def sample(size: int, seed: int) -> dict[str, list[Mutant]]:
    """Draw mutants of each package, in proportion to its number of mutants."""
    share = size / sum(map(len, every_mutant().values()))
    return {
        name: sorted(some, key=lambda mutant: mutant.lot(seed))[: round(share * len(some))]
        for name, some in every_mutant().items()
    }


def in_fork(work: Callable[[], object], cpu_seconds: float | None = None) -> object:
    """Return what work returns in a forked process; None if the process dies."""
    with tempfile.NamedTemporaryFile("r+") as answer:
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
            if cpu_seconds:
                resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), int(cpu_seconds)))
            try:
                result = work()
            except BaseException as error:
                result = f"error: {error!r}"
            answer.write(json.dumps(result))
            answer.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        answer.seek(0)
        return json.loads(answer.read() or "null")


def place_of(code: CodeType) -> Place:
    """Return the file and the first line of a function's code."""
    return os.path.relpath(code.co_filename), code.co_firstlineno


def code_at(place: Place, code: CodeType) -> CodeType | None:
    """Find the code of a function inside the code of its module."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            is_class = not part.co_flags & 1  # a class has no fast locals
            found = code_at(place, part) if is_class else part
            if found and place_of(found) == place and found.co_name != "<lambda>":
                return found
    return None


@dataclass(eq=False)  # pytest hashes its plugins
class Runner:
    """A pytest plugin that runs the collected tests on mutants, each in a process of its own."""

    mutants: list[Mutant]
    results: Path
    failed: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge the mutants, in place of running the tests once."""
        self.items = {item.nodeid: item for item in session.items}
        # Some are imported by the functions of others only, too late for the list of functions.
        for path in {mutant.path for mutant in self.mutants}:
            import_module(".".join(Path(path).with_suffix("").parts[1:]))
        gc.unfreeze()
        functions = [thing for thing in gc.get_objects() if type(thing) is FunctionType]
        self.memory: dict[Place, list[FunctionType]] = {}
        for function in functions:
            if str(SOURCE) in function.__code__.co_filename:
                self.memory.setdefault(place_of(function.__code__), []).append(function)
        self.calls = in_fork(self.record)
        assert isinstance(self.calls, dict), self.calls
        print(f"{len(self.calls)} of {len(self.items)} tests pass on the unchanged code")
        for mutant in self.mutants:
            result = {"key": mutant.key, "outcome": self.judge(mutant)}
            with self.results.open("a") as lines:
                lines.write(json.dumps(result) + "\n")
        return True

    def record(self) -> dict[str, tuple[float, list[Place]]]:
        """Run all tests on the unchanged code: return the time of each, and what it calls."""
        result, called = {}, set()
        for name, item in self.items.items():
            called.clear()
            self.failed.clear()
            began = time.process_time()
            sys.settrace(lambda frame, event, _: called.add(frame.f_code))  # None: lines untraced
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            sys.settrace(None)
            if not self.failed:
                codes = [code for code in called if str(SOURCE) in code.co_filename]
                result[name] = time.process_time() - began, [place_of(code) for code in codes]
        return result

    def judge(self, mutant: Mutant) -> str:
        """Return whether a test kills a mutant, and which one."""
        direct = [n for n, (_, places) in self.calls.items() if list(mutant.function) in places]
        folder = f"tests/{Path(mutant.path).relative_to(SOURCE).parts[0]}/"
        direct = [name for name in direct if name.startswith(folder)] or direct
        # A test that reads what an earlier test of its file left in a cache calls nothing.
        modules = {self.items[name].module for name in direct}
        caching = {m for m in modules if any(hasattr(v, "cache_clear") for v in vars(m).values())}
        others = [n for n in self.calls if self.items[n].module in caching and n not in direct]
        tests = [
            name for some in (direct, others) for name in sorted(some, key=lambda n: self.calls[n])
        ]
        if not tests:
            return "unseen: no test calls it in its own process"
        limit = 20 + 5 * sum(self.calls[name][0] for name in tests)
        return in_fork(lambda: self.run(mutant, tests), limit) or "killed: the process ended"

    def run(self, mutant: Mutant, tests: list[str]) -> str:
        """Put the mutant in place of its function, and run tests until one fails."""
        for function in self.memory[mutant.function]:
            module = sys.modules[function.__module__]
            source = mutant.source().encode()
            code = module.__spec__.loader.source_to_code(source, module.__file__)
            function.__code__ = code_at(mutant.function, code)
        self.failed.clear()
        for name in tests:
            item = self.items[name]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if self.failed:
                return f"killed: {name}"
        return f"survived: {len(tests)} tests"


def main() -> None:
    """Run the mutants that have no result yet, and print the score."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="all by default")
    parser.add_argument("--sample", type=int, default=600, help="mutants of all packages together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", default="", help="only those whose path holds this text")
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"))
    arguments = parser.parse_args()
    drawn = sample(arguments.sample, arguments.seed)
    wanted = [m for name in arguments.packages for m in drawn[name] if arguments.files in m.path]
    arguments.results.touch()
    equivalent = json.loads(EQUIVALENT.read_text())
    known = equivalent.keys() | outcomes(arguments.results).keys()
    if missing := [mutant for mutant in wanted if mutant.key not in known]:
        folders = [f"tests/{name}" for name in arguments.packages]
        pytest.main([*OPTIONS, *folders], plugins=[Runner(missing, arguments.results)])
    known = outcomes(arguments.results)
    judged = {m.key: known.get(m.key, "not run") for m in wanted if m.key not in equivalent}
    count = Counter(outcome.split(":")[0] for outcome in judged.values())
    for key, outcome in judged.items():
        if not outcome.startswith("killed"):
            print(key, outcome)
    print(f"{len(wanted)} drawn, {len(wanted) - len(judged)} of them equivalent; {dict(count)}")


def outcomes(results: Path) -> dict[str, str]:
    """Return the outcomes so far, by the mutants' keys."""
    rows = map(json.loads, results.read_text().splitlines())
    return {row["key"]: row["outcome"] for row in rows}


if __name__ == "__main__":
    main()
