"""Parts of the MSE loss (MSE section 2 and appendix B)."""

from ncscope.theory.statements.statement import Statement

STATEMENTS: tuple[Statement, ...] = ()
