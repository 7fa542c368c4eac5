"""Options of a model's measurement, which `measure_model`, `watch` and the callbacks share."""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from ncscope.arguments import Count, NotNegative, Seed, Size, Within, check_arguments
from ncscope.errors import InputError
from ncscope.labels import IgnoreIndex
from ncscope.stats.options import Precision, Prior, Redraw
from ncscope.stats.processes import Processes
from ncscope.stats.store import DEFAULT_BUDGET

SecondPass: TypeAlias = Literal["store", "recompute"] | Annotated[int, Within(2)]
"""Samples of the second pass: stored, computed again, or a random sample of so many."""

SplitBatch: TypeAlias = Callable[[Any], tuple[Any, Any]] | str | None
"""Function that returns inputs and labels of a batch, or name of the entry of the labels."""


@check_arguments
@dataclass(frozen=True, eq=False, kw_only=True)
class Options:
    """Options of a model's measurement: what is measured, and how.

    `measure_model`, `watch` and the callbacks for Lightning and Hugging Face take such an object,
    or its fields as keywords of their own.

    Attributes:
        layers: Names or glob patterns of layers, or one, to measure besides the features that the
            head reads; by default the repeated blocks. Each call of a layer is a layer of the
            report: the second call of ``block`` is ``block#2``.
        head: Name of the classifier head; by default the head is detected.
        groups: Groups of metrics of the head's features, or keys of single metrics
            (``"key:nc1"`` for the metric that has the name of a group); by default all.
        layer_groups: Groups of metrics of the other layers, by default PFC1-3 only, which need
            no d x d matrix; None for all. With ``"per_class"`` each layer has a table of classes.
        prior: Class prior, ``"empirical"`` or ``"uniform"``.
        class_counts: Number of samples of each class; required for the uniform prior.
        weight_decay: Weight decay on the head that the MSE decomposition assumes.
        pool: Average feature maps over space, and sequences over tokens, if True; flatten both if
            False. By default, a sequence with an attention mask is averaged over the tokens that
            the mask keeps, and everything else is flattened.
        next_token: Take the label of the following token as a token's class if True. This is for
            causal language models, whose labels are their inputs.
        ignore_index: Label of samples, tokens or pixels to leave out in every layer, or several,
            such as -1 or 255; a note has their number. Tokens labelled -100 are always left out.
        class_names: Names of the classes, in the order of the head's rows; labels may then be
            names. By default, the names that the data set (``classes``, or the features of the
            library ``datasets``) or the model (``config.id2label``) knows, if their number is that
            of the rows.
        split_batch: Function that returns inputs and labels of a batch, or the name of the entry
            of the labels in a mapping. By default, batches are pairs, mappings with ``labels``,
            ``label``, ``target`` or ``targets``, or triples of inputs, labels and indices. A loop
            of your own passes labels by itself: there the option has no effect.
        baseline: Measure every layer with permuted labels too; None does so for small samples. See
            `measure`.
        uncertainty: Standard errors to estimate, if any; see `measure`.
        by_class: Make the table of classes, up to 1,000 classes, if True. By default,
            `measure_model` and `watch` make it and callbacks do not: a history of many measurements
            with such tables is large.
        information_batch: Number of samples in a batch of the batch estimate of MIR and HDR, which
            is computed with the group ``"information"``; None for no such estimate.
        precision: ``"float64"``, or ``"blocked"`` for accelerators that are slow in float64; see
            `ClassMoments`.
        second_pass: Samples on which the nearest-mean rule decides, for which the class means must
            be finished first. ``"store"`` keeps the features of all samples. ``"recompute"`` keeps
            none and runs the loader again, which must yield the same samples, in any order: random
            augmentation is refused, and so are passes that your own loop runs. A number n keeps n
            samples at random (of each process), and the report has the standard errors of the
            shares that are estimated from them.
        sample_seed: Seed with which these samples are drawn.
        memory: Bytes of features that ``"store"`` keeps in memory; more goes to disk. The
            statistics that standard errors need may take as much.
        disk: Bytes of features that ``"store"`` writes to disk at most, by default half of the
            free space of the temporary folder.
        progress: Show a progress bar if True (on stderr, in a terminal).
        process_group: Process group of ``torch.distributed``, in which this process is; its
            processes measure their samples together. By default, all processes do.

    Raises:
        InputError: If a field has a value of another type or size.

    Example:
        >>> options = Options(layers=["blocks.*"], pool=True, uncertainty=True)
        >>> options.second_pass
        'store'
    """

    layers: Sequence[str] | None = None
    head: str | None = None
    groups: Collection[str] | None = None
    layer_groups: Collection[str] | None = ("pfc",)
    prior: Prior = "empirical"
    class_counts: Any = None
    weight_decay: NotNegative = 0.0
    pool: bool | None = None
    next_token: bool = False
    ignore_index: IgnoreIndex = None
    class_names: Sequence[str] | None = None
    split_batch: SplitBatch = None
    baseline: bool | None = False
    uncertainty: Redraw = False
    by_class: bool | None = None
    information_batch: Size | None = None
    precision: Precision = "float64"
    second_pass: SecondPass = "store"
    sample_seed: Seed = 0
    memory: Count = DEFAULT_BUDGET
    disk: Count | None = None
    progress: bool = True
    process_group: Any = None

    def __post_init__(self) -> None:
        for name in ("layers", "class_names"):
            if isinstance(text := getattr(self, name), str):  # else names of one letter
                object.__setattr__(self, name, (text,))

    @property
    def processes(self) -> Processes:
        """Processes that measure together.

        Raises:
            InputError: If this process is not in the group.
        """
        return Processes(self.process_group)

    @property
    def resamples(self) -> bool:
        """True if chance level or standard errors may be measured on stored samples."""
        return self.second_pass == "store" and (
            self.uncertainty is not False or self.baseline is not False
        )


class OptionFields(TypedDict, total=False):
    """Fields of `Options` as keywords of a function."""

    layers: Sequence[str] | None
    head: str | None
    groups: Collection[str] | None
    layer_groups: Collection[str] | None
    prior: Prior
    class_counts: Any
    weight_decay: NotNegative
    pool: bool | None
    next_token: bool
    ignore_index: IgnoreIndex
    class_names: Sequence[str] | None
    split_batch: SplitBatch
    baseline: bool | None
    uncertainty: Redraw
    by_class: bool | None
    information_batch: Size | None
    precision: Precision
    second_pass: SecondPass
    sample_seed: Seed
    memory: Count
    disk: Count | None
    progress: bool
    process_group: Any


def merge_options(options: Options | None, fields: OptionFields) -> Options:
    """Return options in which the fields given as keywords have replaced those of the object.

    Args:
        options: Options as one object; None for the defaults.
        fields: Fields given as keywords.

    Raises:
        InputError: If there is no such field, or a value does not fit.
    """
    names = [field.name for field in dataclasses.fields(Options)]
    unknown = [name for name in fields if name not in names]
    if unknown:
        near = [name for name in names if unknown[0] in name.split("_")]
        near += get_close_matches(unknown[0], names, n=2)
        said = " or ".join(dict.fromkeys(near))
        fix = f"did you mean {said}?" if near else f"the options are {', '.join(names)}"
        raise InputError(expected="a field of Options", found=unknown[0], fix=fix)
    return dataclasses.replace(options or Options(), **fields)
