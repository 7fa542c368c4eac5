"""Terminal phase of training, past zero error, and claims about it over networks and seeds.

As in Papyan, Han and Donoho 2020, the training error counts as zero from 99.9 % accuracy on.

A claim about networks is judged for each data set and kind of network by the 95 % interval over its
seeds. It is held if it is held for two thirds of them, unless it states another number.
"""

import math
from collections.abc import Mapping, Sequence

from ncscope.lab.evidence.judging import Region, combined, decided, judged
from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.training import MSETraining, by_network
from ncscope.lab.papers.trained import ends, history, interpolation_epoch, ratio
from ncscope.report.claims import Claim, Scale

Change = tuple[float, float] | None
"""A metric at the first measured epoch of zero training error, and at the end."""

ZERO_ERROR = 0.999
"""Training accuracy from which on the error counts as zero."""
COLLAPSE = 2.0
"""Least factor by which variability falls past zero error if it collapses."""
FACTOR = 1.1
"""Least factor between two values of which one is said to be larger, or to have fallen."""


def most(count: int) -> int:
    """Return the number of networks that "most networks" requires: two thirds.

    Example:
        >>> most(3), most(5), most(13)
        (2, 4, 9)
    """
    return -(-2 * count // 3)


def zero_epoch(rows: Sequence[Observation], name: str) -> float | None:
    """Return the first measured epoch of zero training error of a run; None without one."""
    return interpolation_epoch(history(rows, name), ZERO_ERROR)


def terminal_phase(
    rows: Sequence[Observation], name: str, split: str = "train"
) -> list[Observation]:
    """Select the rows of a split from the first measured epoch of zero training error on.

    Args:
        rows: Rows of a study.
        name: Name of the run.
        split: Split of the rows.

    Returns:
        Selected rows; none for a run with training errors at every measured epoch.
    """
    since = zero_epoch(rows, name)
    if since is None:
        return []
    return [row for row in history(rows, name, split) if row.epoch >= since]


def changes(
    rows: Sequence[Observation], names: Sequence[str], key: str, split: str = "train"
) -> dict[str, Change]:
    """Return each run's metric at zero training error and at the end; None if never reached.

    A run that reaches zero error only at its last measurement has no terminal phase.
    """
    paths = {name: terminal_phase(rows, name, split) for name in names}
    return {name: ends(path, key) if len(path) > 1 else None for name, path in paths.items()}


def kept(change: Change) -> float:
    """Return the value at the end over that at zero error; NaN without a terminal phase."""
    return math.nan if change is None else ratio(change[1], change[0])


def in_words(change: Change, scale: str = ".3g") -> str:
    """Write a metric at zero training error and at the end as text."""
    if change is None:
        return "never at zero error"
    return f"{change[0]:{scale}} to {change[1]:{scale}}"


def last(
    rows: Sequence[Observation], names: Sequence[str], key: str, split: str
) -> dict[str, float]:
    """Return each run's last value of a metric."""
    return {name: ends(history(rows, name, split), key)[1] for name in names}


def over_networks(
    text: str,
    config: MSETraining,
    values: Mapping[str, float],
    *,
    source: str,
    region: Region,
    scale: Scale = "plain",
    step: float = 0.0,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    enough: int | None = None,
    told: Mapping[str, str] | None = None,
) -> Claim:
    """Judge a claim for each network on its seeds, and count the networks for which it is held.

    Args:
        text: Text of the claim.
        config: Settings of the recipe.
        values: Value of each run, by name.
        source: Owner of the claim, see `Claim`.
        region: Values that the claim states.
        scale: Scale of the values, see `mean_interval`.
        step: Spacing of the possible values, see `mean_interval`.
        bounds: Least and greatest possible value.
        enough: Number of networks for which the claim must be held; default `most`.
        told: Numbers of each run in words, by name.
    """
    words = by_network(config, {} if told is None else told)
    claims = {
        network: judged(
            text,
            source=source,
            values=numbers,
            region=region,
            scale=scale,
            step=step,
            bounds=bounds,
            evidence=", ".join(words.get(network, [])),
        )
        for network, numbers in by_network(config, values).items()
    }
    needed = max(1, most(len(claims))) if enough is None else enough
    return combined(text, source=source, claims=claims, enough=needed)


def zero_error(rows: Sequence[Observation], names: Sequence[str]) -> Claim:
    """Test that training goes past zero error, on which the other claims depend."""
    paths = {name: terminal_phase(rows, name) for name in names}
    late = [name for name, path in paths.items() if len(path) < 2]
    measured = all(history(rows, name) for name in names)
    epochs = "; ".join(
        f"{name}: {f'epoch {path[0].epoch}' if path else 'never'}" for name, path in paths.items()
    )
    return decided(
        "every network has zero training error before the last epoch",
        source="ours",
        held=not late if measured else None,
        evidence=f"in {len(names) - len(late)} of {len(names)} runs; first measured; {epochs}",
    )
