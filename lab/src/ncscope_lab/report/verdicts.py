"""Page of all verdicts by paper: which claims held, at which scale, with the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ncscope.report.page import render_template
from ncscope_lab.findings import Finding, Tally, tally

PAPERS: Mapping[str, str] = {
    "XUFM": "Tirer and Bruna, Extended Unconstrained Features Model, 2022",
    "MSE": "Han, Papyan and Donoho, Neural Collapse Under MSE Loss, 2022",
    "VCI": "Xu and Liu, Quantifying the Variability Collapse of Neural Networks, 2023",
    "PFC": "Wang, Gai and Zhang, Progressive Feedforward Collapse of ResNet Training, 2024",
    "INFO": "Song et al., Unveiling the Dynamics of Information Interplay, 2024",
    "ours": "Claims that no paper makes",
}
"""Owners of claims, in the order of the page, with their titles."""


@dataclass(frozen=True)
class ExperimentVerdicts:
    """Claims of one experiment.

    Attributes:
        name: Name of the experiment.
        claims: Claims of its run; empty if the run has not ended.
        failure: Reason why the run has not ended; empty if it has ended.
    """

    name: str
    claims: Sequence[Finding] = ()
    failure: str = ""


@dataclass(frozen=True)
class OwnerVerdicts:
    """Claims of one owner, by experiment.

    Attributes:
        owner: Key of `PAPERS`.
        title: Title of the paper.
        tally: Number of claims of each verdict.
        experiments: Experiments with the owner's claims among theirs.
    """

    owner: str
    title: str
    tally: Tally
    experiments: Sequence[ExperimentVerdicts]


def owner_of(claim: Finding) -> str:
    """Return the owner of a claim, the first word of its source.

    Example:
        >>> source = "VCI, section 4.3"
        >>> owner_of(Finding(text="", source=source, verdict="held", evidence=""))
        'VCI'
    """
    return claim.source.split(",")[0].split(" ")[0]


def by_owner(experiments: Sequence[ExperimentVerdicts]) -> list[OwnerVerdicts]:
    """Group the claims of all experiments by owner, in the order of `PAPERS`."""
    owners = dict.fromkeys(
        [*PAPERS, *(owner_of(claim) for each in experiments for claim in each.claims)]
    )
    grouped = []
    for owner in owners:
        theirs = [
            ExperimentVerdicts(each.name, [one for one in each.claims if owner_of(one) == owner])
            for each in experiments
        ]
        kept = [each for each in theirs if each.claims]
        if kept:
            counted = tally(claim for each in kept for claim in each.claims)
            grouped.append(OwnerVerdicts(owner, PAPERS.get(owner, owner), counted, kept))
    return grouped


def verdicts_page(scale: str, experiments: Sequence[ExperimentVerdicts]) -> str:
    """Build the page of all verdicts.

    Args:
        scale: Scale of the runs.
        experiments: Claims of each experiment, in order.
    """
    counted = tally(claim for each in experiments for claim in each.claims)
    ended = sum(not each.failure for each in experiments)
    return render_template(
        "verdicts.html.j2",
        title="What the papers claim, and what was found",
        lead=(
            "A claim about a mean is held or not held only if its 95 % interval excludes the "
            "claim's border; otherwise it is undecided."
        ),
        facts=[f"scale {scale}", f"{ended} of {len(experiments)} experiments have ended"],
        tally=counted,
        owners=by_owner(experiments),
        failures={each.name: each.failure for each in experiments if each.failure},
    )
