"""Claims of PFC sections II-C, III and IV-A on trained residual networks, over seeds.

Layers are those of one dimension. An order of layers is deterministic in a run, and must be there
in the runs of all seeds; everything else is judged on one value for each seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncscope.lab.evidence.judging import SHARE, above, below, combined, judged
from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.pfc.order import KEYS, comparable, last_comparable, order_over_training
from ncscope.lab.papers.pfc.paths import SAMPLE, WHOLE
from ncscope.lab.papers.trained import (
    average,
    ends,
    geodesic,
    history,
    interpolation,
    interpolation_epoch,
    layers,
    on_runs,
    ratio,
    values,
)
from ncscope.metrics.layerwise import order_breaks
from ncscope.report.claims import Claim
from ncscope.report.curves import geodesic_curves

HALF = 0.5
"""Largest share that is left of a deviation which training removes; the paper states no number."""
STRAIGHT = 0.95
"""Least straightness of a path that counts as a straight line; the paper states no number."""
TENTH = 0.1
"""Largest PFC1 of collapsed features, as a share of PFC1 of the first layer."""
EQUAL = 2.0
"""Largest factor between the blocks' ratios of energy to weights that counts as a constant."""
FACTOR = 1.1
"""Least factor by which a metric falls."""


@dataclass(frozen=True)
class Network:
    """Runs of one network that differ in the seed, and their results.

    Attributes:
        name: Name of the network.
        runs: Name of the run of each seed.
        controls: Names of the runs without weight decay, in the order of ``runs``; may be empty.
        rows: Results of the study.
    """

    name: str
    runs: Sequence[str]
    controls: Sequence[str]
    rows: Results


def claims_on(network: Network) -> list[Claim]:
    """Test all claims on one network.

    Args:
        network: Network and the results of its runs.
    """
    return [
        _straightens(network),
        _straight(network),
        *([_straighter(network)] if network.controls else []),
        _theorem_1(network),
        _one_constant(network),
        *(_order_at_the_end(network, key) for key in KEYS),
        *(_order_over_training(network, key) for key in KEYS),
        *(_order_along_the_line(network, key) for key in ("pfc2", "pfc3")),
        *(_line_against_layers(network, key) for key in ("pfc1", "pfc2")),
        *(_past_zero_error(network, key) for key in ("pfc1", "pfc2")),
    ]


def _straightens(network: Network) -> Claim:
    paths = [straightness(network.rows, run) for run in network.runs]
    return judged(
        f"{network.name}: training makes paths straighter: it at least halves the difference "
        "between their straightness and 1, the straightness of a straight line",
        source="PFC, assumption 1",
        values=[ratio(1 - end, 1 - start) for start, end in paths],
        region=below(HALF),
        scale="ratio",
        evidence=f"straightness {_told(paths)}",
    )


def _straight(network: Network) -> Claim:
    return judged(
        f"{network.name}: at the end paths are straight lines: straightness is above {STRAIGHT}",
        source="PFC, assumption 1",
        values=[straightness(network.rows, run)[1] for run in network.runs],
        region=above(STRAIGHT),
        bounds=SHARE,
    )


def _straighter(network: Network) -> Claim:
    pairs = [
        [straightness(network.rows, run)[1] for run in pair]
        for pair in zip(network.runs, network.controls, strict=True)
    ]
    return judged(
        f"{network.name}: paths are straighter with weight decay than without",
        source="PFC, assumption 1",
        values=[decayed - control for decayed, control in pairs],
        region=above(0),
        of="pairs of runs",
        evidence="straightness with and without decay "
        + ", ".join(f"{decayed:.3g} and {control:.3g}" for decayed, control in pairs),
    )


def _theorem_1(network: Network) -> Claim:
    """Test both premises, because class means agree in an untrained residual network too."""
    wholes = {run: history(network.rows, run, SAMPLE, WHOLE) for run in network.runs}
    cosines = {run: values(path, "alignment_cosine") for run, path in wholes.items()}
    source = "PFC, theorem 1"
    aligned = on_runs(
        "class means agree",
        {
            run: (_all_at_least(course, 0.0), f"least cosine {min(course, default=math.nan):.3g}")
            for run, course in cosines.items()
        },
        source=source,
    )
    collapsed = judged(
        "the last layer is collapsed",
        source=source,
        values=[ends(path, "remaining_pfc1")[1] for path in wholes.values()],
        region=below(TENTH),
        scale="ratio",
        evidence="PFC1 of the last layer over PFC1 of the first",
    )
    return combined(
        f"{network.name}: the premises of theorem 1 are met: class means of the first and the last "
        "layer have a cosine of at least 0 at every measured epoch, and the last layer ends with "
        "less than a tenth of the first layer's PFC1",
        source=source,
        claims={"class means": aligned, "collapse": collapsed},
        of="premises",
    )


def _all_at_least(course: Sequence[float], border: float) -> bool | None:
    if not course or not all(map(math.isfinite, course)):
        return None
    return min(course) >= border


def _one_constant(network: Network) -> Claim:
    spreads, told = [], []
    for run in network.runs:
        constants = block_constants(network.rows, run)
        least, most = min(constants, default=math.nan), max(constants, default=math.nan)
        spreads.append(ratio(most, least))
        told.append(f"{least:.3g} to {most:.3g}")
    return judged(
        f"{network.name}: at the end the ratio of a block's energy to its squared weights is the "
        f"same in all blocks, up to a factor of {EQUAL:g}",
        source="ours",  # section III-C derives it for symmetric isotropic inputs of mean zero
        values=spreads,
        region=below(EQUAL),
        scale="ratio",
        evidence=f"largest over smallest ratio; ratios {', '.join(told)}",
    )


def _order_at_the_end(network: Network, key: str) -> Claim:
    compared = {run: comparable(network.rows, run) for run in network.runs}
    return on_runs(
        f"{network.name}: at the end {_goes(key)} at every layer before the effective depth",
        {
            run: _ordered(values(path, key), KEYS[key], [row.layer for row in path])
            for run, path in compared.items()
        },
        source="PFC, conjecture 1 and figure 3",
    )


def _order_along_the_line(network: Network, key: str) -> Claim:
    verdicts = {}
    for run in network.runs:
        line = geodesic(network.rows, run)
        curve = [] if line is None else geodesic_curves(line)[key]
        names = [] if line is None else [f"t = {t:.2f}" for t in line.t]
        verdicts[run] = _ordered(curve, KEYS[key], names)
    return on_runs(
        f"{network.name}: at the end {_goes(key)} along the straight line from the first layer's "
        "features to the last layer's",
        verdicts,
        source="PFC, figure 3",
    )


def _ordered(course: Sequence[float], falls: bool, names: Sequence[str]) -> tuple[bool | None, str]:
    """Test that a metric falls (or rises) at every step; report its ends and first exceptions."""
    if len(course) < 2 or not all(map(math.isfinite, course)):
        return None, "fewer than two values were measured"
    breaks = order_breaks(course, falls)
    wrong = [f"the wrong way by {by:.2g} at {names[at]}" for at, by in breaks]
    steps = f"{len(course) - 1} steps from {course[0]:.3g} at {names[0]} to {course[-1]:.3g}"
    return not breaks, ", ".join([f"{steps} at {names[-1]}", *wrong[:3]])


def _order_over_training(network: Network, key: str) -> Claim:
    pairs = [breaking_shares(network.rows, run, key) for run in network.runs]
    paths = [order_over_training(network.rows, run) for run in network.runs]
    steps = [at.steps for path in paths for at in path[:1]]
    return judged(
        f"{network.name}: past zero training error {_goes(key)} at more layers: the share of steps "
        "in the wrong direction is less than half of that before training",
        source="PFC, conjecture 1 and figure 2",
        values=[later - HALF * start for start, later in pairs],
        region=below(0),
        step=HALF / max([1, *steps]),
        bounds=(-HALF, 1.0),
        evidence=f"later share minus half of the first; shares {_told(pairs)}",
    )


def _line_against_layers(network: Network, key: str) -> Claim:
    """Compare with an interpolation, which is as good as the line where layers hardly differ."""
    errors = [errors_between(network.rows, run, key) for run in network.runs]
    return judged(
        f"{network.name}: at the end the straight line of the features predicts {key.upper()} "
        "between the first and the last layer better than the geometric interpolation of their "
        f"{key.upper()} does",
        source="PFC, figure 3",
        values=[ratio(*pair) for pair in errors],
        region=below(1),
        scale="ratio",
        evidence="root mean square error in the logarithm, of the line and of the interpolation, "
        + ", ".join(f"{line:.3g} and {between:.3g}" for line, between in errors),
    )


def _past_zero_error(network: Network, key: str) -> Claim:
    pairs = []
    for run in network.runs:
        reached = interpolation(history(network.rows, run))
        path = last_comparable(network.rows, run)
        then = [row for row in path if reached is not None and row.epoch == reached.epoch]
        pairs.append((ends(then, key)[0], ends(path, key)[1]))
    return judged(
        f"{network.name}: past zero training error {key.upper()} of the last layer falls by a "
        f"factor of {FACTOR}",
        source="PFC, conjecture 1",
        values=[ratio(end, then) for then, end in pairs],
        region=below(1 / FACTOR),
        scale="ratio",
        evidence=f"{key.upper()} {_told(pairs)}",
    )


def straightness(rows: Sequence[Observation], run: str) -> tuple[float, float]:
    """Return the straightness of a run's paths before training and at the end."""
    return ends(last_comparable(rows, run), "straightness")


def block_constants(rows: Sequence[Observation], run: str) -> list[float]:
    """Return the energy of every block over its squared weights, at the last epoch."""
    sample = [row for row in rows if row.part == run and row.split == SAMPLE]
    last = [row for row in sample if row.epoch == sample[-1].epoch and row.layer != WHOLE]
    return values(last, "energy_constant")


def breaking_shares(rows: Sequence[Observation], run: str, key: str) -> tuple[float, float]:
    """Return the share of steps in the wrong direction before training and past zero error.

    Args:
        rows: Rows of the study.
        run: Name of the run.
        key: Key of the metric.

    Returns:
        The share at the first measured epoch, and the mean over those from zero training error on;
        NaN if there is none, or if a metric is not finite.
    """
    when = interpolation_epoch(history(rows, run))
    course = order_over_training(rows, run)
    shares = {at.epoch: ratio(at.breaks[key], at.steps) for at in course}
    if when is None or any(math.isnan(value) for value in _measured(rows, run, key)):
        return math.nan, math.nan
    return course[0].breaks[key] / course[0].steps if course[0].steps else math.nan, average(
        [share for epoch, share in shares.items() if epoch >= when and math.isfinite(share)]
    )


def _measured(rows: Sequence[Observation], run: str, key: str) -> list[float]:
    return values([r for r in rows if r.part == run and "relative_position" in r], key)


def errors_between(rows: Results, run: str, key: str) -> tuple[float, float]:
    """Compute errors of two predictions of a metric between the first and the last layer.

    Args:
        rows: Results of the study.
        run: Name of the run.
        key: Key of a positive metric.

    Returns:
        Root mean square errors in the logarithm at the last epoch: of the straight line of the
        features at the layers' relative positions, and of the geometric interpolation of the
        metric; NaN without layers between, or if a value is not positive.
    """
    chain = [row for row in layers(rows, run) if "relative_position" in row]
    line, measured = geodesic(rows, run), values(chain, key)
    positions = values(chain, "relative_position")
    curve = [] if line is None else geodesic_curves(line)[key]
    known = all(map(math.isfinite, [*positions, *measured, *curve]))
    if line is None or len(chain) < 3 or not known or min([*measured, *curve]) <= 0:
        return math.nan, math.nan
    course = np.log(measured)
    predicted = np.interp(positions, line.t, np.log(curve))
    between = course[0] + np.array(positions) * (course[-1] - course[0])
    first, second = (
        float(np.sqrt(np.mean((each - course)[1:-1] ** 2))) for each in (predicted, between)
    )
    return first, second


def _goes(key: str) -> str:
    return f"{key.upper()} {'falls' if KEYS[key] else 'rises'}"


def _told(pairs: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"{first:.3g} to {last:.3g}" for first, last in pairs)
