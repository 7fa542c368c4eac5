"""Unconstrained features models (XUFM sections 3 to 5)."""

from ncscope.theory.statements.statement import Statement

STATEMENTS: tuple[Statement, ...] = ()
