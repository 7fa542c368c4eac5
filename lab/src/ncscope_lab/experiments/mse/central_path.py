"""MSE theorem 3 and corollaries 1 and 2: the flow on the central path to neural collapse.

The model, its claims and their rule are those of `ncscope_lab.experiments.models.central_path`: one
flow from one random start, seed 0, in closed form and simulated. MSE section 3 and appendix D have
no figure and state no sizes; those of both scales are ours. The small one has 4 classes of 10
samples in 8 dimensions, measured at 33 times.
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
