"""A statement of a paper, checked on random instances, and the verdict on it."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from math import inf, isfinite, isnan
from typing import Any, Literal

import torch

Check = Callable[[torch.Generator], Iterable[float]]
"""Function that draws instances and yields the deviation of each from the statement (0: none)."""

Verdict = Literal["holds", "holds-as-corrected", "fails"]

Kind = Literal["statement", "definition"]
"""``"definition"``: an identity that follows in one line from how its quantities are defined.

The check of a definition tests this package's formulas; it is no evidence for a paper, and is not
counted among the statements.
"""

Grade = Literal["false", "gap", "slip"]
"""Severity of the error in a printed form.

``"false"``: a counterexample refutes the conclusion; another conclusion takes its place.
``"gap"``: the conclusion holds under a condition that is not printed.
``"slip"``: a typing error or a wrong constant; the text around it implies the corrected form.
"""


@dataclass(frozen=True)
class Result:
    """Verdict on one statement, and the evidence.

    Attributes:
        id: Name of the statement.
        statement: Text of the statement.
        source: Paper and number.
        kind: ``"statement"`` or ``"definition"``.
        instances: Number of instances on which the reported form was checked.
        deviation: Largest deviation over the instances. The reported form is the corrected form if
            there is one and the printed form failed, else the printed form.
        tolerance: Largest deviation that counts as rounding.
        verdict: ``"holds"``, ``"holds-as-corrected"`` or ``"fails"``.
        seed: Seed of the instances.
        grade: Severity of the error in the printed form; None if it holds.
        printed_deviation: Largest deviation of the printed form; None unless the printed form
            failed and the statement has a corrected form.
    """

    id: str
    statement: str
    source: str
    kind: Kind
    instances: int
    deviation: float
    tolerance: float
    verdict: Verdict
    seed: int
    grade: Grade | None = None
    printed_deviation: float | None = None

    def record(self) -> dict[str, Any]:
        """Return the result in types of JSON, without the seed and with infinities as null."""
        record = {
            "id": self.id,
            "statement": self.statement,
            "source": self.source,
            "kind": self.kind,
            "instances": self.instances,
            "deviation": _finite(self.deviation),
            "tolerance": self.tolerance,
            "verdict": self.verdict,
            "grade": self.grade,
        }
        if self.printed_deviation is not None:
            record["printed_deviation"] = _finite(self.printed_deviation)
        return record


@dataclass(frozen=True)
class Statement:
    """One row of the table.

    Attributes:
        id: Name by which ``--only`` selects it.
        statement: One sentence with the equation or inequality, in plain text.
        source: Paper and number.
        tolerance: Largest deviation that counts as rounding.
        printed: Check of the printed form, under the printed assumptions.
        corrected: Check of the corrected form, if the printed form does not hold.
        grade: Severity of the error in the printed form; None if there is no corrected form.
        kind: ``"definition"`` for an identity that no input can violate.

    Raises:
        ValueError: If there is a corrected form without a grade or a grade without such a form.
    """

    id: str
    statement: str
    source: str
    tolerance: float
    printed: Check
    corrected: Check | None = None
    grade: Grade | None = None
    kind: Kind = "statement"

    def __post_init__(self) -> None:
        if (self.corrected is None) != (self.grade is None):
            msg = f"{self.id} needs both a corrected form and a grade, or neither"
            raise ValueError(msg)

    def check(self, seed: int) -> Result:
        """Check the statement on random instances.

        The verdict is ``holds`` if the printed form holds on every instance,
        ``holds-as-corrected`` if the printed form failed and the corrected form holds on every
        instance, and ``fails`` otherwise. A statement that fails and has no corrected form is
        graded ``false``: its instances hold a counterexample.

        Args:
            seed: Seed of the instances, combined with the id. So the instances do not depend on
                whether other statements are checked.

        Raises:
            ValueError: If a check draws no instance.
        """
        instances, deviation = self._observe(self.printed, seed)
        verdict: Verdict = "holds" if deviation <= self.tolerance else "fails"
        printed = None
        if verdict == "fails" and self.corrected is not None:
            printed = deviation
            instances, deviation = self._observe(self.corrected, seed)
            if deviation <= self.tolerance:
                verdict = "holds-as-corrected"
        return Result(
            id=self.id,
            statement=self.statement,
            source=self.source,
            kind=self.kind,
            instances=instances,
            deviation=deviation,
            tolerance=self.tolerance,
            verdict=verdict,
            seed=seed,
            grade=None if verdict == "holds" else self.grade or "false",
            printed_deviation=printed,
        )

    def _observe(self, check: Check, seed: int) -> tuple[int, float]:
        """Return the number of instances, and the largest deviation."""
        digest = sha256(f"{seed} {self.id}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        deviations = [inf if isnan(value) else value for value in check(generator)]
        if not deviations:
            msg = f"the check of {self.id} drew no instance"
            raise ValueError(msg)
        return len(deviations), max(deviations)


@dataclass(frozen=True)
class Tally:
    """Counts of verdicts and grades.

    Attributes:
        statements: Number of results, definitions left out.
        definitions: Number of definitions.
        holds: Number of statements that hold as printed.
        false: Number of statements of grade ``"false"``, failed ones included.
        gap: Number of statements of grade ``"gap"``.
        slip: Number of statements of grade ``"slip"``.
        fails: Number of statements and definitions of verdict ``"fails"``.
    """

    statements: int
    definitions: int
    holds: int
    false: int
    gap: int
    slip: int
    fails: int


def tally(results: Iterable[Result]) -> Tally:
    """Count verdicts and grades; definitions count as definitions only, unless they fail."""
    results = list(results)
    statements = [result for result in results if result.kind == "statement"]
    grades = Counter(result.grade for result in statements)
    return Tally(
        statements=len(statements),
        definitions=len(results) - len(statements),
        holds=grades[None],
        false=grades["false"],
        gap=grades["gap"],
        slip=grades["slip"],
        fails=sum(result.verdict == "fails" for result in results),
    )


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
