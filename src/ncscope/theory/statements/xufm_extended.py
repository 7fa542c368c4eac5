"""Extended models and perturbed features (XUFM sections 4 and 5)."""

from ncscope.theory.statements.statement import Statement

STATEMENTS: tuple[Statement, ...] = ()
