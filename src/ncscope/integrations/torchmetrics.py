"""Neural collapse as a metric of torchmetrics."""

import copy
import functools
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ncscope.arguments import NotNegative, Size, check_arguments
from ncscope.errors import InputError, library_error
from ncscope.integrations.packing import Packing
from ncscope.measurement.classifier import checked_classifier
from ncscope.measurement.samples import measure_samples
from ncscope.memory import check_memory
from ncscope.metrics.evaluate import evaluate, needs_of, select
from ncscope.metrics.sources import Sources
from ncscope.models.replicas import digest_tensors
from ncscope.stats.batch import (
    as_tensor,
    check_features,
    check_labels,
    check_range,
    refuse_nonfinite,
)
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import Precision, Prior
from ncscope.stats.processes import Processes
from ncscope.stats.statistics import finish

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
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
        keep_features: Keep the features if True, for the groups ``"nc4"``, ``"pfc"`` and
            ``"information"``, and for the uniform prior.
        prior: Class prior, ``"empirical"`` or ``"uniform"``. Under the uniform prior, all groups
            except ``"nc2"`` and ``"nc3"`` need the features.
        weight_decay: Weight decay on the classifier that the MSE decomposition assumes.
        precision: ``"float64"``, or ``"blocked"`` for accelerators that are slow in float64; see
            `ClassMoments`.
        kwargs: Arguments of any metric of torchmetrics.

    Attributes:
        notes: Sentences that explain the values computed last, as in a report.

    Raises:
        InputError: If groups or prior need features, and ``keep_features`` is False.

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
    _unpacked: ClassMoments | None
    weight: Tensor
    bias: Tensor

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    def __init__(
        self,
        num_classes: Size,
        dim: Size,
        *,
        groups: Collection[str] | None = None,
        keep_features: bool = False,
        prior: Prior = "empirical",
        weight_decay: NotNegative = 0.0,
        precision: Precision = "float64",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._lock = threading.RLock()  # re-entrant: `forward` calls the other methods
        self.num_classes = num_classes
        self.dim, self.groups = dim, groups
        self.keep_features, self.prior = keep_features, prior
        self.weight_decay, self.precision = weight_decay, precision
        fix = "check num_classes and dim"
        check_memory(8 * num_classes * dim, f"{num_classes:,} classes in {dim:,} dimensions", fix)
        self.notes: tuple[str, ...] = ()
        if keep_features:
            self.add_state("features", [], dist_reduce_fx="cat")
            self.add_state("labels", [], dist_reduce_fx="cat")
        else:
            self._packing = self._checked_packing()
            empty = self._packing.packed(self._packing.empty())
            self.add_state("moments", empty, dist_reduce_fx=self._packing.merged)
        self.one_logit = False
        none = torch.full((num_classes, dim), _NOT_GIVEN, dtype=torch.float64)
        self.add_state("weight", none, dist_reduce_fx=_latest)
        self.add_state("bias", none[:, 0].clone(), dist_reduce_fx=_latest)

    def update(self, features: Any, labels: Any, weight: Any = None, bias: Any = None) -> None:
        """Add a batch, and take over the present classifier; refused input changes nothing.

        Args:
            features: n x d array-like, any real dtype; gradients are not followed.
            labels: n integers in 0..k-1.
            weight: Classifier weight, k x d. The last weight given is used; without any, the
                metrics that need a weight are absent.
            bias: Classifier bias, k.

        Raises:
            InputError: If shapes or labels do not fit, or a value is NaN or infinite.

        Cost: as `ClassMoments.update`.
        """
        given = checked_classifier(weight, bias, self.num_classes, self.dim, self.device)
        rows, classes = as_tensor(features, "features"), as_tensor(labels, "labels")
        if self.keep_features:
            self._keep(rows, classes)
        else:
            with torch.inference_mode(False):  # updated again outside of it
                self._class_moments().update(rows, classes)
            self._vector = None
        if given.weight is not None:
            self.weight, self.one_logit = given.weight.clone(), given.one_logit
        if given.bias is not None:
            self.bias = given.bias.clone()

    @property
    def moments(self) -> Float[Tensor, " s"]:
        """State of the moments as one vector in the layout of `Packing`, made on access."""
        with self._lock:
            if self._vector is None:
                self._vector = self._packing.packed(self._class_moments())
            return self._vector

    @moments.setter
    def moments(self, vector: Float[Tensor, " s"]) -> None:
        self._vector, self._unpacked = vector, None

    def compute(self) -> dict[str, Float[Tensor, ""]]:
        """Compute the values by key, aliases included, in float64."""
        values: Mapping[str, float]
        if self._classes_seen() < 2:
            values = dict.fromkeys(self._keys(), math.nan)
            self.notes = ("every metric is undefined: fewer than two classes have samples",)
        else:
            values, notes = self._measured()
            self.notes = tuple(notes)
        return {
            key: torch.tensor(value, dtype=torch.float64, device=self.device)
            for key, value in values.items()
        }

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
            grown = {
                k: copy.copy(v) for k, v in state.items() if isinstance(v, list | ClassMoments)
            }
        del state["_lock"]
        return state | grown

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state of a copy or a pickle, with a new lock."""
        self._lock = threading.RLock()
        super().__setstate__(state)

    def plot(
        self,
        val: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]] | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the metrics of `HEADLINES` on a logarithmic axis, which cannot show a zero.

        Args:
            val: Result of `compute` or of a call of the metric, or several of these in order of
                time; by default, the result of `compute`.
            ax: Axes of matplotlib to draw on; by default new axes.

        Returns:
            Figure and axes; the figure is None if axes were given.
        """
        val = self.compute() if val is None else val
        headlines = _headlines(val) if isinstance(val, Mapping) else [_headlines(v) for v in val]
        if ax is not None:
            ax.set_yscale("linear")  # torchmetrics sets limits that a logarithmic axis refuses
        drawn: tuple[Any, Any] = self._plot(headlines, ax)
        _, axes = drawn
        axes.autoscale(axis="y")
        axes.set_yscale("log")
        axes.set_ylabel("")
        for line in axes.get_lines():
            line.set_markersize(6)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        return drawn

    def _checked_packing(self) -> Packing:
        """Return the layout of the state in a vector; refuse groups that need the features."""
        needs = needs_of(self.groups, has_head=True)
        second_pass = self.groups is not None and (needs.decisions or needs.information)
        weighted = self.prior == "uniform" and "scatter" in needs.statistics
        if second_pass or weighted:
            chosen = "all groups" if self.groups is None else f"groups {list(self.groups)}"
            raise InputError(
                expected="groups and a prior for which class moments are enough",
                found=f"{chosen} under the {self.prior} prior",
                fix="pass keep_features=True, or leave out the groups or the prior that need it",
            )
        return Packing(self.num_classes, self.dim, needs.statistics, self.prior, self.precision)

    def _keep(self, features: Shaped[Tensor, "n d"], labels: Shaped[Tensor, " n"]) -> None:
        check_features(features, self.dim)
        classes = check_labels(labels, len(features))
        check_range(classes, self.num_classes)
        refuse_nonfinite(features)
        self.features.append(features.to(self.device, copy=True))
        self.labels.append(classes.to(self.device, copy=True))

    def _class_moments(self) -> ClassMoments:
        if self._unpacked is None:
            self._unpacked = self._packing.unpacked(self.moments)
        return self._unpacked

    def _classes_seen(self) -> int:
        if not self.keep_features:
            return int(self._class_moments().counts.count_nonzero())
        # After a synchronisation between processes the list is one tensor.
        return len(dim_zero_cat(self.labels).unique()) if len(self.labels) else 0

    def _measured(self) -> tuple[Mapping[str, float], Sequence[str]]:
        weight, bias = (head if _given(head) else None for head in (self.weight, self.bias))
        if not self.keep_features:
            stats = finish(self._class_moments())
            sources = Sources(
                stats, weight, bias, weight_decay=self.weight_decay, one_logit=self.one_logit
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
            self.one_logit,
            prior=self.prior,
            groups=self.groups,
            weight_decay=self.weight_decay,
            precision=self.precision,
        )
        return record.metrics, record.notes

    def _keys(self) -> list[str]:
        """Return the names of all values that the state allows."""
        gathered = {"scatter", "directions"}
        if _given(self.weight):
            gathered |= {"head"} if self.one_logit else {"head", "outputs"}
        gathered |= {"decisions", "hits", "information"} if self.keep_features else set()
        rows = [row for row in select(self.groups) if row.needs <= gathered]
        return [key for row in rows for key in (row.key, *row.aliases)]

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        return self._one_at_a_time(super()._wrap_update(update))

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        return self._one_at_a_time(super()._wrap_compute(compute))

    def _one_at_a_time(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that holds the lock, also while torchmetrics' code around it runs."""

        @functools.wraps(method)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                return method(*args, **kwargs)

        return locked

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        """Gather the state of all processes; without samples, send empty tensors of one type."""
        if self.keep_features:
            none = torch.zeros(0, self.dim, dtype=torch.float64, device=self.device)
            self.features = [dim_zero_cat([*self.features, none])]
            self.labels = [dim_zero_cat([*self.labels, none[:, 0].long()])]
        self._check_one_head()
        super()._sync_dist(*args, **kwargs)

    def _check_one_head(self) -> None:
        """Refuse heads that differ between processes: one of them would be measured."""
        processes = Processes(self.process_group)
        own = (
            digest_tensors({"weight": self.weight, "bias": self.bias})
            if _given(self.weight)
            else None
        )
        heads = [head for head in processes.gather(own) if head is not None]
        if any(head != heads[0] for head in heads):
            raise InputError(
                expected="the same weight and bias in every process",
                found=f"{len({str(head) for head in heads})} different ones",
                fix="update with the head of one model, as DistributedDataParallel keeps it",
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> Any:
        """Move the state to the device of a model, but keep the precision of float64."""
        states = list(self._defaults)
        super()._apply(fn, [*exclude_state, *states])
        for name in states:
            self._defaults[name] = _moved(self._defaults[name], self.device)
            setattr(self, name, _moved(getattr(self, name), self.device))
        return self


def _latest(stack: Float[Tensor, "m ..."]) -> Float[Tensor, "..."]:
    """Return the last state that was given; if none was, the value for a missing head."""
    given = [state for state in stack if _given(state)]
    return given[-1] if given else stack[-1]


def _given(state: Float[Tensor, "..."]) -> bool:
    return bool(state.isfinite().all())


def _moved(state: Tensor | list[Tensor], device: torch.device) -> Tensor | list[Tensor]:
    if isinstance(state, Tensor):
        return state.to(device)
    return [tensor.to(device) for tensor in state]


def _headlines(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: values[key] for key in HEADLINES if key in values}
