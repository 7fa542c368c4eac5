"""Ranking of checkpoints on one downstream set: accuracy of a probe, and scores that predict it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from ncscope.arguments import Seed, check_arguments
from ncscope.array_checks import as_tensor, check_features
from ncscope.errors import InputError
from ncscope.labels import IgnoreIndex, find_names, read_labels
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import ALL_STATISTICS
from ncscope.stats.statistics import finish
from ncscope.transfer.intervals import sort_answers
from ncscope.transfer.probes.linear_probe import MEASURES, Measure
from ncscope.transfer.probes.selection import choose_for_samples, scale_strengths
from ncscope.transfer.records import (
    BASELINES,
    PRETRAINING,
    PRETRAINING_SCORES,
    CheckpointResult,
    Ranking,
    rank_results,
)
from ncscope.transfer.samples import DownstreamSamples, check_downstream
from ncscope.transfer.scores.all_scores import (
    SourceOutputs,
    check_source_outputs,
    moment_scores,
    sample_scores,
)
from ncscope.transfer.uneven_scales import unit_scale


@check_arguments
def rank_checkpoints(
    features: Mapping[str, Any],
    labels: Any,
    *,
    test_features: Mapping[str, Any] | None = None,
    test_labels: Any = None,
    pretraining: Mapping[str, tuple[Any, Any] | ClassMoments] | None = None,
    source_probabilities: Mapping[str, Any] | None = None,
    ignore_index: IgnoreIndex = None,
    baselines: Mapping[str, Mapping[str, float]] | None = None,
    expensive: bool | None = None,
    measure: Measure = "top-1",
    seed: Seed = 0,
    on_checkpoint: Callable[[str], None] = lambda name: None,
) -> Ranking:
    """Rank checkpoints by the accuracy of a linear probe on their features of a downstream set.

    The result also has the scores that are said to predict this accuracy (VCI and its rivals,
    LogME, the H-score and the other scores of the field) and how well each orders the checkpoints.
    On the downstream set less variability within classes is better. VCI's claim is about the
    *pretraining* set, where more variability is better; pass ``pretraining`` to measure it there.

    The strength of the probe's penalty is chosen on a fifth of the training samples, split class by
    class, among strengths in units of the features' variance (`scale_strengths`): a common factor
    of a checkpoint's features changes nothing. Scores use training samples only.

    Args:
        features: Features by checkpoint, n x d array-likes of the same samples in the same order;
            d may differ by checkpoint.
        labels: Labels of the samples: n integers, or names.
        test_features: Features of held-out samples by checkpoint; by default, a fifth of the
            samples is held out, class by class.
        test_labels: Labels of the held-out samples.
        pretraining: Features and labels of the pretraining set, or their moments, by checkpoint.
        source_probabilities: Probabilities of each checkpoint's own classes for the samples, n x Z,
            or its predicted classes, for LEEP and NCE; checkpoints without a head are left out.
        ignore_index: Label of downstream samples to leave out, or several.
        baselines: Facts by checkpoint, to judge the scores by: ``{"resnet18": {"parameters": 11e6,
            "source_accuracy": 0.7}}``. The keys are those of `BASELINES`: ``"parameters"``,
            ``"source_accuracy"`` and ``"other_sets"``. `baselines_of` makes them from the table of
            `read_results`. A fact that is unknown is left out.
        expensive: True to compute NLEEP and PARC whatever they cost, False to leave them out; by
            default they are computed for small sets.
        measure: Kind of accuracy, ``"top-1"`` or ``"mean per class"``.
        seed: Seed of the split into training, validation and held-out samples.
        on_checkpoint: Function called with the name of each checkpoint before it is ranked.

    Raises:
        InputError: If an input does not fit; the message names it and the checkpoint.

    Cost: a few fits of logistic regression for each checkpoint; see `logistic_path`.

    Example:
        >>> labels = torch.arange(60) % 3
        >>> far = torch.eye(3)[labels] + 0.1 * torch.randn(60, 3)
        >>> near = torch.eye(3)[labels] + 2.0 * torch.randn(60, 3)
        >>> rank_checkpoints({"near": near, "far": far}, labels).order
        ['far', 'near']
    """
    baselines = baselines or {}
    _check_inputs(features, test_features, test_labels, pretraining, baselines)
    class_names = find_names(labels, [] if test_labels is None else test_labels)
    results = []
    for name, rows in features.items():
        on_checkpoint(name)
        with name_checkpoint_in_errors(name):
            outputs = None if source_probabilities is None else source_probabilities.get(name)
            samples, source = check_with_outputs(
                rows, labels, outputs, ignore_index=ignore_index, class_names=class_names
            )
            if test_features is None:
                train, test = split_samples(samples, seed)
                source = source and source.select(~hold_out(samples.labels, seed))
            else:
                train = samples
                test = check_downstream(
                    test_features[name],
                    test_labels,
                    ignore_index=ignore_index,
                    class_names=class_names,
                )
            moments = None
            if pretraining is not None:
                moments = _pretraining_moments(pretraining[name])
            results.append(
                score_checkpoint(
                    name,
                    train,
                    test,
                    pretraining=moments,
                    source=source,
                    baselines=baselines.get(name),
                    expensive=expensive,
                    measure=measure,
                    seed=seed,
                )
            )
    return rank_results(results, measure, seed)


def check_with_outputs(
    features: Any,
    labels: Any,
    outputs: Any,
    *,
    ignore_index: IgnoreIndex,
    class_names: Sequence[str],
) -> tuple[DownstreamSamples, SourceOutputs | None]:
    """Check the samples of one checkpoint, and the outputs of its own head for them.

    Args:
        features: n x d array-like.
        labels: n integers or names.
        outputs: Source probabilities or predictions of the n samples; None without a head.
        ignore_index: Label of samples to leave out, or several.
        class_names: Names of the classes, if the labels are names.

    Raises:
        InputError: If they do not fit each other.
    """
    rows = as_tensor(features, "features")
    check_features(rows)
    read = read_labels(labels, len(rows), ignore_index=ignore_index, class_names=class_names)
    samples = check_downstream(read.select(rows), read.labels)
    if outputs is None:
        return samples, None
    # The outputs are those of all samples, also of those that are left out.
    source = check_source_outputs(outputs, rows.new_zeros(len(rows), dtype=torch.int64))
    return samples, source if read.kept is None else source.select(read.kept.to(rows.device))


@contextmanager
def name_checkpoint_in_errors(name: str) -> Iterator[None]:
    """Add the checkpoint's name to every InputError raised inside.

    Raises:
        InputError: An InputError was raised inside; the new message names the checkpoint.
    """
    try:
        yield
    except InputError as error:
        raise error.but(expected=f"{error.expected} of {name}") from error


def score_checkpoint(
    name: str,
    train: DownstreamSamples,
    test: DownstreamSamples,
    *,
    validation: DownstreamSamples | None = None,
    pretraining: ClassMoments | None = None,
    source: SourceOutputs | None = None,
    baselines: Mapping[str, float] | None = None,
    expensive: bool | None = None,
    measure: Measure = "top-1",
    seed: Seed = 0,
) -> CheckpointResult:
    """Measure the accuracy of one checkpoint's probe, and compute its scores, on a downstream set.

    Args:
        name: Name of the checkpoint.
        train: Training samples.
        test: Samples for the accuracy of the probe.
        validation: Samples on which the strength of the penalty is chosen; by default a fifth of
            the training samples, class by class. The final probe and the scores use training and
            validation samples.
        pretraining: Moments of the checkpoint's pretraining set, with scatter and directions.
        source: Outputs of the checkpoint's own head for the training samples and then the
            validation samples.
        baselines: Facts of the checkpoint by key of `BASELINES`.
        expensive: Request for NLEEP and PARC, as for `sample_scores`.
        measure: Kind of accuracy.
        seed: Seed of the validation samples and of NLEEP's mixture.

    Raises:
        InputError: If the dimensions of the samples differ, or there are too few samples.
    """
    dim = train.features.shape[1]
    if test.features.shape[1] != dim:
        raise InputError(
            expected=f"held-out features of dimension {dim}",
            found=f"dimension {test.features.shape[1]}",
            fix="take them from the same layer",
        )
    if validation is None:
        _check_shared(train.labels, "training samples", "some choose the strength of the probe")
        held_out = hold_out(train.labels, seed)
        fitted, validation, scored = train.select(~held_out), train.select(held_out), train
    else:
        fitted, scored = train, train.join(validation)
    choice = choose_for_samples(fitted, validation, measure, scale_strengths(fitted.features))
    predictions = choice.probe.predict(test.features)
    scores = moment_scores(finish(gather_moments(scored)))
    by_sample = sample_scores(scored, source, expensive=expensive, seed=seed)
    scores |= by_sample.values
    if pretraining is not None:
        before = moment_scores(finish(pretraining))
        scores |= {key: before[key.removeprefix(PRETRAINING)] for key in PRETRAINING_SCORES}
    scores |= baselines or {}
    return CheckpointResult(
        name,
        scores,
        MEASURES[measure](predictions, test.labels),
        choice.strength,
        sort_answers(predictions, test.labels),
        by_sample.parts,
        by_sample.omissions,
        by_sample.errors,
        size=(len(scored.labels), len(scored.classes), dim),
    )


def hold_out(labels: Int[Tensor, " n"], seed: int, share: float = 0.2) -> Tensor:
    """Mark a random share of each class's samples; a class with one sample keeps it.

    Args:
        labels: Labels of all samples.
        seed: Seed of the draw.
        share: Share of each class, rounded to at least one sample.

    Example:
        >>> hold_out(torch.tensor([0] * 5 + [1] * 10 + [2]), seed=0).sum()
        tensor(3)
    """
    # On the CPU, so that every device holds out the same samples.
    draws = torch.Generator().manual_seed(seed)
    mask = torch.zeros(len(labels), dtype=torch.bool, device="cpu")
    for label in labels.unique():
        members = torch.nonzero(labels.cpu() == label.cpu()).flatten()
        members = members[torch.randperm(len(members), generator=draws, device="cpu")]
        count = max(1, round(share * len(members))) if len(members) > 1 else 0
        mask[members[:count]] = True
    return mask.to(labels.device)


def split_samples(
    samples: DownstreamSamples, seed: int
) -> tuple[DownstreamSamples, DownstreamSamples]:
    """Split samples into training samples and a fifth of each class that is held out.

    Raises:
        InputError: If fewer than two classes have two samples.
    """
    _check_shared(samples.labels, "samples", "some are held out to judge the probe by")
    held_out = hold_out(samples.labels, seed)
    return samples.select(~held_out), samples.select(held_out)


def _pretraining_moments(samples: tuple[Any, Any] | ClassMoments) -> ClassMoments:
    """Return the moments of features and labels, or check moments that were gathered before."""
    if not isinstance(samples, ClassMoments):
        return gather_moments(check_downstream(*samples))
    if samples.statistics != ALL_STATISTICS or samples.prior != "empirical":
        found = f"{', '.join(sorted(samples.statistics)) or 'neither'}, prior {samples.prior}"
        expected = "moments with scatter and directions under the empirical prior"
        raise InputError(expected=expected, found=found, fix="gather them with the defaults")
    return samples


def gather_moments(samples: DownstreamSamples) -> ClassMoments:
    """Gather class moments of features, scaled by a power of two so that squares stay in range."""
    features = samples.features
    moments = ClassMoments(len(samples.classes), features.shape[1], device=features.device)
    # No score depends on the scale of the features, but their squares must stay in range. A power
    # of two is exact: the scores are those of the features as given, to the last digit.
    largest = torch.linalg.vector_norm(features, ord=torch.inf)
    moments.update(features * unit_scale(largest), samples.class_indices)
    return moments


def _check_inputs(
    features: Mapping[str, Any],
    test_features: Mapping[str, Any] | None,
    test_labels: Any,
    pretraining: Mapping[str, Any] | None,
    baselines: Mapping[str, Mapping[str, float]],
) -> None:
    """Check that inputs by checkpoint have the names of the checkpoints."""
    if not features:
        fix = "pass the features of each by its name"
        raise InputError(expected="at least one checkpoint", found="none", fix=fix)
    if (test_features is None) != (test_labels is None):
        found, fix = "one of the two", "pass both or neither"
        raise InputError(expected="held-out features with their labels", found=found, fix=fix)
    for what, others in (
        ("held-out samples", test_features),
        ("pretraining samples", pretraining),
    ):
        missing = [name for name in features if others is not None and name not in others]
        if missing:
            fix = "name them as the features are named"
            expected, found = f"{what} of every checkpoint", f"none of {missing[0]!r}"
            raise InputError(expected=expected, found=found, fix=fix)
    fix = f"pass {{checkpoint: {{key: number}}}} with the keys {', '.join(BASELINES)}"
    if baselines and not any(name in features for name in baselines):
        found = repr(next(iter(baselines)))
        raise InputError(expected="baselines by checkpoint", found=found, fix=fix)
    unknown = [key for facts in baselines.values() for key in facts if key not in BASELINES]
    if unknown:
        expected = f"baselines named {', '.join(BASELINES)}"
        raise InputError(expected=expected, found=repr(unknown[0]), fix=fix)


def _check_shared(labels: Int[Tensor, " n"], what: str, use: str) -> None:
    """Check that at least two classes have two samples or more, so that they can be split."""
    several = int((labels.unique(return_counts=True)[1] > 1).sum())
    if several < 2:
        raise InputError(
            expected=f"two {what} or more of two classes",
            found=f"{several} such class{'es' * (several != 1)} in {len(labels)} samples",
            fix=f"pass more samples: {use}",
        )
