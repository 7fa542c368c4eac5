"""Table of all metrics that ncscope reports, with requirements, meaning and source of each.

The measurement, the conformance tests, the reference in the docs, the tables in the terminal and
the axis labels of all figures use this table.
"""

from ncscope.metrics.metric import Metric
from ncscope.metrics.rows import collapse, imbalance, information, mse, ood, spectra, uniformity

GROUPS = ("nc1", "nc2", "nc3", "nc4", "pfc", "mse", "information", "spectra", "ood", "per_class")

_ROWS = (
    *collapse.NC1_ROWS,
    *collapse.NC2_ROWS,
    *uniformity.NC2_ROWS,
    *imbalance.ROWS,
    *uniformity.NC3_ROWS,
    *collapse.NC3_ROWS,
    *collapse.NC4_ROWS,
    *mse.ROWS,
    *information.ROWS,
    *spectra.ROWS,
    *ood.ROWS,
)

METRICS: dict[str, Metric] = {row.key: row for row in _ROWS}
