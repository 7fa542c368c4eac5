"""MSE theorem 3 and corollaries 1 and 2: the flow on the central path to neural collapse.

Source: MSE section 3 and appendix D, which have no figure and state no sizes; the sizes are ours.

Cost: 10 seconds of one core at paper scale, 5 at small.

Expected: 15 claims, all held. Simulated singular values are within 1e-7 of both closed forms over
eight decades of time; exponents of growth are 0.2504 and 0.5000. After 1,024 renormalised steps the
deviation is 7e-4 from the renormalised law and 0.8 from the projected law. Late in the unrestricted
flow at paper scale, the loss off the central path is at most 4e-7 of the loss, also from a random
classifier.

Command: ``ncscope reproduce mse/central-path --scale paper``
"""

from ncscope.lab.runs.recipe import Recipe
from ncscope.lab.simulations.central_path import STUDY, CentralPathConfig

RECIPE = Recipe(
    id="mse/central-path",
    title="The central path to neural collapse",
    lead=STUDY.lead,
    source="MSE theorem 3, corollaries 1 and 2, appendix D; and our errata to them",
    config=CentralPathConfig,
    parts=STUDY.parts,
    claims=STUDY.claims,
    drawings=STUDY.drawings,
    unit="step",
    columns=STUDY.columns,
    scales={
        "paper": CentralPathConfig(dim=10, per_class=50, points=65),
        "medium": CentralPathConfig(dim=10, per_class=50, points=65),
        "small": CentralPathConfig(),
    },
    cost={
        "paper": "10 seconds on one core",
        "medium": "as at the paper's scale",
        "small": "5 seconds on one core",
    },
)
