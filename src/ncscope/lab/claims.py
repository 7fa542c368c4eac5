"""The claim table of an experiment, and its judge.

A claim names a quantity of one run, the region in which the quantity lies if the claim is true, and
a rule: how the runs are counted. The judge turns the table and the results into findings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan
from typing import Any, Literal

from ncscope.lab.evidence.judging import Region, combined, decided, judged
from ncscope.lab.evidence.proportions import in_most
from ncscope.lab.quantities import Key, Quantity, Run, Runs, average, ends, read_field
from ncscope.report.claims import Claim as Finding
from ncscope.report.claims import Scale


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
        tell: Function that describes the runs of a group in numbers, for the evidence; by the rule
            ``"each"`` it describes every run.
        uncounted: Other quantities by name, judged alike for the evidence only.
        note: Function that describes other runs of the experiment, at the end of the evidence.
    """

    text: str
    source: str
    quantity: Quantity | Mapping[str, "Quantity | Claim"]
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
        finding = combined(
            claim.text,
            source=claim.source,
            claims=findings,
            enough=claim.enough(len(findings)),
            of=claim.unit,
        )
    for name, other in claim.uncounted.items():
        beside = _judge_one(other, runs, experiment)
        told = f"not counted: on {name} {beside.verdict}, {beside.evidence}"
        finding = replace(finding, evidence=f"{finding.evidence}; {told}")
    if claim.note is not None:
        finding = replace(finding, evidence=f"{finding.evidence}; {claim.note(experiment)}")
    return finding


def _judge_group(claim: Claim, runs: Runs, region: Region) -> Finding:
    assert callable(claim.quantity)
    numbers = {run.name: claim.quantity(run) for run in runs}
    if claim.rule in ("each", "all"):
        verdicts = [region.verdict(value, value) for value in numbers.values()]
        good, missing = verdicts.count("held"), sum(map(isnan, numbers.values()))
        needed = max(1, len(numbers))
        if claim.rule == "all" and claim.tell is not None and numbers:
            evidence = claim.tell(runs)
        else:
            listed = [
                f"{run.name}: "
                f"{claim.tell(Runs([run])) if claim.tell else f'{numbers[run.name]:.3g}'}"
                for run in runs
            ]
            count = f"in {good} of {len(numbers)} {claim.over}"
            evidence = f"{count}; {'; '.join(listed) or 'none to judge'}"
        unmeasured = claim.rule == "all" and not numbers
        open_ = unmeasured or good < needed <= good + missing
        return decided(
            claim.text,
            source=claim.source,
            held=None if open_ else good >= needed,
            evidence=evidence,
        )
    assert not callable(claim.step)
    told = claim.tell(runs) if claim.tell is not None and numbers else ""
    if claim.rule == "share":
        hits = [region.verdict(value, value) == "held" for value in numbers.values()]
        return in_most(claim.text, source=claim.source, hits=hits, of=claim.over, evidence=told)
    if claim.average is not None:
        by_field: dict[Any, list[float]] = {}
        for run in runs:
            name = read_field(run.settings, claim.average)
            by_field.setdefault(name, []).append(numbers[run.name])
        numbers = {str(name): average(of_field) for name, of_field in by_field.items()}
    return judged(
        claim.text,
        source=claim.source,
        values=list(numbers.values()),
        region=region,
        of=claim.over,
        scale=claim.scale,
        step=claim.step,
        bounds=claim.bounds,
        evidence=told,
    )


def tell_each(write: Callable[[Run], str]) -> Callable[[Runs], str]:
    """Return a function that writes every run in words, by a function of one run.

    Args:
        write: Function of one run; a run of which it writes nothing is left out.
    """
    return lambda runs: ", ".join(filter(None, map(write, runs)))


def tell_ends(key: str, split: str = "train", form: str = ".3f") -> Callable[[Runs], str]:
    """Return a function that writes a metric's first and last value in the mean of the runs."""

    def tell(runs: Runs) -> str:
        pairs = [ends(run.path(split), key) for run in runs]
        start, end = (average([pair[index] for pair in pairs]) for index in (0, 1))
        return f"{key} {start:{form}} to {end:{form}} in the mean"

    return tell
