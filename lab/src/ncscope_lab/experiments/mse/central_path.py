"""MSE theorem 3 and corollaries 1 and 2: the flow on the central path to neural collapse.

The model is `ncscope_lab.experiments.models.central_path`. MSE section 3 and appendix D have no
figure and state no sizes; the sizes of both scales are ours.
"""

from dataclasses import replace

from ncscope_lab.experiments.models import central_path
from ncscope_lab.experiments.models.central_path import CentralPath

PAPER = CentralPath(dim=10, per_class=50, points=65)
SMALL = CentralPath()

EXPERIMENT = replace(
    central_path.EXPERIMENT,
    id="mse/central-path",
    title="The central path to neural collapse",
    source="MSE theorem 3, corollaries 1 and 2, appendix D; and our errata to them",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "10 seconds on one core", "small": "5 seconds on one core"},
)
