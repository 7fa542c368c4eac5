"""Comparison of a layer's samples with samples from outside the distribution (OOD)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ncscope.array_checks import check_features, refuse_magnitude
from ncscope.devices import is_asynchronous, move_to
from ncscope.errors import InputError
from ncscope.math.detection import compare_scores
from ncscope.math.powers import COPY_LIMIT, STREAM_LIMIT
from ncscope.measurement.plans import LayerPlan
from ncscope.measurement.resampling import LayerSamples, in_unit
from ncscope.metrics.evaluate import select
from ncscope.metrics.ood import OodResult, OodScorer, describe_fit, mean_cosines
from ncscope.stats.classes import BatchClasses
from ncscope.stats.faults import BatchFaults, refuse_faults
from ncscope.stats.merging import merge_in_place
from ncscope.stats.moments import ClassMoments
from ncscope.stats.processes import Processes
from ncscope.stats.statistics import ClassStatistics

_FARTHEST = 1000
_NAMED = "OOD features"

OodSource = Callable[[], Iterator[Tensor]]
"""Function that yields the features of OOD samples, batch by batch, in one pass."""


def check_groups(needs: frozenset[str], groups: Collection[str] | None, *, given: bool) -> None:
    """Refuse OOD samples that no metric uses, and metrics of OOD samples that are not given.

    Args:
        needs: Needs of the groups, as `find_needs` returns them.
        groups: Groups and keys of metrics; None for all.
        given: True if there are OOD samples.

    Raises:
        InputError: If one is asked for without the other.
    """
    if given and not needs & {"ood", "scores"}:
        fix = "add 'ood' to groups, or leave ood out"
        found = f"groups {', '.join(groups or ())}"
        raise InputError(expected="the group 'ood' with OOD samples", found=found, fix=fix)
    asked = {groups} if isinstance(groups, str) else set(groups or ())
    rows = {name: select([name]) for name in sorted(asked)}
    lacking = [name for name in rows if rows[name] and all(r.group == "ood" for r in rows[name])]
    if lacking and not given:
        what = "the group 'ood'" if "ood" in lacking else lacking[0]
        fix = "pass ood, features or a loader from outside the distribution"
        raise InputError(expected=f"OOD samples for {what}", found="none", fix=fix)


def compare_features(
    samples: LayerSamples,
    features: Shaped[Tensor, "n d"],
    outside: Shaped[Tensor, "m d"],
    stats: ClassStatistics,
) -> OodResult:
    """Compare features with OOD features, both of any magnitude.

    Args:
        samples: Measured samples.
        features: Features of these samples, in their unit.
        outside: OOD features as given.
        stats: Statistics of the measured samples.

    Raises:
        InputError: If there is no OOD feature, or one is not finite.
    """
    moments, unit = _sum_moments(outside, samples.counts.device)
    check_unit(unit - samples.exponent, "OOD features")
    top = max(unit, samples.exponent)
    fitted = samples.means_of or stats
    cosines = mean_cosines(fitted, moments, unit)
    if "scores" not in samples.plan.needs:
        return OodResult(*cosines, {})
    scorer = OodScorer(fitted, samples.plan.weight, samples.plan.bias, unit=top)
    inside = scorer(in_unit(features, top - samples.exponent))
    beside = scorer(in_unit(move_to(outside, features.device), top))
    notes = describe_fit(scorer, on_own=samples.means_of is None)
    return _result(cosines, scorer, inside, beside, None, notes)


def _sum_moments(outside: Shaped[Tensor, "m d"], device: torch.device) -> tuple[ClassMoments, int]:
    moments = ClassMoments(1, outside.shape[1], statistics=(), device=device)
    classes = _one_class(len(outside))
    with name_ood_in_errors():
        if not len(outside):
            raise _none_given()
        unit = moments.take_checked(outside, classes, COPY_LIMIT)
        if unit:
            moments.take_checked(in_unit(outside, unit), classes, COPY_LIMIT)
    return moments, unit


def check_unit(change: int, what: str) -> None:
    """Refuse features of a magnitude that float64 cannot compare with that of the measured ones.

    Args:
        change: Exponent of 2 of the ratio of magnitudes, the others over the measured.
        what: Description of the other features, for the message.

    Raises:
        InputError: If one of the two would underflow to zero in the unit of the other.
    """
    if abs(change) > _FARTHEST:
        raise InputError(
            expected=f"{what} of about the same magnitude",
            found=f"2^{change} times the features'",
            fix="take both from the same layer of the same model",
        )


def check_ood_features(features: Shaped[Tensor, "..."], dim: int) -> None:
    """Check that the features of OOD samples are a real matrix of the measured dimension.

    Raises:
        InputError: If the shape or the dtype is another; the message names it.
    """
    with name_ood_in_errors():
        check_features(features)
        if features.shape[1] != dim:
            raise InputError(
                expected=f"OOD features of dimension {dim}",
                found=f"dimension {features.shape[1]}",
                fix="take both from the same layer of the same model",
            )


class OodPass:
    """One pass over OOD samples of a model, after the statistics of all samples are finished.

    Args:
        plan: Layer that feeds the head.
        fitted: Statistics that mean and directions come from.
        on_own: True if these are the statistics of the samples that are judged.
        processes: Processes that measure together.
        device: Device of the arithmetic.
    """

    def __init__(
        self,
        plan: LayerPlan,
        fitted: ClassStatistics,
        *,
        on_own: bool,
        processes: Processes,
        device: torch.device,
    ) -> None:
        self._fitted, self._processes, self._device = fitted, processes, device
        self._moments = ClassMoments(1, fitted.dim, statistics=(), device=device)
        self.scorer: OodScorer | None = None
        self._notes: tuple[str, ...] = ()
        if "scores" in plan.needs:
            self.scorer = OodScorer(fitted, plan.weight, plan.bias)
            self._notes = describe_fit(self.scorer, on_own=on_own)
        self._scores: list[Tensor] = []
        self._faults, self._layer = BatchFaults(device), plan.name

    def run(self, source: OodSource) -> None:
        """Read the OOD samples of this process once."""
        for number, features in enumerate(source(), 1):
            with name_ood_in_errors(number):
                check_ood_features(features, self._fitted.dim)
                rows = move_to(features, self._device)
                self._take(rows)
            if self.scorer is not None:
                self._scores.append(self.scorer(rows))
        with name_ood_in_errors():
            refuse_faults({self._layer: self._faults}, STREAM_LIMIT)

    def _take(self, rows: Shaped[Tensor, "n d"]) -> None:
        """Add a batch; its faults are refused at once on the CPU, after the pass elsewhere."""
        classes = _one_class(len(rows))
        if not is_asynchronous(self._device):
            refuse_magnitude(self._moments.take_checked(rows, classes, STREAM_LIMIT), STREAM_LIMIT)
        elif len(rows):
            self._faults.note(self._moments.take_unread(rows, classes, STREAM_LIMIT), STREAM_LIMIT)
        else:
            # One note for each batch: its number in a message is its place among the notes.
            self._faults.note(self._moments.means.new_zeros(()), STREAM_LIMIT)

    def compare(self, inside: Sequence[Tensor], seen: int) -> OodResult:
        """Compare the samples of all processes with the OOD samples.

        Args:
            inside: Scores of each batch of this process's samples; unused if no score is measured.
            seen: Number of samples for which these stand: more than are scored if they were drawn.

        Raises:
            InputError: If no process has OOD samples.
        """
        merge_in_place(self._moments, self._processes)
        if not int(self._moments.counts[0]):
            raise _none_given()
        cosines = mean_cosines(self._fitted, self._moments)
        if self.scorer is None:
            return OodResult(*cosines, {})
        # A process without samples has no scores to join, and gathers rows of the same shape.
        empty = self.scorer(torch.zeros(0, self._fitted.dim, device=self._device))
        outside = torch.cat(self._gather(torch.cat([empty, *self._scores])))
        parts = self._gather(torch.cat([empty, *inside]))
        drawn = self._processes.gather([seen, sum(map(len, inside))])
        weights, notes = None, self._notes
        if any(seen != kept for seen, kept in drawn):
            # Every process draws equally many, however many it has: unweighted, the samples of a
            # large share would count too little.
            each = [torch.full((kept,), seen / max(kept, 1), device="cpu") for seen, kept in drawn]
            weights = torch.cat(each).to(torch.float64)
            whole, kept = map(sum, zip(*drawn, strict=True))
            notes = (
                *notes,
                f"OOD scores: of a random sample of {kept:,} of the {whole:,} samples",
            )
        return _result(cosines, self.scorer, torch.cat(parts), outside, weights, notes)

    def _gather(self, scores: Float[Tensor, "n s 2"]) -> list[Float[Tensor, "_n s 2"]]:
        return self._processes.gather_rows(scores) if self._processes.several else [scores]


def _result(
    cosines: tuple[float, float],
    scorer: OodScorer,
    inside: Float[Tensor, "n s 2"],
    outside: Float[Tensor, "m s 2"],
    weights: Float[Tensor, " n"] | None,
    notes: tuple[str, ...],
) -> OodResult:
    found = {
        name: compare_scores(inside[:, index], outside[:, index], weights)
        for index, name in enumerate(scorer.names)
    }
    return OodResult(*cosines, found, notes)


def _one_class(samples: int) -> BatchClasses:
    return BatchClasses.from_labels(torch.zeros(samples, dtype=torch.int64, device="cpu"), 1)


def _none_given() -> InputError:
    fix = "pass at least one sample from outside the distribution"
    return InputError(expected="OOD samples", found="none", fix=fix)


@contextmanager
def name_ood_in_errors(batch: int = 0) -> Iterator[None]:
    """Add to an InputError raised inside that it concerns the OOD samples.

    Args:
        batch: Number of the batch, counted from 1; 0 for all samples.
    """
    try:
        yield
    except InputError as error:
        where = f" in batch {batch}" if batch else ""
        known = "OOD" in error.expected
        expected = None if known else error.expected.replace("features", _NAMED, 1)
        raise error.but(expected=expected, found=f"{error.found}{where}") from error
