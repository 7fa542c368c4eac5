"""Time of each score for a cell."""

from collections.abc import Callable, Mapping
from typing import Any

from ncscope.lab.zoo.values import Sample
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import cdnv, cosine_within, fuzziness, nc1_quotient
from ncscope.stats.statistics import ClassStatistics, finish
from ncscope.transfer import (
    explained_entropy,
    gbc,
    h_score,
    leep,
    log_me,
    nce,
    ncti_parts,
    nleep,
    parc,
    regularised_h_score,
    sfda,
    transrate,
    transrate_listing,
    transrate_projected,
)
from ncscope.transfer.probes.selection import choose_for_samples
from ncscope.transfer.ranking import gather_moments, hold_out
from ncscope.transfer.samples import DownstreamSamples, check_downstream

PROBE = "probe"
"""Key of the time of the probe that the scores save."""

_OF_SAMPLES: Mapping[str, Callable[[DownstreamSamples], Any]] = {
    "explained_entropy": explained_entropy,
    "regularised_h_score": regularised_h_score,
    "nleep": nleep,
    "sfda": sfda,
    "ncti": ncti_parts,
    "gbc": gbc,
    "transrate": transrate,
    "transrate_listing": transrate_listing,
    "transrate_projected": transrate_projected,
    "parc": parc,
}
_OF_MOMENTS: Mapping[str, Callable[[ClassStatistics], Any]] = {
    "h_score": h_score,
    "log_me": log_me,
    "fuzziness": lambda stats: fuzziness(stats, discriminants(stats)),
    "nc1_quotient": nc1_quotient,
    "cosine_within": cosine_within,
    "cdnv": cdnv,
}


def timed(sample: Sample, clock: Callable[[], float]) -> dict[str, float]:
    """Return the seconds of each score, and of a probe with the choice of its penalty.

    Args:
        sample: Training images of a target.
        clock: Function that returns the time in seconds.
    """
    samples = check_downstream(sample.features, sample.labels)
    work: dict[str, Callable[[], Any]] = {
        key: lambda score=score: score(samples)  # type: ignore[misc]
        for key, score in _OF_SAMPLES.items()
    }
    for key, score in _OF_MOMENTS.items():
        work[key] = lambda score=score: score(finish(gather_moments(samples)))  # type: ignore[misc]
    own = sample.probabilities
    if own is not None:
        work["leep"] = lambda: leep(samples, own)
        work["nce"] = lambda: nce(samples, own.argmax(1))
    validation = hold_out(samples.labels, 0)
    work[PROBE] = lambda: choose_for_samples(
        samples.select(~validation), samples.select(validation), "top-1"
    )
    found = {}
    for key, run in work.items():
        start = clock()
        run()
        found[key] = clock() - start
    return found
