"""Options of class moments: prior, precision, statistics."""

from typing import Literal, TypeAlias

Prior: TypeAlias = Literal["empirical", "uniform"]
Precision: TypeAlias = Literal["float64", "blocked"]
Redraw: TypeAlias = bool | Literal["random_sizes"]
"""Samples that standard errors are of: False for no errors; True for as many of each class drawn
again; ``"random_sizes"`` for as many in all, drawn with their classes.
"""

Statistic: TypeAlias = Literal["scatter", "directions"]
ALL_STATISTICS: frozenset[Statistic] = frozenset({"scatter", "directions"})
