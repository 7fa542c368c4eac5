"""A report of values by key, which `measure_regression` and `measure_multilabel` return."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ncscope.api.tables import MappingTable, csv_text
from ncscope.api.writable import check_file, save_text
from ncscope.arguments import check_arguments


@check_arguments
class PlainReport(MappingTable[float]):
    """Values by key, with notes; base of the reports that have no layers.

    Attributes:
        notes: Sentences for the reader: why a value is absent or NaN, what was left out.
        warnings: Sentences on values that may mislead.
    """

    _suffixes: ClassVar[tuple[str, ...]] = (".json", ".csv")

    def __init__(
        self, metrics: Mapping[str, Any], notes: Iterable[str], warnings: Iterable[str] = ()
    ) -> None:
        self._content, self.notes, self.warnings = dict(metrics), list(notes), list(warnings)

    def __repr__(self) -> str:
        lines = [f"  {key:<26} {value:.6g}" for key, value in self.items()]
        lines += [f"  warning: {text}" for text in self.warnings]
        lines += [f"  note: {text}" for text in self.notes]
        return "\n".join([f"{type(self).__name__}: {self._describe()}", *lines])

    def _describe(self) -> str:
        """Say in a few words what was measured."""
        return f"{len(self)} values"

    def _explain_absence(self, key: str) -> str:
        return f"{key!r}; the keys are {', '.join(self)}"

    def as_dict(self) -> dict[str, object]:
        """Return the values as plain types; NaN is None, and a note says why."""
        return {
            "metrics": {k: v if math.isfinite(v) else None for k, v in self.items()},
            "notes": self.notes,
        }

    def to_json(self) -> str:
        """Write `as_dict` as one JSON object."""
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False)

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each metric."""
        return [{"metric": key, "value": value} for key, value in self.items()]

    def save(self, path: str | Path) -> Path:
        """Write the report as .json or .csv, and return the path.

        Args:
            path: File to write; one that is there is replaced whole or not at all.

        Raises:
            InputError: If the suffix is another, or the folder cannot be written.
        """
        path = check_file(path, self._suffixes)
        text = self.to_json() + "\n" if path.suffix == ".json" else csv_text(self.rows())
        return save_text(path, text)
