"""Variability metrics and linear probing (VCI sections 4 and 5)."""

from ncscope.theory.statements.statement import Statement

STATEMENTS: tuple[Statement, ...] = ()
