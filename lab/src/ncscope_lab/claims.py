"""The claim table of an experiment, and its judge.

A claim names a quantity of one run, the region in which the quantity lies if the claim is true, and
a rule: how the runs are counted. The judge turns the table and the results into findings.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, isnan
from typing import Any, Literal

from ncscope_lab.findings import Finding, Verdict
from ncscope_lab.intervals import (
    Scale,
    mean_interval,
    seeds_to_decide,
    share_interval,
    smallest_effect,
    trials_to_decide,
)
from ncscope_lab.quantities import (
    AnyQuantity,
    Key,
    Quantity,
    Runs,
    average,
    average_by_scale,
    read_field,
)

MOST = 0.5
"""Share of the trials that "most" must exceed."""

_MEANS: Mapping[Scale, str] = {
    "plain": "mean",
    "ratio": "geometric mean",
    "correlation": "mean by Fisher's z",
}
_OFF_SCALE: Mapping[Scale, str] = {
    "plain": "",
    "ratio": "a ratio that is not positive",
    "correlation": "a correlation of exactly 1 or -1",
}


@dataclass(frozen=True)
class Region:
    """The open interval of values that a claim states.

    Attributes:
        low: Lower border; minus infinity if there is none.
        high: Upper border; infinity if there is none.
    """

    low: float = -inf
    high: float = inf

    def verdict(self, low: float, high: float) -> Verdict:
        """Judge the interval from ``low`` to ``high``: undecided if it contains a border."""
        if any(low <= border <= high for border in (self.low, self.high)):
            return "undecided"
        return "held" if self.low < low and high < self.high else "not held"


def above(border: float) -> Region:
    """Return the region of a claim that a value is above a border."""
    return Region(low=border)


def below(border: float) -> Region:
    """Return the region of a claim that a value is below a border."""
    return Region(high=border)


def within(margin: float) -> Region:
    """Return the region of a claim that a value lies within a stated margin of 0."""
    return Region(-margin, margin)


def every(count: int) -> int:
    """Require the claim of all groups, and of at least one."""
    return max(1, count)


def two_thirds(count: int) -> int:
    """Require the claim of two thirds of the groups: "most networks".

    Example:
        >>> two_thirds(3), two_thirds(5), two_thirds(13)
        (2, 4, 9)
    """
    return max(1, -(-2 * count // 3))


def one(count: int) -> int:
    """Require the claim of one group."""
    return 1


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A row of a claim table.

    Attributes:
        text: One sentence that can be true or false.
        source: Owner of the claim: paper with section, figure or equation, or ``"ours"``.
        quantity: Number of one run, for example ``last("nc1")``; or several by name, such as those
            of two splits, for a claim that must hold of enough of them; a claim among these has a
            region and rule of its own.
        region: Values of the quantity for which the claim is true; or these values for each group
            by its name; or a function that returns them from all runs of the experiment, if other
            runs set the border.
        rule: ``"mean"``: the 95 % interval of the mean over the seeds lies in the region.
            ``"each"``: the value of every run lies in the region. ``"all"``: the same, but the
            evidence describes all runs together; for one run, or for very many. ``"share"``: more
            than half of the runs lie in the region, by the exact binomial interval of their share.
        scale: Scale of the mean: ``"plain"``, ``"ratio"`` or ``"correlation"``.
        step: Spacing of the possible values, see `mean_interval`; or a function that returns it
            from all runs of the experiment.
        bounds: Least and greatest possible value.
        where: Runs that the claim is about: values of their settings, a function that selects
            from the experiment's runs, or the name of one run; empty for all runs.
        per: Field of the settings, or function of a run, by which runs are grouped into claims of
            their own, whose texts begin with the name of the group.
        groups: Field or function by which the runs of one claim are grouped; the claim must hold in
            enough groups. None if all runs are one group; with several quantities, always None.
        enough: Number of groups or quantities of which the claim must hold, of their number.
        unit: Plural noun for the groups or quantities.
        over: Plural noun for the values of a group.
        average: Average the values of the runs that share this field, such as ``"seed"``, before
            the rule; None to keep one value a run.
        tell: Function that describes the runs of a group in numbers, for the evidence, where the
            judge's own description of the quantity and its parts does not do; by the rule
            ``"each"`` it describes every run.
        uncounted: Other quantities by name, judged alike for the evidence only.
        note: Function that describes other runs of the experiment, at the end of the evidence.
    """

    text: str
    source: str
    quantity: AnyQuantity | Mapping[str, "AnyQuantity | Claim"]
    region: Region | Mapping[str, Region] | Callable[[Runs], Region]
    rule: Literal["mean", "each", "all", "share"] = "mean"
    scale: Scale = "plain"
    step: float | Callable[[Runs], float] = 0.0
    bounds: tuple[float, float] = (-inf, inf)
    where: Mapping[str, Any] | Callable[[Runs], Runs] | str = field(default_factory=dict)
    per: Key | None = None
    groups: Key | None = None
    enough: Callable[[int], int] = every
    unit: str = "networks"
    over: str = "seeds"
    average: str | None = None
    tell: Callable[[Runs], str] | None = None
    uncounted: Mapping[str, "Claim"] = field(default_factory=dict)
    note: Callable[[Runs], str] | None = None


def judge(claims: Sequence[Claim], runs: Runs) -> list[Finding]:
    """Judge a claim table on the results of an experiment.

    Args:
        claims: The table.
        runs: Runs with their results.
    """
    findings = []
    for claim in claims:
        if isinstance(claim.where, str):
            chosen = Runs(run for run in runs if run.name == claim.where and run.rows)
        else:
            chosen = claim.where(runs) if callable(claim.where) else runs.where(**claim.where)
        if claim.per is None:
            findings.append(_judge_one(claim, chosen, runs))
            continue
        for name, group in chosen.group(claim.per).items():
            finding = _judge_one(claim, group, runs)
            findings.append(replace(finding, text=f"{name}: {finding.text}"))
    return findings


def _judge_one(claim: Claim, runs: Runs, experiment: Runs) -> Finding:
    region = claim.region(experiment) if callable(claim.region) else claim.region
    if callable(claim.step):
        claim = replace(claim, step=claim.step(experiment))
    findings: dict[str, Finding] | None = None
    if isinstance(claim.quantity, Mapping):
        assert isinstance(region, Region)
        findings = {
            name: _judge_one(each, runs, experiment)
            if isinstance(each, Claim)
            else _judge_group(replace(claim, quantity=each), runs, region)
            for name, each in claim.quantity.items()
        }
    elif claim.groups is not None:
        groups = runs.group(claim.groups)
        findings = {
            name: _judge_group(
                claim, group, region[name] if isinstance(region, Mapping) else region
            )
            for name, group in groups.items()
        }
    if findings is None:
        assert isinstance(region, Region)
        finding = _judge_group(claim, runs, region)
    else:
        finding = judge_groups(
            claim.text,
            source=claim.source,
            findings=findings,
            enough=claim.enough(len(findings)),
            of=claim.unit,
        )
    for name, other in claim.uncounted.items():
        beside = _judge_one(other, runs, experiment)
        words = f"not counted: on {name} {beside.verdict}, {beside.evidence}"
        uncounted = {**finding.uncounted, name: beside}
        finding = replace(_append(finding, words), uncounted=uncounted)
    if claim.note is not None:
        finding = _append(finding, claim.note(experiment))
    return finding


def _judge_group(claim: Claim, runs: Runs, region: Region) -> Finding:
    assert callable(claim.quantity)
    numbers = {run.name: claim.quantity(run) for run in runs}
    if claim.rule in ("each", "all"):
        return _judge_each(claim, runs, region, numbers)
    assert not callable(claim.step)
    words = _describe(claim, runs) if numbers else ""
    if claim.rule == "share":
        hits = [region.verdict(value, value) == "held" for value in numbers.values()]
        return judge_share(claim.text, source=claim.source, hits=hits, of=claim.over, more=words)
    if claim.average is not None:
        by_field: dict[Any, list[float]] = {}
        for run in runs:
            name = read_field(run.settings, claim.average)
            by_field.setdefault(name, []).append(numbers[run.name])
        numbers = {str(name): average(of_field) for name, of_field in by_field.items()}
    return judge_mean(
        claim.text,
        source=claim.source,
        values=list(numbers.values()),
        region=region,
        of=claim.over,
        scale=claim.scale,
        step=claim.step,
        bounds=claim.bounds,
        more=words,
    )


def _judge_each(claim: Claim, runs: Runs, region: Region, numbers: Mapping[str, float]) -> Finding:
    verdicts = [region.verdict(value, value) for value in numbers.values()]
    good, missing = verdicts.count("held"), sum(map(isnan, numbers.values()))
    needed = max(1, len(numbers))
    if claim.rule == "all" and numbers:
        evidence = _describe(claim, runs) or _write_range(numbers)
    else:
        lines = [
            f"{run.name}: {_describe(claim, Runs([run])) or f'{numbers[run.name]:.3g}'}"
            for run in runs
        ]
        count = f"in {good} of {len(numbers)} {claim.over}"
        evidence = f"{count}; {'; '.join(lines) or 'none to judge'}"
    unmeasured = claim.rule == "all" and not numbers
    is_open = unmeasured or good < needed <= good + missing
    held = None if is_open else good >= needed
    return decide(claim.text, source=claim.source, held=held, evidence=evidence)


def _describe(claim: Claim, runs: Runs) -> str:
    """Describe a quantity's parts; by a rule on single runs, or if it is missing, its value too."""
    if claim.tell is not None:
        return claim.tell(runs)
    if not isinstance(claim.quantity, Quantity):
        return ""
    quantity, words = claim.quantity, []
    missing = all(isnan(quantity(run)) for run in runs)
    if quantity.name and (claim.rule in ("each", "all") or (missing and not quantity.parts)):
        words.append(_write_average(quantity, runs, claim.scale))
    words += [_write_average(part, runs, claim.scale) for part in quantity.parts]
    suffix = " in the mean" if len(runs) > 1 and quantity.parts else ""
    return ", ".join(words) + suffix


def _write_average(quantity: Quantity, runs: Runs, scale: Scale) -> str:
    numbers = [quantity(run) for run in runs]
    if len(numbers) > 1 and not quantity.parts and not all(map(isnan, numbers)):
        return f"{quantity.name} {average_by_scale(numbers, scale):.3g}"
    return f"{quantity.name} {_write_range(dict(enumerate(numbers)))}"


def _write_range(numbers: Mapping[Any, float]) -> str:
    known = [value for value in numbers.values() if not isnan(value)]
    if not known:
        return "not measured"
    low, high = min(known), max(known)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def decide(text: str, *, source: str, held: bool | None, evidence: str) -> Finding:
    """Return the finding of a deterministic claim, which needs no interval.

    Args:
        text: Text of the claim.
        source: Owner of the claim, see `Finding`.
        held: Truth of the claim; None if a measurement that it needs is missing.
        evidence: Numbers on which the verdict rests.
    """
    verdict: Verdict = "undecided" if held is None else "held" if held else "not held"
    return Finding(text=text, source=source, verdict=verdict, evidence=evidence)


def judge_mean(
    text: str,
    *,
    source: str,
    values: Sequence[float],
    region: Region,
    of: str = "seeds",
    scale: Scale = "plain",
    step: float = 0.0,
    bounds: tuple[float, float] = (-inf, inf),
    more: str = "",
) -> Finding:
    """Judge a claim about a mean by its 95 % interval.

    The claim is held if the interval is inside the region, not held if the interval is outside, and
    undecided if the interval contains a border or there is none, see `mean_interval`. A claim that
    is not held comes with the mean that would have shown, if one could, an undecided one with the
    number of seeds that would decide.

    Args:
        text: Text of the claim.
        source: Owner of the claim, see `Finding`.
        values: Independent values, such as the differences of paired runs, one per seed.
        region: Values that the claim states, in the units of ``values``.
        of: Plural noun for the values.
        scale: Scale of the values, see `mean_interval`.
        step: Spacing of the possible values, see `mean_interval`.
        bounds: Least and greatest possible value, such as `SHARE`.
        more: Further numbers, appended to the interval and the values.

    Example:
        >>> judge_mean("a gains", source="ours", values=[1.0, 1.2, 0.9], region=above(0)).verdict
        'held'
        >>> finding = judge_mean("a gains", source="ours", values=[1, 2, -0.5], region=above(0))
        >>> finding.verdict, finding.seeds_to_decide
        ('undecided', 20)
    """
    interval = mean_interval(values, scale=scale, step=step, bounds=bounds)
    words = [", ".join(f"{value:.3g}" for value in values)]
    if interval is None:
        finite = [value for value in values if isfinite(value)]
        reason = "fewer than two finite values"
        if len(finite) > 1:
            is_alike = min(finite) == max(finite)
            reason = "values that are all alike" if is_alike else _OFF_SCALE[scale]
        if 1 < len(finite) < len(values):
            reason = f"values of which {len(values) - len(finite)} are missing"
        words = [f"no interval from {reason}: {words[0] or 'none measured'}", more]
        evidence = "; ".join(filter(None, words))
        return Finding(text=text, source=source, verdict="undecided", evidence=evidence)
    verdict = region.verdict(interval.low, interval.high)
    detectable, needed = None, None
    if verdict == "not held":
        nearest, far = (region.low, 1), (region.high, -1)
        if interval.low > region.high:
            nearest, far = far, nearest
        effect, limit = (smallest_effect(values, *each, scale, step) for each in (nearest, far))
        # No mean can show that it is in a region that is narrower than its intervals.
        fits = not isfinite(far[0]) or nearest[1] * (limit - effect) >= 0
        is_possible = isfinite(effect) and bounds[0] <= effect <= bounds[1]
        detectable = effect if fits and is_possible else None
    elif verdict == "undecided":
        border = min(
            filter(isfinite, (region.low, region.high)),
            key=lambda border: abs(border - interval.estimate),
        )
        needed = seeds_to_decide(values, border, scale, step)
    told = (
        f"{_MEANS[interval.scale]} {interval.estimate:.3g}, 95 % interval {interval.low:.3g} to "
        f"{interval.high:.3g} ({interval.method}, {interval.count} {of})"
    )
    finding = Finding(
        text=text,
        source=source,
        verdict=verdict,
        evidence=f"{told}: {words[0]}",
        interval=interval,
        detectable=detectable,
        seeds_to_decide=needed,
        of=of,
    )
    power = finding.write_power() + " (80 % power)" * (detectable is not None)
    return _append(finding, more, power)


def _append(finding: Finding, *words: str) -> Finding:
    return replace(finding, evidence="; ".join(filter(None, [finding.evidence, *words])))


def judge_share(
    text: str, *, source: str, hits: Sequence[bool], of: str = "starts", more: str = ""
) -> Finding:
    """Judge a claim about most of several independent trials, by the exact interval of their share.

    Values of 0 and 1 are far from normal, so the intervals of `judge_mean` do not apply to them.

    Args:
        text: Text of the claim.
        source: Owner of the claim, see `Finding`.
        hits: Outcome of each trial.
        of: Plural noun for the trials.
        more: Further numbers, appended to the interval.

    Example:
        >>> judge_share("it arrives", source="ours", hits=[True] * 10).verdict
        'held'
        >>> judge_share("it arrives", source="ours", hits=[True] * 3 + [False] * 7).verdict
        'undecided'
    """
    if not hits:
        return decide(text, source=source, held=None, evidence=f"no {of} measured")
    share = share_interval(hits)
    told = (
        f"{sum(hits)} of {len(hits)} {of}, 95 % interval of the share {share.low:.2f} to "
        f"{share.high:.2f} (binomial)"
    )
    verdict = above(MOST).verdict(share.low, share.high)
    finding = Finding(
        text=text,
        source=source,
        verdict=verdict,
        evidence=told,
        interval=share,
        seeds_to_decide=trials_to_decide(hits, MOST) if verdict == "undecided" else None,
        of=of,
    )
    return _append(finding, more, finding.write_power())


def judge_groups(
    text: str,
    *,
    source: str,
    findings: Mapping[str, Finding],
    enough: int | None = None,
    of: str = "networks",
) -> Finding:
    """Judge a claim about several networks from the findings on each.

    The claim is held if enough findings are held, not held if too few can be, undecided otherwise.

    Args:
        text: Text of the claim.
        source: Owner of the claim, see `Finding`.
        findings: Finding on each network, by name.
        enough: Number of findings that must be held; default all, and at least one.
        of: Plural noun for the counted items.
    """
    needed = max(1, len(findings)) if enough is None else enough
    verdicts = [finding.verdict for finding in findings.values()]
    good, is_open = verdicts.count("held"), verdicts.count("undecided")
    verdict: Verdict = "undecided"
    if good >= needed:
        verdict = "held"
    elif findings and good + is_open < needed:
        verdict = "not held"
    words = "; ".join(f"{name}: {finding.evidence}" for name, finding in findings.items())
    count = f"{good} of {len(findings)} {of} held, {is_open} undecided"
    evidence = f"{count}; {words or 'none to judge'}"
    return Finding(
        text=text,
        source=source,
        verdict=verdict,
        evidence=evidence,
        groups={name: each for name, each in findings.items() if each.interval},
        seeds_to_decide=None if verdict != "undecided" else _most_seeds(findings.values()),
    )


def _most_seeds(findings: Iterable[Finding]) -> int | None:
    """Return how many seeds decide all of several findings; None if an undecided one has none."""
    needed = [each.seeds_to_decide for each in findings if each.verdict == "undecided"]
    known = [number for number in needed if number is not None]
    return max(known) if known and len(known) == len(needed) else None
