"""Parts of the experiments on matrix information cut to seconds, and results made up for claims."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lab.tests.observed import nudged

from ncscope_lab.experiment import Part
from ncscope_lab.observations import Event, Heartbeat, Observation, Recorded
from ncscope_lab.quantities import replace_fields
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.settings import Training

CLASSES = 10


def brief(training: Training, **given: Any) -> Training:
    """One epoch of few images."""
    return replace_fields(training, epochs=1, every=1, balanced=150, batch_size=50, **given)


def recorded(events: Iterable[Event]) -> list[Recorded]:
    """Events without the heartbeats."""
    return [event for event in events if not isinstance(event, Heartbeat)]


def stopped_in(part: Part, resources: Resources, here: Callable[[Recorded], bool]) -> None:
    """Run a part to the first event of which something is true, and stop it there."""
    run = part.run(resources)
    assert any(not isinstance(event, Heartbeat) and here(event) for event in run)
    run.close()


def made(
    part: str, where: Mapping[str, Any], values: Mapping[str, float], ratio: float = 1.1
) -> Observation:
    """An observation of a last layer; a batch's estimate is a multiple of the exact value."""
    ratios = {key: values[key] for key in values if key != "accuracy"}
    batch = {f"{key}_batch": ratio * value for key, value in ratios.items()}
    base = {"part": part, "layer": "head input", "num_classes": CLASSES}
    return nudged(Observation.of_line(base | dict(where) | dict(values) | batch))
