"""MSE theorem 3 and corollaries 1 and 2: the flow on the central path to neural collapse.

Source: MSE section 3 and appendix D, which draw no figure and name no sizes; these are ours.

Cost: see `RECIPE.cost`.

Expected: 15 claims, all held.

Command: ``ncscope reproduce mse/central-path``
"""

from ncscope.recipes.recipe import Recipe
from ncscope.recipes.simulations.central_path import STUDY, CentralPathConfig

RECIPE = Recipe(
    id="mse/central-path",
    title="The central path to neural collapse",
    lead=STUDY.lead,
    source="MSE theorem 3, corollaries 1 and 2, appendix D; and our errata to them",
    config=CentralPathConfig,
    parts=STUDY.parts,
    claims=STUDY.claims,
    drawings=STUDY.drawings,
    columns=STUDY.columns,
    scales={
        "paper": CentralPathConfig(dim=10, per_class=50, points=65),
        "small": CentralPathConfig(),
    },
    cost={"paper": "about 10 seconds on one core", "small": "about 5 seconds on one core"},
)
