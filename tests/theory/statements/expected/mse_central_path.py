"""What the statements on the central path must come to, and formulas that break them."""

from tests.theory.statements.expected.broken import Break

VERDICTS: dict[str, str] = {}

BREAKS: list[Break] = []
