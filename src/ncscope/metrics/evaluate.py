"""Evaluation of the table of metrics on one layer: values, spectra and notes."""

import difflib
import math
from collections.abc import Collection, Iterable
from decimal import Decimal

from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.powers import times_power_or_nan
from ncscope.math.symmetric import spectrum_of
from ncscope.metrics.discriminants import full_rank, snr_singular_values
from ncscope.metrics.information import Entropies
from ncscope.metrics.metric import Metric
from ncscope.metrics.names import KEY, PER_CLASS, refuse_unknown
from ncscope.metrics.registry import BY_NAME, GROUPS, METRICS
from ncscope.metrics.reliability import error_of_ratio
from ncscope.metrics.sources import Sources


def select(groups: Iterable[str] | None) -> list[Metric]:
    """Return the metrics in the given groups; without groups, all but those on request.

    Args:
        groups: Names of groups, or keys of single metrics, also as ``"key:..."``. ``"nc1"`` is the
            group, and ``"key:nc1"`` the metric of this name alone.

    Raises:
        InputError: If there is neither a group nor a metric of a name.
    """
    if groups is None:
        return [row for row in METRICS.values() if not row.on_request]
    wanted = {groups} if isinstance(groups, str) else set(groups)
    refuse_unknown(wanted)
    by_key = {BY_NAME[key.removeprefix(KEY)].key for key in wanted - set(GROUPS)}
    return [
        row
        for row in METRICS.values()
        if row.key in by_key or (not row.on_request and wanted & {row.group, *row.also})
    ]


def find_metric(key: str) -> Metric:
    """Return the metric of a key or alias, also as ``"key:..."``.

    Args:
        key: Key of a single metric.

    Raises:
        InputError: If no metric has the key; the message names the closest keys.

    Example:
        >>> find_metric("pfc1").key
        'nc1_quotient'
    """
    name = key.removeprefix(KEY)
    if name in BY_NAME:
        return BY_NAME[name]
    near = difflib.get_close_matches(name, list(BY_NAME), n=3)
    fix = f"write {' or '.join(near)}" if near else "write a key of the page on metrics"
    raise InputError(expected="the key of a metric", found=repr(key), fix=fix)


def wants_spectra(groups: Collection[str] | None) -> bool:
    """Return whether the groups include the spectra."""
    return groups is None or "spectra" in groups


LEFT_OUT = (
    "mir, hdr and their parts are left out: at this size they take 10 seconds to minutes; "
    "ask for the group 'information'"
)
"""Note where the entropies were not asked for and are not computed."""


def find_needs(groups: Collection[str] | None, has_head: bool) -> frozenset[str]:
    """Return what the groups need, by the words of `Metric.needs`, with or without a classifier."""
    rows = [row for row in select(groups) if has_head or "head" not in row.needs]
    needs = frozenset[str]().union(*(row.needs for row in rows))
    if groups is not None and PER_CLASS in groups:
        needs |= {"decisions", "hits"} if has_head else {"decisions"}
    return needs


def evaluate(
    sources: Sources, groups: Collection[str] | None = None
) -> tuple[dict[str, float], list[str]]:
    """Compute every metric of the groups whose statistics are there, and notes on them.

    Args:
        sources: Statistics of one layer.
        groups: Names of groups, by default all.

    Returns:
        Values by key, aliases included; and notes on ranks and cuts, and the reason of each NaN.
    """
    sources = sources.in_range
    unit = sources.stats.exponent
    rows = [
        row
        for row in select(groups)
        if row.needs <= sources.available and (sources.stats.has_labels or not row.needs_classes)
    ]
    notes: list[str] = []
    if groups is None:
        left_out = [row for row in rows if sources.stats.k > row.most_classes]
        for limit in sorted({row.most_classes for row in left_out}):
            keys = ", ".join(row.key for row in left_out if row.most_classes == limit)
            notes.append(f"left out with more than {limit:,} classes, ask for them by key: {keys}")
        rows = [row for row in rows if sources.stats.k <= row.most_classes]
    values = {
        row.key: times_power_or_nan(float(row.compute(sources)), row.degree * unit) for row in rows
    }
    for row in rows:
        # An infinity that the metric cannot have is a value beyond the range of float64. Every NaN
        # is the one object `math.nan`, so that dictionaries of equal reports are equal.
        value = values[row.key]
        if not (math.isfinite(value) or (value == math.inf and row.infinite)):
            values[row.key] = math.nan
    if sources.stats.k == 2:
        notes += _fix_for_two_classes_(values, rows)
    if any("scatter" in row.needs and row.needs_classes for row in rows):
        notes += _note_ranks(sources)
    if any("covariance" in row.reads for row in rows):
        covariance = sources.covariance
        fitted = not math.isnan(values.get("alpha_req", math.nan))
        notes.append(
            f"covariance: {covariance.rank} of {sources.stats.dim} eigenvalues are above "
            f"{_format_cut(covariance.cut, 2 * unit)}"
            + ("; alpha_req is fitted to these" if fitted else "")
        )
    if any("information" in row.needs for row in rows):
        notes += _note_joint_entropies(sources)
    elif groups is None and {"head", "decisions"} <= sources.available:
        notes.append(LEFT_OUT)
    if sources.ood is not None and any("scores" in row.needs for row in rows):
        notes += sources.ood.notes
    endless = [row for row in rows if values[row.key] == math.inf]
    notes += [f"{row.key} is infinite: {row.infinite}" for row in endless]
    undefined = [row for row in rows if math.isnan(values[row.key])]
    notes += [
        f"{', '.join([row.key, *row.aliases])} is undefined: "
        f"{row.undefined or 'degenerate features'}"
        for row in undefined
    ]
    aliases = {alias: values[row.key] for row in rows for alias in row.aliases}
    return values | aliases, notes


def refuse_class_metrics(groups: Collection[str]) -> None:
    """Refuse groups of metrics that compare classes, for samples without labels.

    Args:
        groups: Names of groups, or keys of single metrics.

    Raises:
        InputError: If all metrics of a group need classes.
    """
    names = [groups] if isinstance(groups, str) else list(groups)
    refused = [name for name in names if all(row.needs_classes for row in select([name]))]
    if refused:
        raise InputError(
            expected="groups of metrics that need no labels: 'spectra'",
            found=", ".join(map(repr, refused)),
            fix="pass labels, or ask for 'spectra'",
        )


def _fix_for_two_classes_(values: dict[str, float], rows: list[Metric]) -> list[str]:
    """Set metrics that any two classes fix to their value, without the rounding, and note which."""
    fixed = {
        row.key: row.for_two_classes
        for row in rows
        if row.for_two_classes is not None and not math.isnan(values[row.key])
    }
    values |= fixed
    names = [name for row in rows if row.key in fixed for name in (row.key, *row.aliases)]
    if not names:
        return []
    return [f"two classes fix {', '.join(names)}, whatever the network is: no sign of collapse"]


def spectra(sources: Sources) -> dict[str, Float[Tensor, " _m"]]:
    r"""Compute eigenvalues of $\Sigma_B$, $\Sigma_W$, $\Sigma_T$ and the SNR singular values.

    Source: VCI fig. 2; MSE definition 2. All values are descending. The eigenvalues of $\Sigma_B$
    are the $\min(d,K-1)$ that can differ from 0. An eigenvalue beyond the range of float64 is NaN.
    Without labels there is $\Sigma_T$ alone.
    """
    sources = sources.in_range
    stats = sources.stats
    squared = {}
    if stats.has_labels:
        scatter = sources.discriminants
        assert stats.scatter is not None
        decomposed = scatter.within is stats.scatter and scatter.spread.scales is None
        squared = {
            # Sorted, because equal eigenvalues from lengths of columns differ by their rounding.
            "between": scatter.between.spectrum[: full_rank(stats)].sort(descending=True).values,
            "within": scatter.spread.eigen.spectrum if decomposed else spectrum_of(stats.scatter),
        }
    squared["total"] = sources.covariance.eigenvalues
    if stats.exponent:
        for name, values in squared.items():
            in_unit = [times_power_or_nan(value, 2 * stats.exponent) for value in values.tolist()]
            squared[name] = values.new_tensor(in_unit)
    if not stats.has_labels:
        return squared
    return {**squared, "snr_singular_values": snr_singular_values(stats, sources.discriminants)}


def _note_ranks(sources: Sources) -> list[str]:
    """Return notes on the ranks of the pseudo-inverses and their cuts."""
    scatter, stats = sources.discriminants, sources.stats
    between, unit = scatter.between, 2 * stats.exponent
    notes = [
        f"between-class scatter: {between.rank} of {full_rank(stats)} directions kept, "
        f"eigenvalues above {_format_cut(between.cut, unit)}"
    ]
    # Reading the property would compute it, which is slow, for a note on what no metric used.
    if "canonical" not in vars(scatter):
        return notes
    solved = scatter.canonical
    scaled = scatter.scales is not None or scatter.spread.scales is not None
    return [
        *notes,
        f"total scatter: {solved.rank} of {stats.dim} directions kept, eigenvalues above "
        f"{_format_cut(scatter.spread.cut, unit)} within classes or "
        f"{_format_cut(solved.cut, unit)} between them"
        + (", of features scaled to comparable deviations" if scaled else ""),
    ]


def _note_joint_entropies(sources: Sources) -> list[str]:
    """Return notes on the computation of the joint entropies and on rows without a direction."""
    information = sources.information
    assert information is not None
    both = {"mir": information.raw, "mir_centered": information.centred}
    notes = [
        f"{key}: {_describe_joint_entropy(entropies)}"
        for key, entropies in both.items()
        if not (entropies.zeros or entropies.zero_heads)
    ]
    if information.raw.zero_heads:
        classes = ", ".join(map(str, information.raw.zero_heads))
        notes.append(f"mir, hdr and entropy_weights: the heads of classes {classes} are zero")
    for key, entropies in both.items():
        if entropies.zeros:
            rows = ", ".join(map(str, entropies.zero_rows))
            more = ", ..." if entropies.zeros > len(entropies.zero_rows) else ""
            notes.append(f"{key}: {entropies.zeros} rows have no direction: {rows}{more}")
    return notes


def _describe_joint_entropy(entropies: Entropies) -> str:
    joint = entropies.joint
    if joint.probes == 0:
        return f"joint entropy exact, from a side of {joint.size}"
    return (
        f"joint entropy estimated to a standard error of {joint.standard_error:.2g} of "
        f"{joint.mean:.4g} nats ({joint.probes} probes, {joint.depth} Lanczos steps), "
        f"{error_of_ratio(entropies):.1g} in the ratio"
    )


def _format_cut(value: float, exponent: int) -> str:
    """Write a cut in the unit of the given features; only a Decimal can hold any power of two."""
    return f"{Decimal(value) * Decimal(2) ** exponent if exponent else value:.1e}"
