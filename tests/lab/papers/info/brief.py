"""Parts of the recipes on matrix information cut to seconds, and results made up for their claims."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ncscope.lab.papers.info.runs import changed
from ncscope.lab.runs.recipe import Part
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.settings import Training

CLASSES = 10


def brief(training: Training, **given: Any) -> Training:
    """One epoch of few images."""
    return changed(training, epochs=1, every=1, balanced=150, batch_size=50, **given)


def rows_of(part: Part, resources: Resources | None = None) -> Results:
    """What a part yields, without the signs of life."""
    return [{"part": part.name} | row for row in part.run(resources or Resources()) if row]


def stopped_in(part: Part, resources: Resources, here: Callable[[Row], bool]) -> None:
    """Run a part to the first row of which something is true, and stop it there."""
    run = part.run(resources)
    assert any(here(row) for row in run)
    run.close()


def made(part: str, where: Mapping[str, Any], values: Mapping[str, float]) -> Row:
    """A row of a last layer; what a batch says is a tenth more than the exact value."""
    ratios = {key: values[key] for key in values if key != "accuracy"}
    batch = {f"{key}_batch": 1.1 * value for key, value in ratios.items()}
    base = {"part": part, "layer": "head input", "num_classes": CLASSES}
    return base | dict(where) | dict(values) | batch


def unmeasured(results: Results) -> Results:
    """The results, every metric NaN."""
    places = ("omega", "sparsity")
    return [
        {k: math.nan if isinstance(v, float) and k not in places else v for k, v in row.items()}
        for row in results
    ]
