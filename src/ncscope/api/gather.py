"""Statistics of any iterable of batches, as a pure function that any machine can run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.api.inputs import check_classifier
from ncscope.api.shard_files import Shard, batches_of
from ncscope.arguments import Size, check_arguments
from ncscope.array_checks import as_tensor, check_features
from ncscope.errors import InputError
from ncscope.labels import IgnoreIndex, count_labels, find_names, kinds_error, read_labels
from ncscope.measurement.resampling import in_unit
from ncscope.stats.decisions import Decider, DecisionCounts
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import ALL_STATISTICS, Precision, Prior, Statistic
from ncscope.stats.statistics import ClassStatistics, finish


@check_arguments
@dataclass(frozen=True, eq=False)
class DecisionPass:
    """Second pass over the samples, which counts how class means and classifier decide them.

    Attributes:
        classes: Labels of the classes present.
        means: Class means of the whole stream, one a row, float64.
        weight: Classifier weight with a row for every class; None without a classifier.
        bias: Classifier bias, or None.
        exponent: Unit e of the means: they belong to the features divided by $2^e$.
        ignore_index: Label of samples to leave out, or several.
        class_names: Names of the classes, for labels that are names.

    Example:
        >>> first = [(torch.tensor([[0.0], [1.0], [4.0]]), torch.tensor([0, 1, 1]))]
        >>> gather(first, second=DecisionPass.from_moments(gather(first))).nearest_hits
        2
    """

    classes: Int[Tensor, " k"]
    means: Float[Tensor, "k d"]
    weight: Float[Tensor, "heads d"] | None = None
    bias: Float[Tensor, " heads"] | None = None
    exponent: int = 0
    ignore_index: IgnoreIndex = None
    class_names: Sequence[str] = ()

    @classmethod
    def from_moments(
        cls, moments: ClassMoments, weight: Any = None, bias: Any = None
    ) -> "DecisionPass":
        """Return the pass that follows a finished first pass.

        Args:
            moments: Merged moments of all samples.
            weight: Classifier weight K x d.
            bias: Classifier bias, K.

        Raises:
            InputError: If fewer than two classes have samples, or weight or bias do not fit.
        """
        k, d, device = moments.num_classes, moments.dim, moments.device
        classifier = check_classifier(weight, bias, k, d, device)
        return cls.from_statistics(
            finish(moments),
            classifier.weight,
            classifier.bias,
            moments.ignore_index,
            moments.class_names,
        )

    @classmethod
    def from_statistics(
        cls,
        stats: ClassStatistics,
        weight: Float[Tensor, "heads d"] | None,
        bias: Float[Tensor, " heads"] | None,
        ignore_index: IgnoreIndex = None,
        class_names: Sequence[str] = (),
    ) -> "DecisionPass":
        """Return the pass that follows finished statistics, for a checked classifier."""
        # The pass squares distances from the means; in this unit the squares stay in range.
        stats = stats.in_range()
        means = stats.means.to(torch.float64)
        return cls(
            stats.classes, means, weight, bias, stats.exponent, ignore_index, tuple(class_names)
        )

    def decide(self, batches: Iterable[Any]) -> DecisionCounts:
        """Count the decisions on batches of features and labels."""
        decider = Decider(self.classes, self.means, self.weight, self.bias, exponent=self.exponent)
        counts = decider.start_tally()
        for batch in batches:
            features, labels = _split_batch(batch)
            rows = as_tensor(features, "features")
            check_features(rows, self.means.shape[1])
            read = read_labels(
                labels,
                len(rows),
                ignore_index=self.ignore_index,
                class_names=self.class_names,
                of_part=True,
            )
            counts = counts + decider(in_unit(read.select(rows), self.exponent), read.labels)
        return counts.read()


@overload
def gather(
    batches: Shard,
    num_classes: Size | None = ...,
    dim: Size | None = ...,
    *,
    statistics: Iterable[Statistic] = ...,
    prior: Prior = ...,
    class_counts: Any = ...,
    precision: Precision = ...,
    device: torch.device | str = ...,
    ignore_index: IgnoreIndex = ...,
    class_names: Sequence[str] | None = ...,
    second: None = ...,
) -> ClassMoments: ...
@overload
def gather(batches: Shard, *, second: DecisionPass) -> DecisionCounts: ...


@check_arguments
def gather(
    batches: Shard,
    num_classes: Size | None = None,
    dim: Size | None = None,
    *,
    statistics: Iterable[Statistic] = ALL_STATISTICS,
    prior: Prior = "empirical",
    class_counts: Any = None,
    precision: Precision = "float64",
    device: torch.device | str = "cpu",
    ignore_index: IgnoreIndex = None,
    class_names: Sequence[str] | None = None,
    second: DecisionPass | None = None,
) -> ClassMoments | DecisionCounts:
    """Gather the statistics of batches: their moments, or in a second pass their decisions.

    The function has no side effects, and it can be pickled, so a process pool or a cluster can run
    it on the parts of a data set. The results are added with ``+`` or `sum`.

    Args:
        batches: Iterable of batches: pairs of features (n x d) and labels (n), or mappings with
            the entries ``features`` and ``labels``. Or the path or address of a file of them, as
            for `ncscope.measure_shards`.
        num_classes: Number of classes K; by default K grows with the labels seen.
        dim: Feature dimension d; by default that of the first batch.
        statistics: Statistics besides counts, means and traces, as in `ClassMoments`.
        prior: Class prior of the pooled scatter.
        class_counts: Number of samples of each class in the whole data set; needed for the uniform
            prior's scatter.
        precision: ``"float64"`` or ``"blocked"``; see `ClassMoments`.
        device: Device to accumulate on.
        ignore_index: Label of samples to leave out, or several.
        class_names: Names of the classes, in the order of the indices; needed if labels are names.
        second: Class means and classifier after the first pass. The decisions are then counted, and
            the other options have no effect.

    Returns:
        `ClassMoments` for `ncscope.measure_moments`; with ``second``, `DecisionCounts`.

    Raises:
        InputError: If a batch is no such pair, or does not fit the others.

    Example:
        >>> parts = [[(torch.randn(8, 3), torch.arange(8) % 2)] for _ in range(4)]
        >>> moments = sum(map(gather, parts))
        >>> moments.counts.tolist()
        [16, 16]
    """
    batches = batches_of(batches)
    if second is not None:
        return second.decide(batches)
    moments = ClassMoments(
        num_classes,
        dim,
        statistics=statistics,
        prior=prior,
        class_counts=class_counts,
        precision=precision,
        device=device,
        ignore_index=ignore_index,
        class_names=class_names,
    )
    for batch in batches:
        moments.update(*_split_batch(batch))
    return moments


def gather_names(batches: Shard) -> tuple[str, ...]:
    """Return the class names in the labels of batches, as `find_names` does.

    Args:
        batches: Batches, as for `gather`.

    Raises:
        InputError: If a batch has another form, or labels of samples are no names.
    """
    parts = [_split_batch(batch)[1] for batch in batches_of(batches)]
    names = find_names(*parts)
    if not names and any(map(count_labels, parts)):
        raise kinds_error()
    return names


def _split_batch(batch: Any) -> tuple[Any, Any]:
    """Return the features and the labels of a batch."""
    if isinstance(batch, Mapping):
        if {"features", "labels"} <= batch.keys():
            return batch["features"], batch["labels"]
        found = f"a mapping with the entries {', '.join(map(str, batch)) or 'none'}"
        fix = "rename its entries"
    elif isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    else:
        found = f"a {type(batch).__name__}"
        if isinstance(batch, tuple | list):
            found += f" of {len(batch)}"
        fix = "pass [(features, labels)] for a single batch"
    raise InputError(expected="batches of features and labels", found=found, fix=fix)
