"""Matrix information beyond `measure`: of two sets of features, and the papers' batch estimate."""

from collections.abc import Sequence
from typing import Any

import torch

from ncscope.api.inputs import check_samples
from ncscope.arguments import Seed, check_arguments
from ncscope.array_checks import as_tensor, check_features, check_range, refuse_nonfinite
from ncscope.errors import InputError
from ncscope.labels import IgnoreIndex
from ncscope.metrics.batch_information import BatchInformation, batch_entropies, batch_estimate
from ncscope.metrics.information import Entropies, pair_entropies
from ncscope.stats.directions import zero_rows


@check_arguments
def batch_information(
    features: Any,
    labels: Any,
    weight: Any,
    *,
    ignore_index: IgnoreIndex = None,
    class_names: Sequence[str] | None = None,
    batch_size: int = 64,
    seed: Seed = 0,
) -> BatchInformation:
    """Estimate MIR and HDR batch by batch, to compare with published figures.

    The estimate depends on the batch size. It differs from the value of the whole data set, which
    `measure` computes exactly.

    Args:
        features: n x d array-like.
        labels: n integers in 0..K-1, or names, as for `measure`.
        weight: Classifier weight, K x d.
        ignore_index: Label of samples to leave out, or several.
        class_names: Names of the classes, in the order of the rows of ``weight``.
        batch_size: Samples in a batch, at least two; an incomplete last batch is not used.
        seed: Seed of the random order.

    Returns:
        Mean and spread over the batches. MIR is NaN if a batch holds one class or one direction
        only. Cost: three eigenvalue problems for each batch.

    Raises:
        InputError: If the input is bad, there are fewer than two whole batches, or a row of the
            features, or of the weight for a class with samples, is zero and has no direction.

    Example:
        >>> import torch, ncscope
        >>> from ncscope.math.frames import simplex_etf
        >>> labels = torch.arange(4).repeat(100)
        >>> etf = simplex_etf(4)
        >>> ncscope.batch_information(etf[labels], labels, etf, batch_size=100).batches
        4
    """
    if weight is None:
        fix = "pass the weight of the head that reads these features"
        raise InputError(expected="a classifier weight", found="None", fix=fix)
    samples = check_samples(
        features,
        labels,
        weight,
        None,
        None,
        ignore_index=ignore_index,
        class_names=class_names,
    )
    assert samples.weight is not None
    check_range(samples.labels, samples.num_classes, of_classifier=True)
    refuse_nonfinite(samples.features)
    if batch_size < 2:
        fix = "information is between the samples of a batch: use a larger batch_size"
        raise InputError(expected="a batch_size of at least 2", found=str(batch_size), fix=fix)
    if len(samples.labels) < 2 * batch_size:
        found = f"{len(samples.labels)} samples at batch size {batch_size}"
        fix = "use a smaller batch_size"
        raise InputError(expected="at least two whole batches", found=found, fix=fix)
    # Rows are divided by their lengths. Of the weight, only the rows of classes present are used.
    present = set(samples.labels.tolist())
    _refuse_zero_rows("features", zero_rows(samples.features))
    weight_rows = [row for row in zero_rows(samples.weight) if row in present]
    _refuse_zero_rows("the weight", weight_rows)
    generator = torch.Generator().manual_seed(seed)
    entropies = batch_entropies(
        samples.features, samples.labels, samples.weight, batch_size, generator
    )
    return batch_estimate(entropies, batch_size)


def _refuse_zero_rows(name: str, rows: list[int]) -> None:
    if rows:
        found = f"zero row {rows[0]} of {name}"
        fix = "drop the zero rows, which have no direction"
        raise InputError(expected="rows with a direction", found=found, fix=fix)


@check_arguments
def information_between(features: Any, others: Any, *, seed: Seed = 0) -> Entropies:
    """Compute entropies, MIR and HDR of two representations of the same samples.

    Source: INFO section 5.4, for the features of a dense and of a pruned model.

    Args:
        features: n x d array-like.
        others: n x d' array-like, the same samples in the same order.
        seed: Seed of the random probes that estimate the joint entropy of more than 4,096 samples.

    Returns:
        ``mir``, ``hdr``, ``mutual_information``, and the entropies ``first``, ``second``,
        ``joint``; NaN if a row of one of the representations is zero.

    Raises:
        InputError: If the shapes do not fit, a value is not finite, or there are fewer than two
            rows.

    Example:
        >>> import torch, ncscope
        >>> frame = torch.eye(3)
        >>> ncscope.information_between(frame, 2 * frame).mir
        1.0
    """
    first, second = as_tensor(features, "features"), as_tensor(others, "others")
    for rows in (first, second):
        check_features(rows)
        refuse_nonfinite(rows)
    if len(first) != len(second):
        found = f"{len(first)} and {len(second)} rows"
        fix = "pass two representations of the same samples, in one order"
        raise InputError(expected="as many rows in both", found=found, fix=fix)
    if len(first) < 2:
        fix = "information is between samples: pass more of them"
        raise InputError(expected="at least two rows", found=str(len(first)), fix=fix)
    return pair_entropies(first, second, seed)
