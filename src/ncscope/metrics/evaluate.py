"""Evaluation of the table of metrics on one layer: values, spectra and notes."""

import difflib
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal

from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.powers import times_power_or_nan
from ncscope.math.symmetric import spectrum_of
from ncscope.metrics.class_columns import GROUP
from ncscope.metrics.discriminants import full_rank, snr_singular_values
from ncscope.metrics.information import Entropies
from ncscope.metrics.metric import Metric
from ncscope.metrics.registry import GROUPS, METRICS
from ncscope.metrics.reliability import error_of_ratio
from ncscope.metrics.sources import Sources
from ncscope.stats.options import Statistic

KEY = "key:"
"""Prefix by which a key among groups is a single metric, also if a group has its name."""


def select(groups: Iterable[str] | None) -> list[Metric]:
    """Return the rows of the table in the given groups; without groups, all rows.

    Args:
        groups: Names of groups, or keys of single metrics, also as ``"key:..."``. ``"nc1"`` is the
            group, and ``"key:nc1"`` the metric of this name alone.

    Raises:
        InputError: If there is neither a group nor a metric of a name.
    """
    if groups is None:
        return list(METRICS.values())
    wanted = {groups} if isinstance(groups, str) else set(groups)
    plain = {key: row for row in METRICS.values() for key in (row.key, *row.aliases)}
    single = {prefix + key: row for prefix in ("", KEY) for key, row in plain.items()}
    unknown = sorted(map(str, wanted - set(GROUPS) - set(single)))
    if unknown:
        names = list(dict.fromkeys([*GROUPS, *plain]))
        near = difflib.get_close_matches(unknown[0].removeprefix(KEY), names, n=3)
        if unknown[0].startswith(KEY):
            near = [KEY + name if name in plain else name for name in near]
        fix = f"for {unknown[0]!r} pass {' or '.join(near)}" if near else "drop or correct them"
        expected = f"groups among {GROUPS}, or keys of metrics"
        raise InputError(expected=expected, found=str(unknown), fix=fix)
    named = {single[key].key for key in wanted - set(GROUPS)}
    return [row for row in METRICS.values() if row.key in named or wanted & {row.group, *row.also}]


def wants_spectra(groups: Collection[str] | None) -> bool:
    """Return whether the groups include the spectra."""
    return groups is None or "spectra" in groups


LEFT_OUT = (
    "mir, hdr and their parts are left out: at this size they take 10 seconds to minutes; "
    "ask for the group 'information'"
)
"""Note where the entropies were not asked for and are not computed."""


@dataclass(frozen=True)
class Needs:
    """Statistics that some groups of metrics need.

    Attributes:
        statistics: Optional statistics of the first pass.
        decisions: The second pass counts decisions if True.
        hits: The samples that the classifier assigns to their class are counted if True: by the
            logits of the first pass, or as decisions.
        information: The second pass accumulates second moments of directions if True.
        ood: The mean of OOD samples is used if there are any.
        scores: The second pass scores the samples if there are OOD samples to compare with.
    """

    statistics: frozenset[Statistic]
    decisions: bool
    hits: bool
    information: bool
    ood: bool
    scores: bool


def needs_of(groups: Collection[str] | None, has_head: bool) -> Needs:
    """Return the statistics that the groups need, with or without a classifier."""
    rows = [row for row in select(groups) if has_head or "head" not in row.needs]
    needs = frozenset[str]().union(*(row.needs for row in rows))
    gather: set[Statistic] = set()
    if "scatter" in needs or wants_spectra(groups):
        gather.add("scatter")
    if "directions" in needs:
        gather.add("directions")
    by_class = groups is not None and GROUP in groups
    return Needs(
        statistics=frozenset(gather),
        decisions="decisions" in needs or by_class,
        hits="hits" in needs or (by_class and has_head),
        information="information" in needs,
        ood="ood" in needs,
        scores="scores" in needs,
    )


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
    rows = [row for row in select(groups) if _computable(row, sources)]
    notes = []
    if groups is None:
        notes += _left_out([row for row in rows if sources.stats.k > row.most_classes])
        rows = [row for row in rows if sources.stats.k <= row.most_classes]
    values = {
        row.key: _shown(row, times_power_or_nan(float(row.compute(sources)), row.degree * unit))
        for row in rows
    }
    if any("scatter" in row.needs and row.needs_classes for row in rows):
        notes += _rank_notes(sources)
    if any(row.group == "spectra" for row in rows):
        fitted = not math.isnan(values.get("alpha_req", math.nan))
        notes.append(_spectrum_note(sources, fitted=fitted))
    if any("information" in row.needs for row in rows):
        notes += _information_notes(sources)
    elif groups is None and {"head", "decisions"} <= sources.gathered:
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


def _computable(row: Metric, sources: Sources) -> bool:
    """Return whether all that a metric needs is there."""
    return row.needs <= sources.gathered and (sources.stats.labelled or not row.needs_classes)


def check_unlabelled(groups: Collection[str]) -> None:
    """Refuse groups of metrics that compare classes, for samples without labels.

    Args:
        groups: Names of groups, or keys of single metrics.

    Raises:
        InputError: If all metrics of a group need classes.
    """
    given = [groups] if isinstance(groups, str) else list(groups)
    refused = [name for name in given if all(row.needs_classes for row in select([name]))]
    if refused:
        raise InputError(
            expected="groups of metrics that need no labels: 'spectra'",
            found=", ".join(map(repr, refused)),
            fix="pass labels, or ask for 'spectra'",
        )


def _shown(row: Metric, value: float) -> float:
    """Return the value, or NaN in place of an infinity that the metric cannot have."""
    return value if math.isfinite(value) or (value == math.inf and row.infinite) else math.nan


def _left_out(rows: list[Metric]) -> list[str]:
    """Return notes on metrics that are left out with many classes, by their limit."""
    limits = sorted({row.most_classes for row in rows})
    named = [", ".join(row.key for row in rows if row.most_classes == limit) for limit in limits]
    return [
        f"left out with more than {limit:,} classes, ask for them by key: {keys}"
        for limit, keys in zip(limits, named, strict=True)
    ]


def spectra(sources: Sources) -> dict[str, Float[Tensor, " _m"]]:
    r"""Compute eigenvalues of $\Sigma_B$, $\Sigma_W$, $\Sigma_T$ and the SNR singular values.

    Source: VCI fig. 2; MSE definition 2. All values are descending. The eigenvalues of $\Sigma_B$
    are the $\min(d,K-1)$ that can differ from 0. An eigenvalue beyond the range of float64 is NaN.
    Without labels there is $\Sigma_T$ alone.
    """
    sources = sources.in_range
    stats = sources.stats
    total = {"total": sources.covariance.eigenvalues}
    squared = {**_between_and_within(sources), **total} if stats.labelled else total
    if stats.exponent:
        squared = {name: _in_unit(v, 2 * stats.exponent) for name, v in squared.items()}
    if not stats.labelled:
        return squared
    return {**squared, "snr_singular_values": snr_singular_values(stats, sources.discriminants)}


def _between_and_within(sources: Sources) -> dict[str, Float[Tensor, " _m"]]:
    scatter, stats = sources.discriminants, sources.stats
    assert stats.scatter is not None
    decomposed = scatter.within is stats.scatter and scatter.spread.scales is None
    return {
        # Sorted, because equal eigenvalues from lengths of columns differ by their rounding.
        "between": scatter.between.spectrum[: full_rank(stats)].sort(descending=True).values,
        "within": scatter.spread.eigen.spectrum if decomposed else spectrum_of(stats.scatter),
    }


def _in_unit(values: Float[Tensor, " m"], exponent: int) -> Float[Tensor, " m"]:
    return values.new_tensor([times_power_or_nan(value, exponent) for value in values.tolist()])


def _rank_notes(sources: Sources) -> list[str]:
    """Return notes on the ranks of the pseudo-inverses and their cuts."""
    found, stats = sources.discriminants, sources.stats
    between, unit = found.between, 2 * stats.exponent
    notes = [
        f"between-class scatter: {between.rank} of {full_rank(stats)} directions kept, "
        f"eigenvalues above {_cut(between.cut, unit)}"
    ]
    if "canonical" not in vars(found):  # no metric inverted the total scatter
        return notes
    solved, scaled = found.canonical, found.scales is not None or found.spread.scales is not None
    return [
        *notes,
        f"total scatter: {solved.rank} of {stats.dim} directions kept, eigenvalues above "
        f"{_cut(found.spread.cut, unit)} within classes or {_cut(solved.cut, unit)} between "
        "them" + (", of features scaled to comparable deviations" if scaled else ""),
    ]


def _spectrum_note(sources: Sources, *, fitted: bool) -> str:
    """Return a note on the eigenvalues that count as positive, to which alpha_req is fitted.

    Args:
        sources: Statistics of the layer.
        fitted: True if alpha_req was computed and is defined.
    """
    found, unit = sources.covariance, 2 * sources.stats.exponent
    return (
        f"covariance: {found.rank} of {sources.stats.dim} eigenvalues are above "
        f"{_cut(found.cut, unit)}" + ("; alpha_req is fitted to these" if fitted else "")
    )


def _information_notes(sources: Sources) -> list[str]:
    """Return notes on the computation of the joint entropies and on rows without a direction."""
    found = sources.information
    assert found is not None
    both = {"mir": found.raw, "mir_centered": found.centred}
    notes = [f"{key}: {_how(e)}" for key, e in both.items() if not (e.zeros or e.zero_heads)]
    if found.raw.zero_heads:
        named = ", ".join(map(str, found.raw.zero_heads))
        notes.append(f"mir, hdr and entropy_weights: the heads of classes {named} are zero")
    for key, entropies in both.items():
        if entropies.zeros:
            rows = ", ".join(map(str, entropies.zero_rows))
            more = ", ..." if entropies.zeros > len(entropies.zero_rows) else ""
            notes.append(f"{key}: {entropies.zeros} rows have no direction: {rows}{more}")
    return notes


def _how(entropies: Entropies) -> str:
    joint = entropies.joint
    if joint.probes == 0:
        return f"joint entropy exact, from a side of {joint.size}"
    return (
        f"joint entropy estimated to a standard error of {joint.standard_error:.2g} of "
        f"{joint.mean:.4g} nats ({joint.probes} probes, {joint.depth} Lanczos steps), "
        f"{error_of_ratio(entropies):.1g} in the ratio"
    )


def _cut(value: float, exponent: int) -> str:
    """Write a cut in the unit of the given features; only a Decimal can hold any power of two."""
    return f"{Decimal(value) * Decimal(2) ** exponent if exponent else value:.1e}"
