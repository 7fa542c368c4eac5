"""A statement of a paper, checked on random instances, and the verdict on it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from math import inf, isfinite, isnan
from typing import Any, Literal

import torch

Check = Callable[[torch.Generator], Iterable[float]]
"""Function that draws instances and yields the deviation of each from the statement (0: none)."""

Verdict = Literal["holds", "holds-as-corrected", "fails"]


@dataclass(frozen=True)
class Result:
    """Verdict on one statement, and the evidence.

    Attributes:
        id: Name of the statement.
        statement: Text of the statement.
        source: Paper and number.
        instances: Number of instances on which the reported form was checked.
        deviation: Largest deviation over the instances. The reported form is the corrected form if
            there is one and the printed form failed, else the printed form.
        tolerance: Largest deviation that counts as rounding.
        verdict: ``"holds"``, ``"holds-as-corrected"`` or ``"fails"``.
        seed: Seed of the instances.
        printed_deviation: Largest deviation of the printed form; None unless the printed form
            failed and the statement has a corrected form.
    """

    id: str
    statement: str
    source: str
    instances: int
    deviation: float
    tolerance: float
    verdict: Verdict
    seed: int
    printed_deviation: float | None = None

    def record(self) -> dict[str, Any]:
        """Return the result in types of JSON, without the seed and with infinities as null."""
        record = {
            "id": self.id,
            "statement": self.statement,
            "source": self.source,
            "instances": self.instances,
            "deviation": _finite(self.deviation),
            "tolerance": self.tolerance,
            "verdict": self.verdict,
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
        corrected: Check of the corrected form, if the printed form is false.
    """

    id: str
    statement: str
    source: str
    tolerance: float
    printed: Check
    corrected: Check | None = None

    def check(self, seed: int) -> Result:
        """Check the statement on random instances.

        The verdict is ``holds`` if the printed form holds on every instance,
        ``holds-as-corrected`` if the printed form failed and the corrected form holds on every
        instance, and ``fails`` otherwise.

        Args:
            seed: Seed of the instances, combined with the id. So the instances do not depend on
                whether other statements are checked.

        Raises:
            ValueError: If a check draws no instance.
        """
        printed = self._observe(self.printed, seed)
        if printed.deviation <= self.tolerance:
            return self._result(seed, printed, "holds", None)
        if self.corrected is None:
            return self._result(seed, printed, "fails", None)
        corrected = self._observe(self.corrected, seed)
        held = corrected.deviation <= self.tolerance
        verdict: Verdict = "holds-as-corrected" if held else "fails"
        return self._result(seed, corrected, verdict, printed.deviation)

    def _observe(self, check: Check, seed: int) -> "_Observed":
        digest = sha256(f"{seed} {self.id}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        deviations = [inf if isnan(value) else value for value in check(generator)]
        if not deviations:
            msg = f"the check of {self.id} drew no instance"
            raise ValueError(msg)
        return _Observed(len(deviations), max(deviations))

    def _result(
        self, seed: int, seen: "_Observed", verdict: Verdict, printed: float | None
    ) -> Result:
        return Result(
            id=self.id,
            statement=self.statement,
            source=self.source,
            instances=seen.instances,
            deviation=seen.deviation,
            tolerance=self.tolerance,
            verdict=verdict,
            seed=seed,
            printed_deviation=printed,
        )


@dataclass(frozen=True)
class _Observed:
    instances: int
    deviation: float


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
