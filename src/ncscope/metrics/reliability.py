"""Warnings: values that samples, classes or training make misleading, in short sentences."""

import math
from collections.abc import Collection, Iterator, Mapping

import torch

from ncscope.metrics.information import Entropies
from ncscope.metrics.sources import Sources
from ncscope.stats.statistics import ClassStatistics

SAMPLES_PER_DIMENSION = 5
"""Least ratio n/d at which metrics that invert a covariance are not warned about."""

SAMPLES_PER_CLASS = 10
"""Least number of samples of a class that is not warned about."""

LARGEST_ERROR = 0.02
"""Largest standard error of an estimated MIR that is not warned about."""

_NAMED_CLASSES = 10
_INVERTING = ("vci", "linear_probe_mse")
_RAISED = ("ncc_accuracy", "mir", "mir_centered")
_MSE_PARTS = ("mse_nc1", "mse_nc23", "mse_off_path")


def warnings_on(sources: Sources, values: Mapping[str, float]) -> tuple[str, ...]:
    """Return the warnings on the metrics of a layer.

    Args:
        sources: Statistics of the layer.
        values: Metrics computed from them.
    """
    stats = sources.stats
    return (
        *_few_samples(stats, values),
        *_absent_classes(stats),
        *_small_classes(stats),
        *_other_loss(stats, values),
        *_inexact(sources, values),
    )


def _few_samples(stats: ClassStatistics, values: Collection[str]) -> Iterator[str]:
    r"""Warn if random labels would look collapsed.

    With random labels, $\Sigma_B$ is a projection of $\Sigma_T$ on random directions, K - 1 of the
    n - 1 that the samples span: VCI is about $1-d/(n-1)$, and 0 for $n\le d$.
    """
    n, d = stats.num_samples, stats.dim
    if n >= SAMPLES_PER_DIMENSION * d or not any(key in values for key in _INVERTING):
        return
    chance = max(0.0, 1 - d / (n - 1))
    raised = [key for key in _RAISED if key in values]
    more = f", and a high {', '.join(raised)}" if raised else ""
    yield (
        f"{n:,} samples are few for dimension {d:,}: random labels give a vci of about "
        f"{chance:.2g}{more}. Compare with the chance level (baseline), or measure "
        f"{SAMPLES_PER_DIMENSION * d:,} samples."
    )


def _absent_classes(stats: ClassStatistics) -> Iterator[str]:
    if stats.k == stats.num_classes:
        return
    seen = torch.zeros(stats.num_classes, dtype=torch.bool)
    seen[stats.classes.cpu()] = True
    missing = torch.nonzero(~seen).squeeze(1).tolist()
    kind = "class" if len(missing) == 1 else "classes"
    hint = " (labels count from 0)" if missing == [0] else ""
    yield (
        f"{kind} {_named(missing)} without samples{hint}: measured over the {stats.k} classes "
        "present"
    )


def _small_classes(stats: ClassStatistics) -> Iterator[str]:
    small = stats.classes[stats.counts < SAMPLES_PER_CLASS].tolist()
    if not small:
        return
    least = int(stats.counts.min())
    subject = f"class {small[0]} has" if len(small) == 1 else f"classes {_named(small)} have"
    yield (
        f"{subject} fewer than {SAMPLES_PER_CLASS} samples (the fewest: {least}): a mean of so few "
        "follows its samples, and the variation within the class is underestimated"
    )


def _other_loss(stats: ClassStatistics, values: Mapping[str, float]) -> Iterator[str]:
    loss = values.get("mse_loss", math.nan)
    constant = 0.5 * (1 - float(stats.prior.square().sum()))
    if loss > constant:
        parts = ", ".join(key for key in _MSE_PARTS if key in values)
        yield (
            f"the squared error of the logits, {loss:.3g}, exceeds that of a constant output, "
            f"{constant:.2g}: {parts} say little of a network trained with cross-entropy"
        )


def _inexact(sources: Sources, values: Mapping[str, float]) -> Iterator[str]:
    if sources.information is None:
        return
    both = {"mir": sources.information.raw, "mir_centered": sources.information.centred}
    for key, entropies in both.items():
        error = error_of_ratio(entropies)
        if key in values and error > LARGEST_ERROR:
            yield f"{key} is an estimate with a standard error of {error:.1g}"


def error_of_ratio(entropies: Entropies) -> float:
    """Return the standard error of MIR from that of the joint entropy."""
    least = min(entropies.first, entropies.second)
    return entropies.joint.standard_error / max(least, 1e-300)


def _named(classes: list[int]) -> str:
    names = ", ".join(map(str, classes[:_NAMED_CLASSES]))
    return names + (", ..." if len(classes) > _NAMED_CLASSES else "")
