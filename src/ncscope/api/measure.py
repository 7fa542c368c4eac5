"""Measurement of collapse in features, or in class moments accumulated before."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ncscope.api.inputs import (
    check_classifier,
    check_head,
    check_ood,
    check_samples,
    check_unlabelled,
    refuse_without_labels,
)
from ncscope.api.missing import note_omissions
from ncscope.api.result import Report
from ncscope.arguments import NotNegative, Size, check_arguments
from ncscope.array_checks import in_one_order, name_columns, split_frame
from ncscope.errors import InputError
from ncscope.labels import IgnoreIndex, note_left_out
from ncscope.measurement.samples import (
    layer_record,
    measure_samples,
    measure_unlabelled,
    spectra_record,
)
from ncscope.metrics.sources import ONE_LOGIT, Sources
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import Precision, Prior, Redraw
from ncscope.stats.statistics import ClassStatistics, finish, finish_unlabelled


@check_arguments
def measure(
    features: Any,
    labels: Any = None,
    weight: Any = None,
    bias: Any = None,
    *,
    num_classes: Size | None = None,
    ignore_index: IgnoreIndex = None,
    class_names: Sequence[str] | None = None,
    prior: Prior = "empirical",
    groups: Collection[str] | None = None,
    weight_decay: NotNegative = 0.0,
    reference: "ClassMoments | Report | None" = None,
    baseline: bool | None = False,
    uncertainty: Redraw = False,
    precision: Precision = "float64",
    ood: Any = None,
) -> Report:
    r"""Measure neural collapse in features.

    Args:
        features: n x d array-like of any magnitude: NumPy, torch (any device and float type),
            memmap, data frame, column of vectors; or a list of batches of these. Sparse and masked
            arrays are refused.
        labels: Class of each sample: n integers in 0..K-1, or names, also as a column of pandas,
            polars, pyarrow or ``datasets``, with or without categories; or a list of batches of
            these; or the name of their column, if features are a data frame. None measures the
            spectra alone, which need no labels: RankMe, effective rank,
            participation ratio, and the decay of the spectrum.
        weight: Classifier weight K x d; without a weight, the metrics that need one are absent. A
            single row, as scikit-learn's ``coef_`` for two classes, is a logit z of class 1: the
            rows measured give -z/2 and z/2, without the group ``"mse"``.
        bias: Classifier bias, K; None for a classifier without a bias.
        num_classes: K; by default the number of rows of ``weight``, else the largest label + 1.
        ignore_index: Label of samples to leave out, or several, such as -1 or 255; a note has
            their number.
        class_names: Names of the classes, in the order of the rows of ``weight``, which tables and
            pages then show. By default names given as labels are numbered in the order of their
            categories, or alphabetically.
        prior: Class prior: ``"empirical"`` $n_c/N$ or ``"uniform"`` $1/K$.
        groups: Groups of metrics: any of ``"nc1"``, ``"nc2"``, ``"nc3"``, ``"nc4"``, ``"pfc"``,
            ``"mse"``, ``"information"``, ``"spectra"``, ``"ood"``, or keys of single metrics
            (``"key:nc1"`` for the metric that has the name of a group); by default all that apply.
            ``"per_class"`` makes ``report.per_class`` for any number of
            classes. By default the table is made for up to 1,000; other groups leave it out.
        weight_decay: Decay on weight and bias that the MSE decomposition assumes.
        reference: Moments or report of the training set, which also numbers labels that are names,
            unless ``class_names`` does; the nearest-mean rule then uses the class
            means of the training set instead of those of these features, and so do the metrics of
            OOD samples, with the principal directions of the training set.
        baseline: Measure the same features with permuted labels too, in ``report.baseline``: the
            chance level, which noise reaches, the median of nine permutations (one where a
            measurement takes long). None measures it if $nd\le10^7$.
        uncertainty: Estimate standard errors in ``report.standard_errors``, by a jackknife over 20
            groups of samples; every class needs 20 samples. True holds the sizes of the classes:
            other samples would be as many of each class. ``"random_sizes"`` lets the sizes vary,
            as they do if samples and labels are drawn together.
        precision: ``"float64"``, or ``"blocked"`` for accelerators that are slow in float64; see
            `ClassMoments`.
        ood: Features of samples from outside the distribution, m x d, to compare with: NC5, and
            how well scores tell the two kinds apart (the group ``"ood"``).

    Returns:
        Mapping from metric key to value, with spectra, notes, warnings, ``to_json``, ``plot`` and
        ``save``. Warnings say which values may mislead.

    Raises:
        InputError: If the input is bad; the message names what was expected, what was found, and
            the fix.

    Cost: two reads of the features and one product in float64 ($\frac54nd^2$ operations), and a
    third read for the products with means and weights ($4nKd$) in the precision of the features;
    the results are exact to float64 for every precision. With $n<d/4$
    samples no d x d matrix is formed. The group ``"information"`` adds seconds. For more than 4,096
    samples and $Kd^2>2^{25}$ it takes 10 seconds to minutes of a core, and is computed only if it
    is requested by name. So are sums over $K^2$ pairs above 65,536 classes (the energies above
    10,000), and the decisions of NC4 if $nK(d+64)>2^{41}$ and $K>4d$. A note names what is left
    out. The chance level costs nine more measurements, one where $nd\max(d,K)>10^8$, and standard
    errors cost about 20 measurements.

    Example:
        >>> import torch, ncscope
        >>> from ncscope.math.frames import simplex_etf
        >>> etf = simplex_etf(3, dim=4)
        >>> report = ncscope.measure(etf.repeat(5, 1), torch.arange(3).repeat(5), weight=etf)
        >>> round(report["nc2_etf"], 12), report["accuracy"]
        (0.0, 1.0)
        >>> round(ncscope.measure(etf.repeat(5, 1))["participation_ratio"], 12)
        2.0
    """
    if labels is None:
        refuse_without_labels(
            weight=weight is not None,
            bias=bias is not None,
            num_classes=num_classes is not None,
            prior=prior != "empirical",
            weight_decay=bool(weight_decay),
            reference=reference is not None,
            baseline=bool(baseline),
            ood=ood is not None,
            ignore_index=ignore_index is not None,
            class_names=class_names is not None,
        )
        rows = check_unlabelled(features)
        return Report(
            *measure_unlabelled(
                "features", rows, groups=groups, uncertainty=uncertainty, precision=precision
            )
        )
    if isinstance(labels, str):
        features, labels = split_frame(features, labels)
    # Frames are matched by the names of their columns, arrays by the places.
    frame = features[0] if isinstance(features, list | tuple) and features else features
    columns, known = name_columns(frame), getattr(reference, "columns", ())
    if columns and known and columns != known:
        raise InputError(
            expected=f"the columns of the reference, {list(known[:5])}, in order",
            found=f"{list(columns[:5])}",
            fix="choose the same columns of both: frame[columns]",
        )
    if columns and {*name_columns(weight)} == {*columns}:
        weight = in_one_order([frame, weight], "weight")[1]
    samples = check_samples(
        features,
        labels,
        weight,
        bias,
        num_classes,
        ignore_index=ignore_index,
        class_names=class_names,
        has_ignore_index=True,
        reference_names=getattr(reference, "class_names", ()),
    )
    record, stats = measure_samples(
        "features",
        samples.features,
        samples.labels,
        samples.num_classes,
        samples.weight,
        samples.bias,
        one_logit=samples.one_logit,
        prior=prior,
        groups=groups,
        weight_decay=weight_decay,
        reference=_reference_statistics(reference, samples.features.shape[1]),
        baseline=baseline,
        uncertainty=uncertainty,
        precision=precision,
        ood=None
        if ood is None
        else check_ood(in_one_order([frame, ood], "OOD features")[1], samples.features),
        by_class=True,
    )
    lacking = note_omissions(groups, record.metrics, one_logit=samples.one_logit)
    one = [ONE_LOGIT] if samples.one_logit else []
    notes = (*samples.notes, *one, *record.notes, *lacking)
    report = Report(replace(record, notes=notes), stats)
    report.class_names, report.columns = samples.class_names, columns
    return report


@check_arguments
def measure_moments(
    moments: ClassMoments,
    weight: Any = None,
    bias: Any = None,
    *,
    groups: Collection[str] | None = None,
    weight_decay: NotNegative = 0.0,
) -> Report:
    """Measure collapse in moments that were accumulated batch by batch, or merged from several.

    Args:
        moments: Moments of the features. Metrics whose statistics the moments lack are absent, and
            so are metrics that need a second pass over the features (NC4, dataset MIR and HDR).
            Moments of one class (``num_classes=1``) stand for unlabelled samples, whose spectra
            are measured. Chance level and standard errors need the features too: see `measure`.
        weight: Classifier weight, K x d.
        bias: Classifier bias, K.
        groups: Groups of metrics, by default all that the moments allow.
        weight_decay: Decay on weight and bias that the MSE decomposition assumes.

    Returns:
        A report, as from `measure`.

    Raises:
        InputError: If one of several classes alone has samples, or weight or bias do not fit.

    Example:
        >>> import torch, ncscope
        >>> moments = ncscope.ClassMoments(num_classes=2, dim=1)
        >>> moments.update(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 0]))
        >>> moments.update(torch.tensor([[4.0], [5.0]]), torch.tensor([1, 1]))
        >>> ncscope.measure_moments(moments)["nc1_quotient"]
        0.0625
    """
    check_head(weight, bias)
    if moments.num_classes == 1:
        refuse_without_labels(weight=weight is not None, weight_decay=bool(weight_decay))
        unlabelled = finish_unlabelled(moments)
        return Report(spectra_record("features", unlabelled, groups), unlabelled)
    stats = finish(moments)
    k, d, device = moments.num_classes, moments.dim, moments.device
    classifier = check_classifier(weight, bias, k, d, device)
    sources = Sources(
        stats,
        classifier.weight,
        classifier.bias,
        weight_decay=weight_decay,
        one_logit=classifier.one_logit,
    )
    record = layer_record("features", sources, groups, by_class=True)
    left_out = int(moments.left_out)
    notes = note_left_out(left_out, stats.num_samples + left_out, moments.ignore_index)
    notes += (ONE_LOGIT,) if classifier.one_logit else ()
    report = Report(replace(record, notes=(*notes, *record.notes)), stats)
    report.class_names, report.columns = moments.class_names, moments.columns
    return report


def _reference_statistics(
    reference: "ClassMoments | Report | None", dim: int
) -> ClassStatistics | None:
    """Return the statistics whose class means the nearest-mean rule uses."""
    if reference is None:
        return None
    if not isinstance(reference, ClassMoments | Report):
        fix = "pass what measure returned for the training set, or its moments"
        found = type(reference).__name__
        raise InputError(expected="moments or a report as reference", found=found, fix=fix)
    stats = (
        finish(reference) if isinstance(reference, ClassMoments) else reference.require_statistics()
    )
    if stats.dim != dim:
        fix = "measure the same layer of the same model on the training set"
        found = f"dimension {stats.dim}"
        raise InputError(expected=f"a reference of dimension {dim}", found=found, fix=fix)
    return stats
