"""What the MSE paper's statements must come to, and the broken formulas that must fail them."""

from tests.theory.statements.expected.broken import Break

VERDICTS: dict[str, str] = {}

BREAKS: list[Break] = []
