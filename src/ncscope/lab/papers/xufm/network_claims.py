"""Claims of XUFM sections 4.1 and 6 on trained networks, over seeds, beside the two-level models.

A level is a block; the last block's level is the classifier's input, its map averaged over space.
The map itself is recorded, but it is no level of its own.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ncscope.lab.evidence.judging import below, combined, judged
from ncscope.lab.observations import Observation
from ncscope.lab.papers.trained import decades, ends, interpolation, ratio, values
from ncscope.lab.simulations.extended import LABELS
from ncscope.lab.surrogates.extended import Activation
from ncscope.report.claims import Claim

Levels = Mapping[str, Sequence[Observation]]
"""Rows over training of one run by level: the blocks in order, then the classifier's input."""
Models = Mapping[Activation, Sequence[Observation]]
FRAMES: Mapping[str, str] = {"mse": "nc2_of", "cross-entropy": "nc2_etf"}
"""Key of the distance to the minimisers' frame, by loss: orthogonal without a bias, or simplex."""
DUALITIES: Mapping[str, str] = {"mse": "nc3_alignment", "cross-entropy": "nc3_self_duality"}
"""Key of NC3 by loss, with uncentred class means for the orthogonal frame, else centred ones."""
SURROGATES: Mapping[Activation, str] = {
    "linear": "extended UFM, linear",
    "relu": "extended UFM, ReLU",
}
"""Parts of the two-level model, by activation."""
TENTH = 0.1
"""Largest share of NC1 at zero training error that further collapse leaves."""
HALF = 0.5
"""Largest share of its start that a distance keeps when training builds a structure, and largest
share of the deepest level's decades by which the distance falls at a level that does not take part.
The paper states no number."""


def of_network(runs: Sequence[Levels], loss: str, models: Models) -> list[Claim]:
    """Test the claims on one network and loss.

    Args:
        runs: Levels of each seed.
        loss: Loss, which determines frame and duality.
        models: Rows of the two-level models.
    """
    frame = FRAMES[loss]
    return [
        _past_zero_error(runs),
        _along_depth(runs),
        _nearest(runs, frame),
        _halved(runs, frame),
        _only_deepest(runs, frame, models),
        _dual(runs, DUALITIES[loss]),
        _rates_like_relu(runs, models),
    ]


def of_losses(squared: Sequence[Levels], entropy: Sequence[Levels]) -> list[Claim]:
    """Test which frame each loss leads to, on runs of equal seeds in equal order.

    Args:
        squared: Levels of each seed under MSE.
        entropy: Levels of each seed under cross-entropy.
    """
    pairs = zip(squared, entropy, strict=False)
    near = [ratio(*(kept(_deepest(run), "nc2_of") for run in pair)) for pair in pairs]
    both = [[kept(_deepest(run), key) for key in ("nc2_etf", "nc2_of")] for run in entropy]
    owner = "XUFM, section 4.1, remark on the choice of loss function"
    return [
        judged(
            "of the distance between the deepest class means and an orthogonal frame, training "
            "leaves a smaller share under MSE than under cross-entropy",
            source=owner,
            values=near,
            region=below(1.0),
            scale="ratio",
            evidence="share kept under MSE over that under cross-entropy",
        ),
        judged(
            "under cross-entropy training leaves a smaller share of the distance between the "
            "deepest class means and a simplex than of their distance to an orthogonal frame",
            source=owner,
            values=[ratio(*shares) for shares in both],
            region=below(1.0),
            scale="ratio",
            evidence="share kept of the distance to the simplex over that to the orthogonal frame",
        ),
    ]


def kept(path: Sequence[Observation], frame: str) -> float:
    """Compute a level's distance to a frame at the end as a share of that at the start."""
    start, end = ends(path, frame)
    return ratio(end, start)


def compared(levels: Levels) -> dict[str, Sequence[Observation]]:
    """Return the levels that are compared: without the map of the last block."""
    names = list(levels)
    return {name: levels[name] for name in names if name not in names[-2:-1]}


def _deepest(levels: Levels) -> Sequence[Observation]:
    return levels[list(levels)[-1]]


def _shallow(runs: Sequence[Levels]) -> list[str]:
    """Return the names of the blocks before the last."""
    return list(runs[0])[:-2] if runs else []


def _past_zero_error(runs: Sequence[Levels]) -> Claim:
    falls, told = [], []
    for run in runs:
        path = _deepest(run)
        reached = interpolation(path)
        then = math.nan if reached is None else values([reached], "nc1")[0]
        falls.append(ratio(ends(path, "nc1")[1], then))
        told.append("never" if reached is None else f"epoch {reached.epoch}")
    return judged(
        "past zero training error NC1 of the deepest features falls to less than a tenth",
        source="XUFM, section 1 and figures 5 and 10",
        values=falls,
        region=below(TENTH),
        scale="ratio",
        evidence=f"NC1 at the end over NC1 at zero error, reached at {', '.join(told)}",
    )


def _along_depth(runs: Sequence[Levels]) -> Claim:
    """Test the order along depth; the levels of all seeds have equal names."""
    names = list(compared(runs[0])) if runs else []
    last = [{name: ends(run[name], "nc1")[1] for name in names} for run in runs]
    pairs = {
        f"{shallow} to {deep}": judged(
            "NC1 falls",
            source="XUFM, section 4.1 (2)",
            values=[ratio(each[deep], each[shallow]) for each in last],
            region=below(1.0),
            scale="ratio",
        )
        for shallow, deep in pairwise(names)
    }
    return combined(
        "at the end every level has a lower NC1 than the level before",
        source="XUFM, section 4.1 (2)",
        claims=pairs,
        of="pairs of levels",
    )


def _nearest(runs: Sequence[Levels], frame: str) -> Claim:
    levels = {
        level: judged(
            "the deepest is nearer",
            source="XUFM, section 4.1 (1)",
            values=[
                ratio(*(ends(x, frame)[1] for x in (_deepest(run), run[level]))) for run in runs
            ],
            region=below(1.0),
            scale="ratio",
        )
        for level in _shallow(runs)
    }
    return combined(
        f"at the end the deepest features are nearer to their frame ({frame}) than the features of "
        "any block before the last",
        source="XUFM, section 4.1 (1)",
        claims=levels,
        of="blocks",
    )


def _halved(runs: Sequence[Levels], frame: str) -> Claim:
    return judged(
        "training at least halves the distance of the deepest features to their frame",
        source="XUFM, section 4.1 (1)",
        values=[kept(_deepest(run), frame) for run in runs],
        region=below(HALF),
        scale="ratio",
        evidence=f"{frame} at the end over the start",
    )


def _only_deepest(runs: Sequence[Levels], frame: str, models: Models) -> Claim:
    """Compare decades, so that a network which does not move, or moves at all levels, fails."""
    levels = {
        level: judged(
            "the distance falls less",
            source="XUFM, section 4.1 (1)",
            values=[decades_beside(run[level], _deepest(run), frame) for run in runs],
            region=below(HALF),
        )
        for level in _shallow(runs)
    }
    claim = combined(
        "only the deepest features approach their frame: in every block before the last, training "
        "reduces the distance to the frame by less than half as many decades as in the deepest",
        source="XUFM, section 4.1 (1) and section 6",
        claims=levels,
        of="blocks",
    )
    return with_models(claim, _in_models(models, "nc2_of"))


def decades_beside(shallow: Sequence[Observation], deep: Sequence[Observation], key: str) -> float:
    """Divide the decades by which a metric falls at a level by those of a deeper level.

    Returns:
        The ratio; NaN if the metric does not fall at the deeper level.
    """
    falls = [decades(*ends(path, key)) for path in (shallow, deep)]
    return ratio(*falls) if falls[1] > 0 else math.nan


def _in_models(models: Models, key: str) -> dict[Activation, float]:
    return {
        name: decades_beside(_level(path, "H1"), _level(path, "H2"), key)
        for name, path in models.items()
    }


def with_models(claim: Claim, shares: Mapping[Activation, float]) -> Claim:
    """Append the two-level models' numbers to a claim's evidence."""
    told = ", ".join(
        f"{LABELS[name]} {value:.2g}" if math.isfinite(value) else f"{LABELS[name]} not measured"
        for name, value in shares.items()
    )
    return Claim(
        text=claim.text,
        source=claim.source,
        verdict=claim.verdict,
        evidence=f"{claim.evidence}; two-level models: {told}",
        interval=claim.interval,
    )


def _dual(runs: Sequence[Levels], key: str) -> Claim:
    return judged(
        "training at least halves the distance of the classifier from the class means",
        source="XUFM, figures 5 and 10, NC3",
        values=[kept(_deepest(run), key) for run in runs],
        region=below(HALF),
        scale="ratio",
        evidence=f"{key} at the end over the start",
    )


def _rates_like_relu(runs: Sequence[Levels], models: Models) -> Claim:
    """Compare shares of decades, since NC1 falls by more decades in a noiseless descent."""
    shares = _in_models(models, "nc1")
    border = sum(shares.values()) / 2
    told_apart = shares["relu"] < shares["linear"]
    first = next(iter(runs[0])) if runs else ""
    claim = judged(
        "the fall of NC1 at the first level over the fall at the last, both in decades, is nearer "
        "to that of the ReLU model than to that of the linear model",
        source="XUFM, section 6",
        values=[
            decades_beside(run[first], _deepest(run), "nc1") if told_apart else math.nan
            for run in runs
        ],
        region=below(border),
    )
    return with_models(claim, shares)


def _level(path: Sequence[Observation], level: str) -> list[Observation]:
    return [row for row in path if row.layer == level]
