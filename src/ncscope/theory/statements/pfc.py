"""Collapse from layer to layer (PFC section III)."""

from ncscope.theory.statements.statement import Statement

STATEMENTS: tuple[Statement, ...] = ()
