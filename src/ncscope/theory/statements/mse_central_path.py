"""Dynamics on the central path (MSE section 3 and appendix D)."""

from ncscope.theory.statements.statement import Statement

STATEMENTS: tuple[Statement, ...] = ()
