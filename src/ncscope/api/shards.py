"""Measurement of a data set in parts: a pass over each shard, merged as a fixed tree."""

import builtins
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from jaxtyping import Int
from torch import Tensor

from ncscope.api.gather import DecisionPass, gather, gather_names
from ncscope.api.inputs import (
    check_classifier,
    check_head,
    check_name_count,
    has_one_row,
    note_order,
    refuse_numerals,
)
from ncscope.api.result import Report
from ncscope.api.shard_files import (
    EVERYTHING,
    Columns,
    Shard,
    batches_of,
    find_order,
    is_file_shard,
    open_shard,
    resolve_shard,
    shard_name,
)
from ncscope.arguments import NotNegative, Size, check_arguments, describe
from ncscope.array_checks import as_tensor
from ncscope.errors import InputError, list_names
from ncscope.labels import (
    NAMES_IN_PARTS,
    IgnoreIndex,
    check_names,
    note_alike,
    note_left_out,
    unite_names,
)
from ncscope.measurement.samples import layer_record
from ncscope.metrics.evaluate import LEFT_OUT, find_needs
from ncscope.metrics.sources import ONE_LOGIT, Sources
from ncscope.stats.decisions import DecisionCounts
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import ALL_STATISTICS, Precision, Prior, Statistic
from ncscope.stats.statistics import finish

Result = TypeVar("Result", ClassMoments, DecisionCounts)

Map: TypeAlias = Callable[[Any, Sequence[Any]], Iterable[Any]]
"""Function that applies a function to each element, and gives the results in order."""

_NEEDS_ALL = (
    "mir, hdr and their parts are left out: they need all samples at once; "
    "ncscope.measure computes them for features that fit into memory"
)


@dataclass(frozen=True, eq=False)
class ShardPass:
    """One pass over a shard, as a function that can be pickled for other processes.

    Attributes:
        name: Name of the pass, for messages.
        num_classes: Number of classes; None lets the number grow.
        dim: Feature dimension; None takes that of the first batch.
        statistics: Statistics besides counts, means and traces.
        prior: Class prior of the pooled scatter.
        class_counts: Number of samples of each class in all shards, if the prior needs them.
        precision: Precision of the moments.
        ignore_index: Label of samples to leave out, or several.
        class_names: Names of the classes, for labels that are names.
        look: True to look at the labels only: the moments have the names in them and no samples.
        second: Class means and classifier of the second pass; None for the first pass.
        columns: Parts of files that hold features and labels.
    """

    name: str = "first pass"
    num_classes: Size | None = None
    dim: int | None = None
    statistics: tuple[Statistic, ...] = ()
    prior: Prior = "empirical"
    class_counts: Int[Tensor, " k"] | None = None
    precision: Precision = "float64"
    ignore_index: IgnoreIndex = None
    class_names: tuple[str, ...] = ()
    look: bool = False
    second: DecisionPass | None = None
    columns: Columns = EVERYTHING

    def __call__(self, shard: Shard) -> ClassMoments | DecisionCounts:
        """Gather the statistics of a shard; an error names the shard, if it has a name."""
        try:
            batches = batches_of(shard, self.columns, self.look) if is_file_shard(shard) else shard
            if self.second is not None:
                return gather(batches, second=self.second)
            if self.look:
                return ClassMoments(statistics=(), class_names=gather_names(batches))
            return gather(
                batches,
                self.num_classes,
                self.dim,
                statistics=self.statistics,
                prior=self.prior,
                class_counts=self.class_counts,
                precision=self.precision,
                ignore_index=self.ignore_index,
                class_names=self.class_names,
            )
        except InputError as error:
            name = shard_name(shard)
            if not name or name in error.expected + error.found:
                raise
            raise error.but(found=f"{error.found} ({name})") from error


@check_arguments
def measure_shards(
    shards: Iterable[Shard],
    *,
    weight: Any = None,
    bias: Any = None,
    num_classes: Size | None = None,
    ignore_index: IgnoreIndex = None,
    class_names: Sequence[str] | None = None,
    groups: Collection[str] | None = None,
    prior: Prior = "empirical",
    weight_decay: NotNegative = 0.0,
    precision: Precision = "float64",
    features: str | None = None,
    labels: str | None = None,
    map: Map = builtins.map,  # noqa: A002, it takes the place of the builtin
) -> Report:
    """Measure neural collapse in a data set given in parts, which several machines may read.

    A first pass gathers the moments of each shard. They are merged as a tree that is fixed by the
    order of the shards, so the result does not depend on which shard is finished first. A second
    pass, for NC4, nearest-mean and classifier accuracy, counts the decisions with the merged means.
    The values are those of `measure` for all samples, up to rounding. Entropies of the whole data
    set (``mir``, ``hdr``) are absent, because they need all samples at once.

    Args:
        shards: Parts of the data set: paths or addresses of .npz, .safetensors, torch.save, CSV,
            Parquet or HDF5 files; pairs of paths of .npy files, of features and labels; iterables
            of batches that can be iterated twice (lists, data loaders); or functions without
            arguments that return an iterable of batches. A batch is a pair of features and labels,
            or a mapping with these entries. A shard may be empty. Labels in files may be names.
        weight: Classifier weight K x d.
        bias: Classifier bias, K.
        num_classes: K; by default the number of rows of ``weight``, else the largest label + 1.
        ignore_index: Label of samples to leave out, or several; a note has their number.
        class_names: Names of the classes, in the order of the rows of ``weight``. By default, if
            labels are names, one more pass finds the names in all shards; they are numbered
            alphabetically, or in the order of their categories if all batches have the same.
        groups: Groups of metrics, by default all that apply.
        prior: Class prior. ``"uniform"`` costs one more pass, which counts the labels.
        weight_decay: Decay on weight and bias that the MSE decomposition assumes.
        precision: ``"float64"`` or ``"blocked"``; see `ClassMoments`.
        features: Entry of the files that holds the features, or their columns in tables: names and
            patterns separated by commas, those after ``!`` left out. By default ``features``,
            ``embeddings`` or ``x``; of a table the column of lists, or all but the labels.
        labels: Entry or column of the labels, by default ``labels``, ``targets`` or ``y``.
        map: Function like the builtin ``map``, which gives the results in the order of the shards:
            the ``imap`` or ``map`` of a process pool, the ``map`` of an executor or of
            ``ray.util.multiprocessing.Pool``. If it is lazy, as the builtin and ``imap`` are, at
            most about log2(shards) + 2 moments are alive in this process.

    Returns:
        A report, as from `measure`.

    Raises:
        InputError: If a shard cannot be read or is named twice, tables have other columns than
            the first, no shard has samples, the classifier does not fit, or the second pass has
            another number of samples than the first.

    Example:
        >>> import ncscope
        >>> shard = [([[0.0], [1.0]], [0, 0]), ([[4.0], [5.0]], [1, 1])]
        >>> report = ncscope.measure_shards([shard, shard])
        >>> report["nc1_quotient"], report["ncc_accuracy"], report.num_samples
        (0.0625, 1.0, 8)
    """
    if isinstance(shards, str | Path):
        fix = "pass a list of files, for example sorted(glob.glob('features/*.parquet'))"
        raise InputError(expected="a list of shards", found="a single path", fix=fix)
    shards = list(shards)
    files = [(resolve_shard(shard), shard) for shard in shards if is_file_shard(shard)]
    written = dict(files)
    times = Counter(path for path, _ in files)
    twice = [written[path] for path in times if times[path] > 1]
    if twice:  # the samples would count twice
        found = f"{list_names(twice, 1)} twice or more"
        raise InputError(expected="each file once", found=found, fix="name it once")
    columns = Columns(features, labels)
    check_head(weight, bias)
    head = None if weight is None else as_tensor(weight, "weight")
    rows, dim = (None, None) if head is None or head.ndim != 2 else head.shape
    rows = 2 if has_one_row(head) and num_classes in (None, 2) else rows
    if bias is not None and rows is not None and dim is not None:
        check_classifier(head, bias, rows, dim, "cpu")  # before hours of reading
    needs = find_needs(groups, head is not None)
    k = rows if num_classes is None else num_classes
    names = check_names(class_names)
    if k is not None:
        check_name_count(names, k)
    columns = replace(columns, order=find_order(shards, columns))
    first = ShardPass(
        num_classes=k,
        dim=dim,
        prior=prior,
        precision=precision,
        ignore_index=ignore_index,
        class_names=names,
        columns=columns,
    )

    def gather_all(first: ShardPass) -> ClassMoments:
        if prior == "uniform" and "scatter" in needs:
            # A sample weighs 1 / n_c in the pooled scatter, so n_c must be known beforehand.
            labels_only = replace(first, name="class counts")
            counts = merge_moments(_apply_map(map, labels_only, shards, ClassMoments))
            first = replace(first, num_classes=counts.num_classes, class_counts=counts.counts)
        first = replace(first, statistics=tuple(sorted(ALL_STATISTICS.intersection(needs))))
        return merge_moments(_apply_map(map, first, shards, ClassMoments))

    try:
        try:
            moments = gather_all(first)
        except InputError as error:
            if error.expected != NAMES_IN_PARTS:
                raise
            # One shard alone does not tell the number of a name: all are looked at before.
            look = replace(first, name="class names", look=True)
            parts = _apply_map(map, look, shards, ClassMoments)
            names = unite_names(part.class_names for part in parts)
            check_name_count(names, k or len(names))
            if head is not None:
                refuse_numerals(names)
            moments = gather_all(replace(first, class_names=names))
    except InputError as error:
        if head is None or error.expected != f"features of dimension {dim}":
            raise
        expected = f"{error.expected}, as the weight has columns"
        fix = "pass the classifier that reads these features (shape is (num_classes, dim))"
        raise error.but(expected=expected, fix=fix) from error
    k, d = moments.num_classes, moments.dim
    classifier = check_classifier(head, bias, k, d, "cpu")
    stats = finish(moments)
    left_out = int(moments.left_out)
    notes = note_left_out(left_out, stats.num_samples + left_out, ignore_index)
    del moments
    decisions = None
    if needs & {"decisions", "hits"}:
        means_and_head = DecisionPass.from_statistics(stats, *classifier[:2], ignore_index, names)
        second = ShardPass("second pass", second=means_and_head, columns=columns)
        part, *others = _apply_map(map, second, shards, DecisionCounts)
        decisions = sum(others, start=part)
        if decisions.samples != stats.num_samples:
            raise InputError(
                expected=f"the {stats.num_samples:,} samples of the first pass in the second",
                found=f"{decisions.samples:,}",
                fix="pass lists, files, or functions that return an iterable: a generator ends",
            )
    hits = None if decisions is None else decisions.hits
    sources = Sources(
        stats,
        *classifier[:2],
        decisions,
        weight_decay=weight_decay,
        hits=hits,
        one_logit=classifier.one_logit,
    )
    record = layer_record("features", sources, groups, by_class=True)
    notes += note_alike(names)
    notes += note_order(names) if head is not None and class_names is None else ()
    notes += (ONE_LOGIT,) if classifier.one_logit else ()
    if "information" in needs:
        notes += tuple(note for note in record.notes if note != LEFT_OUT)
        notes += (_NEEDS_ALL,)
    else:
        notes += record.notes
    if shards and is_file_shard(shards[0]):
        notes = (*open_shard(shards[0], columns).notes, *notes)
    report = Report(replace(record, notes=notes), stats)
    report.class_names = names
    return report


def _apply_map(
    user_map: Map, shard_pass: ShardPass, shards: Sequence[Shard], form: type[Result]
) -> Iterator[Result]:
    """Yield the result of each shard as it comes from the user's map."""
    results = user_map(shard_pass, shards)
    count, found = 0, describe(results)
    if isinstance(results, Iterable):
        for result in results:
            if not isinstance(result, form):
                found = f"{describe(result)} as result {count + 1}"
                break
            yield result
            count += 1
        else:
            found = "" if count == len(shards) else f"{count} results of {len(shards)} shards"
    if found:
        fix = "pass a function that applies its first argument to each element of its second"
        raise InputError(expected="a map that gives one result a shard", found=found, fix=fix)


def merge_moments(parts: Iterable[ClassMoments]) -> ClassMoments:
    """Merge moments as a tree that is fixed by their order; the parts may be overwritten.

    Parts of equal size are merged as soon as both are there, so that log2(n) + 1 are alive. Sums in
    floating point depend on their order: with a fixed tree, the last bits of a result do not
    depend on which machine was faster.

    Args:
        parts: Moments of the same form.

    Raises:
        InputError: If there are no parts, or none has samples.
    """
    tree: list[tuple[int, ClassMoments]] = []
    count = 0
    for part in parts:
        size, count = 1, count + 1
        while tree and tree[-1][0] == size:
            part = tree.pop()[1].merge(part)
            size *= 2
        tree.append((size, part))
    while len(tree) > 1:
        size, last = tree.pop()
        tree[-1][1].merge(last)
    if not tree or not bool(tree[0][1].counts.any()):
        found = f"none in {count} shards"
        raise InputError(expected="samples in the shards", found=found, fix="check the files")
    return tree[0][1]
