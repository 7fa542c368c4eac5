"""Statistics of the classes present, in the notation of the papers, ready for the metrics."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.pairs import row_blocks
from ncscope.math.powers import METRIC_LIMIT, exponent_beyond, times_power
from ncscope.math.symmetric import SMALL_BYTES, Gram, share_gram
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import Prior

_ROUNDING = 32.0


@dataclass(frozen=True)
class ClassStatistics:
    r"""Statistics from which the metrics are computed: K classes present, dimension d.

    Unlabelled samples are one class, whose scatter is their covariance.

    Attributes:
        classes: Labels of the classes present, ascending.
        num_classes: Number of classes requested, present or not; 0 without labels.
        counts: $n_c$.
        prior: $\pi_c$: $n_c/N$, or $1/K$.
        pilot: Vector p that the class means are given about: a common offset would take their
            digits.
        offsets: $\mu_c-p$, one a row.
        class_traces: $\operatorname{Tr}\Sigma_c$.
        scatter: Pooled within-class scatter $\Sigma_W=\sum_c\pi_c\Sigma_c$, as its rows if the
            samples are few for d; None if not accumulated.
        unit_means: $\frac1{n_c}\sum\hat h_i$; None if directions were not accumulated.
        unit_class_traces: $\frac1{n_c}\sum\lVert\hat h_i-\bar{\hat h}_c\rVert^2$; None if
            directions were not accumulated.
        zero_vectors: Number of zero features, which have no direction.
        exponent: Unit e of means, traces and scatter: they belong to the features divided by
            $2^e$. It is 0 unless the magnitude of the features is beyond $2^{\pm150}$.
        blocked: True if the scatter was accumulated with ``precision="blocked"``.
    """

    classes: Int[Tensor, " k"]
    num_classes: int
    counts: Int[Tensor, " k"]
    prior: Float[Tensor, " k"]
    pilot: Float[Tensor, " d"]
    offsets: Float[Tensor, "k d"]
    class_traces: Float[Tensor, " k"]
    scatter: Float[Tensor, "d d"] | Gram | None
    unit_means: Float[Tensor, "k d"] | None
    unit_class_traces: Float[Tensor, " k"] | None
    zero_vectors: int
    exponent: int = 0
    blocked: bool = False

    @property
    def has_labels(self) -> bool:
        """True if the samples have labels, so that there are classes to compare."""
        return self.num_classes > 0

    @property
    def k(self) -> int:
        """Number of classes present."""
        return len(self.classes)

    @property
    def dim(self) -> int:
        """Feature dimension d."""
        return self.offsets.shape[1]

    @property
    def num_samples(self) -> int:
        """Number of samples N."""
        return int(self.counts.sum())

    @cached_property
    def within(self) -> Float[Tensor, "d d"] | None:
        r"""$\Sigma_W$ as a matrix; None if not accumulated."""
        return self.scatter.dense() if isinstance(self.scatter, Gram) else self.scatter

    @property
    def means(self) -> Float[Tensor, "k d"]:
        r"""Class means $\mu_c$, one a row, to the digits that a common offset leaves."""
        return self._keep("_means", lambda: self.offsets + self.pilot)

    @cached_property
    def global_mean(self) -> Float[Tensor, " d"]:
        r"""$\mu_G=\sum_c\pi_c\mu_c$."""
        return self.prior @ self.offsets + self.pilot

    @cached_property
    def _centre(self) -> Float[Tensor, " d"]:
        r"""$\mu_G-p$."""
        return self.prior @ self.offsets

    @property
    def centred(self) -> Float[Tensor, "k d"]:
        r"""$\mu_c-\mu_G$, with the prior's $\mu_G$; rows no longer than rounding are zero.

        Not kept: the matrix may be overwritten.
        """
        return self._zero_rounding(self.offsets - self._centre)

    @property
    def frame(self) -> Float[Tensor, "k d"]:
        r"""$\tilde\mu_c$, centred by the *unweighted* mean: the frame of NC2 and NC3."""
        return self._keep(
            "_frame", lambda: self._zero_rounding(self.offsets - self.offsets.mean(0))
        )

    def _keep(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Compute a matrix that is not to be overwritten, once only if it is small.

        With many classes, a matrix that is kept would take most of the memory.
        """
        value: Tensor | None = vars(self).get(name)
        if value is None:
            value = compute()
            if value.nbytes <= SMALL_BYTES:
                vars(self)[name] = share_gram(value)
        return value

    @cached_property
    def within_trace(self) -> Float[Tensor, ""]:
        r"""$\operatorname{Tr}\Sigma_W$."""
        return self.prior @ self.class_traces

    @cached_property
    def between_trace(self) -> Float[Tensor, ""]:
        r"""$\operatorname{Tr}\Sigma_B$."""
        length = lengths_from(self.offsets, self._centre)
        return self.prior @ length.masked_fill_(length <= self.rounding, 0.0).square()

    def in_unit(self, exponent: int) -> "ClassStatistics":
        """Convert the statistics to another unit, without rounding.

        Args:
            exponent: Exponent of 2 of the unit.
        """
        change = self.exponent - exponent
        if change == 0:
            return self
        scatter = self.scatter
        if isinstance(scatter, Gram):
            scatter = Gram(times_power(scatter.rows, change))
        elif scatter is not None:
            scatter = times_power(scatter, 2 * change)
        return replace(
            self,
            pilot=times_power(self.pilot, change),
            offsets=times_power(self.offsets, change),
            class_traces=times_power(self.class_traces, 2 * change),
            scatter=scatter,
            exponent=exponent,
        )

    def in_range(self) -> "ClassStatistics":
        """Convert the statistics to a unit in which their squares stay in range."""
        spread = self.class_traces.max().sqrt()
        beyond = exponent_beyond(float(self._longest_mean.maximum(spread)), METRIC_LIMIT)
        return self.in_unit(self.exponent + beyond)

    @cached_property
    def _longest_mean(self) -> Float[Tensor, ""]:
        return lengths_from(self.offsets, -self.pilot).max()

    def _zero_rounding(self, rows: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
        """Set to zero, in place, the rows that are no longer than the rounding error of the means.

        Without this, a class mean equal to the centre would get a direction made of rounding.
        """
        length = torch.linalg.vector_norm(rows, dim=1)
        return rows.masked_fill_((length <= self.rounding)[:, None], 0.0)

    @property
    def rounding(self) -> Float[Tensor, ""]:
        """Length up to which a class mean's distance from the centre is rounding error."""
        return _ROUNDING * torch.finfo(self.offsets.dtype).eps * self._longest_mean


def lengths_from(rows: Float[Tensor, "k d"], centre: Float[Tensor, " d"]) -> Float[Tensor, " k"]:
    """Return the distance of each row from a point, in blocks: differences are not all kept."""
    blocks = row_blocks(*rows.shape)
    return torch.cat([torch.linalg.vector_norm(rows[b] - centre, dim=1) for b in blocks])


def finish(
    moments: ClassMoments, prior: Prior | None = None, *, copy: bool = True
) -> ClassStatistics:
    """Return the statistics of the classes present in a stream.

    Args:
        moments: Moments of the stream; threads that update them wait until this call returns.
        prior: Class prior; by default the prior of the moments.
        copy: False if the moments are not used again: the statistics then share the memory of the
            class means if all classes are present.

    Raises:
        InputError: If fewer than two classes are present, the scatter was pooled for another
            prior, or the class counts given to the moments differ from those of the stream.
    """
    with moments.lock:
        present = int((moments.counts > 0).sum())
        if present < 2:
            found = f"{present} in {int(moments.counts.sum())} samples"
            fix = "collapse is a relation between classes: pass samples of several"
            raise InputError(expected="at least two classes with samples", found=found, fix=fix)
        return _divide_moments(moments, moments.prior if prior is None else prior, copy)


def finish_unlabelled(moments: ClassMoments) -> ClassStatistics:
    """Return the statistics of unlabelled samples, which were accumulated as one class.

    Raises:
        InputError: If the moments have several classes, or no samples.
    """
    if moments.num_classes != 1:
        found, fix = f"{moments.num_classes} classes", "build ClassMoments(num_classes=1)"
        raise InputError(expected="moments of one class", found=found, fix=fix)
    if not int(moments.counts.sum()):
        fix = "update the moments with at least one sample"
        raise InputError(expected="samples", found="moments without samples", fix=fix)
    with moments.lock:
        return replace(_divide_moments(moments, moments.prior, copy=True), num_classes=0)


def _divide_moments(moments: ClassMoments, prior: Prior, copy: bool) -> ClassStatistics:
    present = torch.nonzero(moments.counts).squeeze(1)
    if "scatter" in moments.statistics:
        _check_pooling(moments, prior)
    rows = present if copy or len(present) < moments.num_classes else slice(None)
    counts = moments.counts[present]
    share = counts.to(torch.float64)
    weights = share / share.sum() if prior == "empirical" else torch.ones_like(share) / len(share)
    # Under the uniform prior, each class's scatter was divided by its count when it was summed.
    total = share.sum() if prior == "empirical" else share.new_tensor(float(len(share)))
    scatter = moments.copy_scatter()
    if isinstance(scatter, Gram):
        scatter = Gram(scatter.rows / total.sqrt())
    elif scatter is not None:
        scatter.div_(total)  # in place, because it is a copy
    return ClassStatistics(
        classes=present,
        num_classes=moments.num_classes,
        counts=counts,
        prior=weights,
        pilot=moments.pilot,
        offsets=moments.offsets[rows],
        class_traces=moments.traces[present] / share,
        scatter=scatter,
        unit_means=None if moments.unit_means is None else moments.unit_means[rows],
        unit_class_traces=(
            None if moments.unit_traces is None else moments.unit_traces[present] / share
        ),
        zero_vectors=int(moments.zero_vectors),
        blocked=moments.precision == "blocked" and isinstance(scatter, Tensor),
    )


def _check_pooling(moments: ClassMoments, prior: Prior) -> None:
    if prior != moments.prior:
        fix = f"build ClassMoments(prior={prior!r})"
        found = f"a scatter pooled for the {moments.prior} prior"
        raise InputError(expected=f"moments for the {prior} prior", found=found, fix=fix)
    known = moments.class_counts
    if prior == "uniform" and known is not None:
        given = known.to(moments.counts)
        wrong = torch.nonzero(given != moments.counts).squeeze(1)
        if len(wrong):
            c = int(wrong[0])
            found = f"{int(moments.counts[c])} samples of class {c}, class_counts says {given[c]}"
            fix = "count the labels of exactly the samples that are streamed"
            raise InputError(expected="the class_counts given", found=found, fix=fix)
