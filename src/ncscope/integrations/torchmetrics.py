"""Neural collapse as a metric of torchmetrics."""

import copy
import functools
import math
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.api.inputs import check_classifier, check_name_count
from ncscope.arguments import NotNegative, Size, check_arguments
from ncscope.array_checks import (
    as_tensor,
    check_features,
    check_range,
    refuse_nonfinite,
)
from ncscope.errors import InputError, library_error
from ncscope.labels import IgnoreIndex, check_names, note_left_out, read_labels
from ncscope.measurement.samples import measure_samples
from ncscope.memory import check_memory
from ncscope.metrics.evaluate import evaluate, find_metric, find_needs, select
from ncscope.metrics.names import KEY
from ncscope.metrics.sources import Sources
from ncscope.models.replicas import digest_tensors
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import ALL_STATISTICS, Precision, Prior
from ncscope.stats.processes import Processes
from ncscope.stats.statistics import finish

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
    from torchmetrics.wrappers import (
        BootStrapper,
        ClasswiseWrapper,
        MetricTracker,
        MinMaxMetric,
        MultioutputWrapper,
        Running,
    )
except ModuleNotFoundError as error:
    raise ImportError(str(library_error("torchmetrics"))) from error

HEADLINES = ("nc1", "nc2_etf", "nc3_self_duality", "nc4_disagreement")
"""Metrics that `NeuralCollapse.plot` draws: for each of NC1 to NC4, one that is 0 at collapse."""

_NOT_GIVEN = math.inf
"""Value that stands for a missing head. `NeuralCollapse.update` refuses a head that is not finite.
NaN would not do: torchmetrics compares states, and NaN is unequal to NaN."""


@check_arguments
class NeuralCollapse(Metric):
    r"""Metrics of neural collapse from a stream of features and labels.

    By default the state is that of `ClassMoments`: its size does not depend on the number of
    samples, any split into batches and processes gives the same values, and ``compute`` returns
    the metrics of `measure_moments`. NC4, the nearest-class-mean accuracy and the dataset's MIR and
    HDR need a second pass over the features, after the class means are computed. With
    ``keep_features`` the features are the state, and ``compute`` returns the metrics of `measure`.

    Sums stay in float64, even if the metric or a model that holds it is converted. If fewer than
    two classes have samples, as may happen in a single batch, every value is NaN. Several threads
    may use the metric; the calls run one after another.

    Args:
        num_classes: Number of classes k.
        dim: Feature dimension d.
        groups: Groups of metrics, as for `measure`; by default all that the state allows.
        key: Key of one metric, such as ``"nc1"``: ``compute`` then returns this value alone, as the
            wrappers of torchmetrics and `LightningModule.log` want it. The direction in which
            neural collapse drives the value sets ``higher_is_better``. None for all values.
        keep_features: Keep the features if True, for the groups ``"nc4"``, ``"pfc"`` and
            ``"information"``, and for the uniform prior.
        prior: Class prior, ``"empirical"`` or ``"uniform"``. Under the uniform prior, all groups
            except ``"nc2"`` and ``"nc3"`` need the features.
        weight_decay: Weight decay on the classifier that the MSE decomposition assumes.
        precision: ``"float64"``, or ``"blocked"`` for accelerators that are slow in float64; see
            `ClassMoments`.
        ignore_index: Label of samples to leave out, or several; a note has their number.
        class_names: Names of the classes, in the order of the head's rows. With them, labels may
            be names.
        kwargs: Arguments of any metric of torchmetrics.

    Attributes:
        notes: Sentences that explain the values computed last, as in a report.
        higher_is_better: True if collapse raises the value of ``key``; None without a key, and
            for a metric that may be on either side of its value at collapse.

    Raises:
        InputError: If groups, key or prior need features, and ``keep_features`` is False; if no
            metric has the key, both groups and a key are given, or the names are not as many as the
            classes.

    Example:
        >>> from ncscope.math.frames import simplex_etf
        >>> etf = simplex_etf(3, dim=4)
        >>> metric = NeuralCollapse(num_classes=3, dim=4, groups=["nc1", "nc2"])
        >>> for _ in range(5):
        ...     metric.update(etf, torch.arange(3))
        >>> values = metric.compute()
        >>> round(values["nc2_etf"].item(), 12), values["nc1"].item()
        (0.0, 0.0)
    """

    features: list[Tensor]
    labels: list[Tensor]
    _vector: Tensor | None
    _accumulator: ClassMoments | None
    weight: Tensor
    bias: Tensor
    left_out: Tensor
    one_logit: Tensor

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    def __init__(
        self,
        num_classes: Size,
        dim: Size,
        *,
        groups: Collection[str] | None = None,
        key: str | None = None,
        keep_features: bool = False,
        prior: Prior = "empirical",
        weight_decay: NotNegative = 0.0,
        precision: Precision = "float64",
        ignore_index: IgnoreIndex = None,
        class_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._lock = threading.RLock()  # re-entrant: `forward` calls the other methods
        self.key = None if key is None else key.removeprefix(KEY)
        if self.key is not None:
            groups, better = _choose_key(self.key, groups, keep_features)
            # torchmetrics refuses to set what is a constant of its own classes.
            vars(self)["higher_is_better"] = better
        self.num_classes = num_classes
        self.dim, self.groups = dim, groups
        self.keep_features, self.prior = keep_features, prior
        self.weight_decay, self.precision = weight_decay, precision
        self.ignore_index, self.class_names = ignore_index, check_names(class_names)
        check_name_count(self.class_names, num_classes)
        fix = "check num_classes and dim"
        check_memory(8 * num_classes * dim, f"{num_classes:,} classes in {dim:,} dimensions", fix)
        self.notes: tuple[str, ...] = ()
        if keep_features:
            self.add_state("features", [], dist_reduce_fx="cat")
            self.add_state("labels", [], dist_reduce_fx="cat")
        else:
            needs = find_needs(groups, has_head=True)
            second_pass = groups is not None and needs & {"decisions", "information"}
            if second_pass or (prior == "uniform" and "scatter" in needs):
                names = "all groups" if groups is None else f"groups {list(groups)}"
                raise InputError(
                    expected="groups and a prior for which class moments are enough",
                    found=f"{names if key is None else key} under the {prior} prior",
                    fix="pass keep_features=True, "
                    "or leave out the groups or the prior that need it",
                )
            # torchmetrics sends, stacks and merges states that are tensors: the moments are one.
            self._empty = functools.partial(
                ClassMoments,
                num_classes,
                dim,
                statistics=ALL_STATISTICS.intersection(needs),
                prior=prior,
                precision=precision,
            )
            vector = _pack(self._empty(device=self.device))
            self.add_state("moments", vector, dist_reduce_fx=functools.partial(_merge, self._empty))
        zero = torch.tensor(0, device=self.device)
        self.add_state("left_out", zero, dist_reduce_fx="sum")
        self.add_state("one_logit", zero.clone(), dist_reduce_fx="max")
        size = num_classes, dim
        none = torch.full(size, _NOT_GIVEN, dtype=torch.float64, device=self.device)
        self.add_state("weight", none, dist_reduce_fx=_latest)
        self.add_state("bias", none[:, 0].clone(), dist_reduce_fx=_latest)

    def update(self, features: Any, labels: Any, weight: Any = None, bias: Any = None) -> None:
        """Add a batch, and take over the present classifier; refused input changes nothing.

        Args:
            features: n x d array-like, any real dtype; gradients are not followed.
            labels: n integers in 0..k-1; or names, if the metric has ``class_names``.
            weight: Classifier weight, k x d. The last weight given is used; without any, the
                metrics that need a weight are absent.
            bias: Classifier bias, k.

        Raises:
            InputError: If shapes or labels do not fit, or a value is NaN or infinite.

        Cost: as `ClassMoments.update`.
        """
        _refuse_half_resampled(features, labels, weight)
        head = check_classifier(weight, bias, self.num_classes, self.dim, self.device)
        given = as_tensor(features, "features")
        check_features(given, self.dim, has_dim=True)
        read = read_labels(
            labels,
            len(given),
            ignore_index=self.ignore_index,
            class_names=self.class_names,
            of_part=True,
        )
        rows = read.select(given)
        if self.keep_features:
            check_range(read.labels, self.num_classes, has_ignore_index=True)
            refuse_nonfinite(rows)
            self.features.append(rows.to(self.device, copy=True))
            self.labels.append(read.labels.to(self.device, copy=True))
        else:
            # Tensors made in inference mode could not be updated in place outside of it.
            with torch.inference_mode(False):
                self._class_moments().update(rows, read.labels)
            self._vector = None
        self.left_out = self.left_out + (len(given) - len(rows))
        if head.weight is not None:
            self.weight = head.weight.clone()
            self.one_logit = torch.tensor(int(head.one_logit), device=self.device)
        if head.bias is not None:
            self.bias = head.bias.clone()

    @property
    def moments(self) -> Float[Tensor, " s"]:
        """State of the moments as one vector, made on access."""
        with self._lock:
            if self._vector is None:
                # On access only: the vector is a copy of the whole state.
                self._vector = _pack(self._class_moments())
            return self._vector

    @moments.setter
    def moments(self, vector: Float[Tensor, " s"]) -> None:
        self._vector, self._accumulator = vector, None

    def compute(self) -> dict[str, Float[Tensor, ""]] | Float[Tensor, ""]:
        """Compute the values by key, aliases included, in float64; with ``key``, its value alone.

        Raises:
            InputError: If ``key`` needs a weight, and none was given; or if a wrapper of
                torchmetrics that takes one value calls a metric without ``key``.
        """
        values: Mapping[str, float]
        if not self.keep_features:
            counts = self._class_moments().counts
        else:
            # After a synchronisation between processes the list is one tensor.
            none = torch.zeros(0, device=self.device)
            labels = dim_zero_cat(self.labels) if len(self.labels) else none
            _, counts = labels.unique(return_counts=True)
        if int(counts.count_nonzero()) < 2:
            values = dict.fromkeys(self._keys(), math.nan)
            self.notes = ("every metric is undefined: fewer than two classes have samples",)
        else:
            values, notes = self._measure()
            self.notes = tuple(notes)
        left_out = int(self.left_out)
        if left_out:
            samples = left_out + int(counts.sum())
            self.notes = (*note_left_out(left_out, samples, self.ignore_index), *self.notes)
        if self.key is not None and self.key not in values:
            raise InputError(
                expected=f"a classifier for {self.key}",
                found="no weight",
                fix="pass the weight and bias to update",
            )
        tensors = {
            key: torch.tensor(value, dtype=torch.float64, device=self.device)
            for key, value in values.items()
        }
        return tensors if self.key is None else tensors[self.key]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch as `update` does, and return the values of this batch alone."""
        with self._lock:
            return super().forward(*args, **kwargs)

    def reset(self) -> None:
        """Reset the state to that of a new metric."""
        with self._lock:
            super().reset()

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Merge the state of another metric, as if its batches came before those of this metric."""
        if isinstance(incoming_state, Metric):  # copied first, so that no thread holds two locks
            incoming_state = copy.deepcopy(incoming_state)
        with self._lock:
            super().merge_state(incoming_state)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or a pickle, without the lock, which cannot be copied."""
        with self._lock:
            state = super().__getstate__()
            copies = {
                k: copy.copy(v) for k, v in state.items() if isinstance(v, list | ClassMoments)
            }
        del state["_lock"]
        return state | copies

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state of a copy or a pickle, with a new lock."""
        self._lock = threading.RLock()
        super().__setstate__(state)

    def plot(
        self,
        val: Any = None,
        ax: Any = None,
    ) -> Any:
        """Draw the metrics of `HEADLINES` on a logarithmic axis, which cannot show a zero.

        With ``key`` its values are drawn, as torchmetrics draws those of a metric.

        Args:
            val: Result of `compute` or of a call of the metric, or several of these in order of
                time; by default, the result of `compute`.
            ax: Axes of matplotlib to draw on; by default new axes.

        Returns:
            Figure and axes; the figure is None if axes were given.
        """
        if self.key is not None:
            return self._plot(val, ax)
        val = self.compute() if val is None else val
        headlines = _headlines(val) if isinstance(val, Mapping) else [_headlines(v) for v in val]
        if ax is not None:
            ax.set_yscale("linear")  # torchmetrics sets limits that a logarithmic axis refuses
        plot: tuple[Any, Any] = self._plot(headlines, ax)
        _, axes = plot
        axes.autoscale(axis="y")
        axes.set_yscale("log")
        axes.set_ylabel("")
        for line in axes.get_lines():
            line.set_markersize(6)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        return plot

    def _class_moments(self) -> ClassMoments:
        if self._accumulator is None:
            self._accumulator = _unpack(self._empty, self.moments)
        return self._accumulator

    def _measure(self) -> tuple[Mapping[str, float], Sequence[str]]:
        weight, bias = (part if _is_given(part) else None for part in (self.weight, self.bias))
        if not self.keep_features:
            stats = finish(self._class_moments())
            sources = Sources(
                stats,
                weight,
                bias,
                weight_decay=self.weight_decay,
                one_logit=bool(self.one_logit),
            )
            return evaluate(sources, self.groups)
        features = dim_zero_cat(self.features)
        device = features.device  # the CPU if torchmetrics' compute_on_cpu is set
        record, _ = measure_samples(
            "features",
            features,
            dim_zero_cat(self.labels),
            self.num_classes,
            None if weight is None else weight.to(device),
            None if bias is None else bias.to(device),
            bool(self.one_logit),
            prior=self.prior,
            groups=self.groups,
            weight_decay=self.weight_decay,
            precision=self.precision,
        )
        return record.metrics, record.notes

    def _keys(self) -> list[str]:
        """Return the names of all values that the state allows."""
        sources = {"scatter", "directions"}
        if _is_given(self.weight):
            sources |= {"head"} if self.one_logit else {"head", "outputs"}
        sources |= {"decisions", "hits", "information"} if self.keep_features else set()
        rows = [row for row in select(self.groups) if row.needs <= sources]
        return [key for row in rows for key in (row.key, *row.aliases)]

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        return self._lock_calls(super()._wrap_update(update))

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        locked = self._lock_calls(super()._wrap_compute(compute))

        # Out here, because torchmetrics keeps what was computed, and does not compute it again.
        @functools.wraps(locked)
        def call_checked(*args: Any, **kwargs: Any) -> Any:
            _refuse_wrapper(self)
            return locked(*args, **kwargs)

        return call_checked

    def _lock_calls(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that holds the lock, also while torchmetrics' code around it runs."""

        @functools.wraps(method)
        def call_locked(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                return method(*args, **kwargs)

        return call_locked

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        """Gather the state of all processes; without samples, send empty tensors of one type.

        Raises:
            InputError: If heads differ between processes: only one of them would be measured.
        """
        if self.keep_features:
            # An empty list is not gathered, and the other processes would wait for it.
            none = torch.zeros(0, self.dim, dtype=torch.float64, device=self.device)
            self.features = [dim_zero_cat([*self.features, none])]
            self.labels = [dim_zero_cat([*self.labels, none[:, 0].long()])]
        head = {"weight": self.weight, "bias": self.bias}
        digest = digest_tensors(head) if _is_given(self.weight) else None
        heads = [each for each in Processes(self.process_group).gather(digest) if each is not None]
        if any(each != heads[0] for each in heads):
            raise InputError(
                expected="the same weight and bias in every process",
                found=f"{len({str(each) for each in heads})} different ones",
                fix="update with the head of one model, as DistributedDataParallel keeps it",
            )
        super()._sync_dist(*args, **kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> Any:
        """Move the state to the device of a model, but keep the precision of float64."""
        states = list(self._defaults)
        super()._apply(fn, [*exclude_state, *states])
        for name in states:
            # The function may convert as well as move: a model in half precision that holds the
            # metric must not round sums over a million samples to 11 bits.
            self._defaults[name] = _move(self._defaults[name], self.device)
            setattr(self, name, _move(getattr(self, name), self.device))
        return self


_FOR_ONE_VALUE = (BootStrapper, MinMaxMetric, MultioutputWrapper)
"""Wrappers of torchmetrics that cannot hold a metric with several values."""


def _choose_key(
    key: str, groups: Collection[str] | None, keep_features: bool
) -> tuple[tuple[str, ...], bool | None]:
    """Return the groups that are one key alone, and whether collapse raises its value.

    Raises:
        InputError: If no metric has the key, the state does not allow it, or there are groups too.
    """
    if groups is not None:
        raise InputError(
            expected="groups, or the key of one metric",
            found=f"key={key!r} and groups",
            fix="leave groups out: the key says what is computed",
        )
    row = find_metric(key)
    if row.needs & {"ood", "scores"}:
        raise InputError(
            expected="the key of a metric of one data set",
            found=f"{key!r}, which compares with OOD samples",
            fix="call ncscope.measure(..., ood=...)",
        )
    if row.needs & {"decisions", "hits", "information"} and not keep_features:
        raise InputError(
            expected=f"a state that holds the features, for {key}",
            found="class moments alone",
            fix="pass keep_features=True",
        )
    return (KEY + key,), None if row.two_sided else row.better == "high"


def _callers() -> Iterator[tuple[object, str]]:
    """Yield the objects whose methods led here, innermost first, with the names of the methods.

    Nothing tells a metric that a wrapper holds it; only the calls show it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_locals.get("self"), frame.f_code.co_name
        frame = frame.f_back


def _refuse_half_resampled(features: Any, labels: Any, weight: Any) -> None:
    """Refuse what BootStrapper would resample in part: it draws rows of tensors, and of no others.

    Raises:
        InputError: If BootStrapper calls, and not exactly the features and labels are tensors.
    """
    has_samples = isinstance(features, Tensor) and isinstance(labels, Tensor)
    if has_samples and not isinstance(weight, Tensor):
        return
    if not any(isinstance(caller, BootStrapper) for caller, _ in _callers()):
        return
    if not has_samples:
        what = "labels" if isinstance(features, Tensor) else "features"
        given = labels if isinstance(features, Tensor) else features
        fix = f"pass {what} as a tensor"
        if what == "labels":
            fix += " of class indices"
        raise InputError(
            expected="features and labels that BootStrapper resamples together",
            found=f"{what} as {type(given).__name__}, of which the wrapper draws no rows",
            fix=fix,
        )
    raise InputError(
        expected="a weight that BootStrapper does not resample",
        found="a tensor, of which the wrapper drew rows as if they were samples",
        fix="pass weight and bias as NumPy arrays",
    )


def _refuse_wrapper(metric: NeuralCollapse) -> None:
    """Refuse wrappers of torchmetrics that cannot hold a metric: their own errors say little.

    Raises:
        InputError: If such a wrapper calls.
    """
    for caller, method in _callers():
        wrapper = type(caller).__name__
        if isinstance(caller, ClasswiseWrapper):
            raise InputError(
                expected="a metric with a value for each class in ClasswiseWrapper",
                found="NeuralCollapse, whose values are of all classes together",
                fix="leave ClasswiseWrapper out; per_class of ncscope.measure is by class",
            )
        # The wrapper empties the lists that it has just kept: what was in them would be lost.
        if isinstance(caller, Running) and method == "compute" and metric.keep_features:
            raise InputError(
                expected="a metric without lists as its state in Running",
                found="keep_features=True",
                fix="leave keep_features out, or measure the last batches with ncscope.measure",
            )
        if metric.key is not None:
            continue
        refused = isinstance(caller, _FOR_ONE_VALUE)
        if isinstance(caller, MetricTracker) and method == "best_metric":
            # The values of a collection are compared one by one if one direction is for all.
            refused = isinstance(caller.maximize, list) or isinstance(caller._base_metric, Metric)
        if refused:
            raise InputError(
                expected=f"a metric of one value for {wrapper}",
                found="NeuralCollapse with a dictionary of values",
                fix="pass key=, for example NeuralCollapse(..., key='nc1')",
            )


def _latest(stack: Float[Tensor, "m ..."]) -> Float[Tensor, "..."]:
    """Return the last state that was given; if none was, the value for a missing head."""
    states = [state for state in stack if _is_given(state)]
    return states[-1] if states else stack[-1]


def _is_given(state: Float[Tensor, "..."]) -> bool:
    return bool(state.isfinite().all())


def _move(state: Tensor | list[Tensor], device: torch.device) -> Tensor | list[Tensor]:
    if isinstance(state, Tensor):
        return state.to(device)
    return [tensor.to(device) for tensor in state]


def _headlines(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: values[key] for key in HEADLINES if key in values}


def _pack(moments: ClassMoments) -> Float[Tensor, " s"]:
    """Concatenate the state of moments to a vector of float64, which holds counts below 2^53."""
    return torch.cat([value.flatten().to(torch.float64) for value in moments.state_dict().values()])


def _unpack(empty: Callable[..., ClassMoments], vector: Float[Tensor, " s"]) -> ClassMoments:
    """Return new moments with the state that a vector holds."""
    moments = empty(device=vector.device)
    shapes = {name: value.shape for name, value in moments.state_dict().items()}
    parts = vector.split([shape.numel() for shape in shapes.values()])
    state = zip(shapes.items(), parts, strict=True)
    moments.load_state_dict({name: part.view(shape) for (name, shape), part in state})
    return moments


def _merge(
    empty: Callable[..., ClassMoments], vectors: Float[Tensor, "m s"]
) -> Float[Tensor, " s"]:
    """Merge the states of several accumulators to the state of all their samples."""
    first, *others = [_unpack(empty, vector) for vector in vectors]
    for other in others:
        first.merge(other)
    return _pack(first)
