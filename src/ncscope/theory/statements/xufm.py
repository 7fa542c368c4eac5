"""The unconstrained features model under the MSE loss (XUFM section 3)."""

from ncscope.theory.statements.statement import Statement

STATEMENTS: tuple[Statement, ...] = ()
