"""Standard errors of the shares of a layer that were estimated from a random sample."""

from collections.abc import Mapping
from dataclasses import replace

from ncscope.measurement.records import LayerRecord
from ncscope.stats.shares import FEWEST, ShareEstimate

_METRICS = {
    "nearest_hits": ("ncc_accuracy", "pfc3"),
    "head_hits": ("accuracy",),
    "disagreements": ("nc4_disagreement",),
}
"""Metrics that divide a count by the number of samples."""


def with_sampling_errors(
    record: LayerRecord, shares: Mapping[str, ShareEstimate], drawn: int
) -> LayerRecord:
    """Return a record with the standard errors of its shares, and a note on the sample.

    Args:
        record: Measurement of a layer.
        shares: Estimated shares, by the names of the counts.
        drawn: Number of samples that were drawn.
    """
    metrics = record.metrics
    by_key = {
        key: share for name, share in shares.items() for key in _METRICS[name] if key in metrics
    }
    if not by_key:
        return record
    known = {key: s.standard_error for key, s in by_key.items() if s.standard_error is not None}
    unknown = [key for key in by_key if key not in known]
    notes = [
        f"{', '.join(by_key)}: of a random sample of {drawn:,} of the {record.num_samples:,} "
        "samples; the standard errors are those of drawing it"
    ]
    if unknown:
        why = f"fewer than {FEWEST} samples are decided otherwise"
        notes.append(f"no standard error of {', '.join(unknown)}: {why}")
    return replace(
        record,
        standard_errors={**record.standard_errors, **known},
        bias_corrected={**record.bias_corrected, **{key: metrics[key] for key in known}},
        notes=(*record.notes, *notes),
    )
