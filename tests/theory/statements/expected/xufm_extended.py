"""What the statements on extended models must come to, and formulas that break them."""

from tests.theory.statements.expected.broken import Break

VERDICTS: dict[str, str] = {}

BREAKS: list[Break] = []
