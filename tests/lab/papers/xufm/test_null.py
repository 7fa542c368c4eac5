"""Claims on networks hold by chance in at most 4 of 40 draws of permuted measurements."""

import pytest
import torch

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.xufm.network import RECIPE
from tests.lab.papers.chance import not_held, often_held
from tests.lab.papers.xufm.test_network import PATHS, made

SMALL = RECIPE.scales["small"]
pytestmark = pytest.mark.slow
KEYS = (*PATHS, "nc3_alignment", "nc3_self_duality")


def permuted(results: Results, generator: torch.Generator) -> Results:
    """The results with each metric's values exchanged among epochs, levels and seeds of a loss."""
    rows = list(results)
    for network in {name.rsplit(",", 1)[0] for name in SMALL.runs}:
        for key in KEYS:
            own = [i for i, row in enumerate(rows) if network in row.part and key in row]
            order = torch.randperm(len(own), generator=generator).tolist()
            values = [rows[own[index]][key] for index in order]
            for index, value in zip(own, values, strict=True):
                rows[index] = rows[index].with_values({key: value})
    return Results(rows)


def untrained(results: Results, generator: torch.Generator) -> Results:
    """The results with each metric after training as at the start, but for a few per cent."""

    def changed(row: Observation) -> Observation:
        first = starts[row.part, row.layer]
        noise = {key: float(first[key]) * spread() for key in KEYS if key in row}
        return row.with_values(noise) if row.part in SMALL.runs else row

    def spread() -> float:
        return float(torch.exp(0.05 * torch.randn((), generator=generator)))

    starts: dict[tuple[str, str], Observation] = {}
    for row in results:
        starts.setdefault((row.part, row.layer), row)
    return Results(map(changed, results))


@pytest.mark.parametrize("change", [permuted, untrained])
def test_claims_of_noise_seldom_hold(change) -> None:
    generator = torch.Generator().manual_seed(0)
    real = made()
    assert not_held(RECIPE.judge(SMALL, real)) == []
    assert often_held(lambda _: RECIPE.judge(SMALL, change(real, generator))) == {}
