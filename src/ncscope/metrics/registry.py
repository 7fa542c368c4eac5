"""Table of all metrics that ncscope reports, with requirements, meaning and source of each.

The measurement, the conformance tests, the reference in the docs, the tables in the terminal and
the axis labels of all figures use this table.
"""

from ncscope.metrics.metric import Metric
from ncscope.metrics.rows import collapse, information, mse

GROUPS = ("nc1", "nc2", "nc3", "nc4", "pfc", "mse", "information", "spectra")

_ROWS = (
    *collapse.NC1_ROWS,
    *collapse.NC2_ROWS,
    *collapse.NC3_ROWS,
    *collapse.NC4_ROWS,
    *mse.ROWS,
    *information.ROWS,
)

METRICS: dict[str, Metric] = {row.key: row for row in _ROWS}
