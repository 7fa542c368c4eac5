"""Item of a paper's inventory: one definition, statement, figure or table."""

from dataclasses import dataclass
from typing import Literal

Coverage = Literal["full", "partial", "missing", "illustration"]


@dataclass(frozen=True, kw_only=True)
class Item:
    """A definition, statement, figure, table or unnumbered claim of a paper.

    Attributes:
        paper: Tag of the paper, such as ``"VCI"``.
        label: Kind and number as printed, such as ``"figure 2"``; for content without a number
            the section, such as ``"section 4.3"``.
        content: Content of the item, one plain sentence.
        coverage: ``"full"`` if the project has all of the item, ``"partial"`` if the note says
            which part is absent, ``"missing"`` if all is absent, ``"illustration"`` if the item is
            a drawing that shows no measurement.
        metrics: Keys of the metrics registry.
        statements: Ids of the table of theory.
        experiments: Names of recipes.
        code: Dotted names of functions, classes and values.
        note: Restriction of the coverage; required unless the coverage is full.

    Raises:
        ValueError: If coverage, places and note contradict each other.
    """

    paper: str
    label: str
    content: str
    coverage: Coverage = "full"
    metrics: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    experiments: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        places = bool(self.metrics or self.statements or self.experiments or self.code)
        if self.coverage == "missing" and places:
            self._refuse("is missing but has places")
        if self.coverage in {"full", "partial"} and not places:
            self._refuse("is in the project but has no places")
        if self.coverage != "full" and not self.note:
            self._refuse("is not covered in full and has no note")

    def _refuse(self, reason: str) -> None:
        msg = f"{self.paper}, {self.label} {reason}"
        raise ValueError(msg)
