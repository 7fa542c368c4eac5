"""The demo from end to end: train, measure every layer, write the run folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncscope.probing.records import Snapshot
from ncscope.recipes import demo as recipe
from ncscope.report.page import run_page
from ncscope.training.loop import EpochEnd
from ncscope.training.run_folder import RunFolder

TITLE = "Neural collapse of a residual network on handwritten digits"
LEAD = (
    "A fully connected residual network learns scikit-learn's handwritten digits, and trains on "
    "past zero training error. Features of every layer are measured at log-spaced epochs, on the "
    "training set and on held-out images."
)


@dataclass(frozen=True)
class DemoRun:
    """What the demo produced.

    Attributes:
        snapshots: Everything measured.
        claims: What was claimed, whether it held, and the numbers.
        page: Where the report was written.
    """

    snapshots: list[Snapshot]
    claims: list[dict[str, Any]]
    page: Path


def configured(seed: int, epochs: int | None = None) -> recipe.DemoConfig:
    """The demo's settings, with the defaults for what is None."""
    given = {"seed": seed} if epochs is None else {"seed": seed, "epochs": epochs}
    return recipe.DemoConfig(**given)


def run_demo(
    out: str | Path,
    config: recipe.DemoConfig | None = None,
    on_epoch: Callable[[EpochEnd], None] = lambda end: None,
) -> DemoRun:
    """Train the demo's network, measure it, and write its run folder.

    Args:
        out: Folder for config.yaml, metrics.jsonl, snapshots.jsonl, claims.json, report.html.
        config: Settings; the defaults take under two minutes on two cores.
        on_epoch: Called after every epoch.

    Raises:
        InputError: Before any training, if the folder cannot be written or another process writes
            to it.
    """
    config = config or recipe.DemoConfig()
    folder = RunFolder(out)
    settings = config.model_dump()
    with folder.writing_alone():
        folder.save_config(settings)
        snapshots = recipe.run(config, on_epoch)
        claims = recipe.claims(snapshots)
        folder.save_snapshots(snapshots)
        folder.save_claims(claims)
        page = folder.save_page(run_page(TITLE, snapshots, claims, settings, LEAD))
    return DemoRun(snapshots, claims, page)
