"""Warnings: values that samples, classes or training make misleading, in short sentences."""

import math
from collections.abc import Collection, Iterator, Mapping

import torch
from jaxtyping import Bool
from torch import Tensor

from ncscope.errors import list_names
from ncscope.math.pairs import row_blocks
from ncscope.metrics.information import Entropies
from ncscope.metrics.registry import METRICS
from ncscope.metrics.sources import Sources
from ncscope.stats.statistics import ClassStatistics

SAMPLES_PER_DIMENSION = 5
"""Least ratio of n to max(d, K-1) at which random labels do not look collapsed."""

SAMPLES_PER_CLASS = 10
"""Least number of samples of a class that is not warned about."""

LARGEST_ERROR = 0.02
"""Largest standard error of an estimated MIR that is not warned about."""

SHARE_OF_NOISE = 0.1
"""Largest share of noise in the class means' spread that is not warned about."""

SAMPLES_OF_MEANS = 100
"""Samples of a class from which a ratio over noisy means is too large to look collapsed."""

RARE = 0.1
"""Share of the average class's samples below which a class is rare."""

SHARE_OF_RARE = 0.5
"""Largest share of NC1 due to rare classes that is not warned about."""

LOST = 0.01
"""Least share by which small classes lower CDNV that is warned about."""

NO_GAIN = 0.05
"""Share of the way from chance to collapse that counts as no gain."""

UNEXPLAINED = 1e-3
"""Share of a feature's variance, not explained by others, that products in float32 resolve."""

_LOWERED = ("nc1", "nc1_quotient", "cdnv")
_MAIN = ("nc1", "nc1_quotient", "cdnv", "vci", "nc2_etf", "ncc_accuracy", "mir_centered")
_RAISED = ("ncc_accuracy", "mir", "mir_centered")
_INVERTED = tuple(row.key for row in METRICS.values() if row.inverts)
_RANKS = ("rankme", "effective_rank_features", "participation_ratio")
_SPECTRAL = tuple(row.key for row in METRICS.values() if "covariance" in row.reads)
_MSE_PARTS = ("mse_nc1", "mse_nc23", "mse_off_path")


def warnings_on(sources: Sources, values: Mapping[str, float]) -> tuple[str, ...]:
    """Return the warnings on the metrics of a layer.

    Args:
        sources: Statistics of the layer.
        values: Metrics computed from them.
    """
    stats = sources.stats
    if not stats.has_labels:
        return (
            *_warn_of_bounded_ranks(stats, values),
            *_warn_of_rounding_in_spectrum(sources, values),
        )
    rare = [*_warn_of_rare_classes(sources, values)]
    # What rare classes make too large is not too low.
    noisy = {key: value for key, value in values.items() if not (rare and key == "nc1")}
    return (
        *rare,
        *_warn_of_few_samples(stats, values),
        *_warn_of_bounded_ranks(stats, values),
        *_warn_of_noisy_means(stats, noisy),
        *_warn_of_no_simplex(sources, values),
        *_warn_of_absent_classes(stats),
        *_warn_of_small_classes(stats, values),
        *_warn_of_inexact_entropies(sources, values),
        *_warn_of_rounding_in_scatter(stats, values),
        *_warn_of_rounding_in_spectrum(sources, values),
    )


def _warn_of_rounding_in_spectrum(sources: Sources, values: Collection[str]) -> Iterator[str]:
    """Warn if products in float32 do not resolve a part of the spectrum."""
    of_spectrum = [key for key in _SPECTRAL if key in values]
    if sources.stats.blocked and of_spectrum and (lost := sources.covariance.num_lost):
        yield (
            f"precision='blocked' does not resolve the {lost} smallest of {sources.stats.dim} "
            f"eigenvalues, which count as 0 in {', '.join(of_spectrum)}; measure with "
            f"precision='float64'"
        )


def _warn_of_rounding_in_scatter(stats: ClassStatistics, values: Collection[str]) -> Iterator[str]:
    """Warn if products in float32 left few digits of the inverse of the scatter."""
    inverted = [key for key in _INVERTED if key in values]
    if not (stats.blocked and inverted):
        return
    assert stats.within is not None
    size = stats.within.diagonal().sqrt()
    varied = size > 0
    cosines = (stats.within / size / size[:, None])[varied][:, varied]
    root, failed = torch.linalg.cholesky_ex(cosines)
    # A pivot is the share of a feature's variance that the features before it do not explain.
    if bool(failed > 0) or bool((root.diagonal().square() < UNEXPLAINED).any()):
        yield (
            f"the features depend on each other within classes, and precision='blocked' left few "
            f"digits of the rest: {', '.join(inverted)}; measure with precision='float64'"
        )


def _warn_of_few_samples(stats: ClassStatistics, values: Collection[str]) -> Iterator[str]:
    r"""Warn if random labels would look collapsed, in a metric that was measured.

    With random labels, $\Sigma_B$ holds a share $(K-1)/(n-1)$ of $\Sigma_T$ in each direction: VCI
    is about $1-\max(d,K-1)/(n-1)$, and at least 0.
    """
    n, size = stats.num_samples, max(stats.dim, stats.k - 1)
    if n >= SAMPLES_PER_DIMENSION * size:
        return
    effects = []
    if "vci" in values or "linear_probe_mse" in values:
        effects.append(f"a vci of about {max(0.0, 1 - size / (n - 1)):.2g}")
    raised = [key for key in _RAISED if key in values]
    if raised and (effects or raised != ["ncc_accuracy"]):
        effects.append(f"a high {', '.join(raised)}")
    if effects:
        what = f"dimension {stats.dim:,}" if size == stats.dim else f"{stats.k:,} classes"
        enough = SAMPLES_PER_DIMENSION * size
        yield (
            f"{n:,} samples are few for {what}: random labels give {' and '.join(effects)}. "
            f"Compare with the chance level (baseline), or measure {enough:,} samples."
        )


def _warn_of_bounded_ranks(stats: ClassStatistics, values: Collection[str]) -> Iterator[str]:
    """Warn if the number of samples bounds the ranks: features of any kind then look low-rank."""
    bounded = [key for key in _RANKS if key in values]
    if bounded and stats.num_samples <= stats.dim:
        enough = SAMPLES_PER_DIMENSION * stats.dim
        yield (
            f"{stats.num_samples:,} samples span at most {stats.num_samples:,} of {stats.dim:,} "
            f"dimensions, which bounds {', '.join(bounded)}: measure {enough:,} samples"
        )


def _warn_of_rare_classes(sources: Sources, values: Collection[str]) -> Iterator[str]:
    """Warn if NC1 is mostly due to classes with few of the samples."""
    raised = [key for key in ("nc1", "fuzziness") if key in values]
    stats = sources.stats
    rare = stats.counts * stats.k < RARE * stats.num_samples
    if not raised or not bool(rare.any()):
        return
    share = share_of_fuzziness(sources, rare)
    if not share > SHARE_OF_RARE:
        return
    labels = stats.classes[rare].tolist()
    part = float(stats.counts[rare].sum()) / stats.num_samples
    kind = "rare class" if len(labels) == 1 else "rare classes"
    # Their variance is not known well enough for a weight of 1/K.
    if int(stats.counts.min()) < SAMPLES_PER_CLASS:
        remedy = f"leave {_name_classes(labels)} out with ignore_index"
    else:
        remedy = "weight all classes alike with prior='uniform'"
    yield (
        f"{' and '.join(raised)} {'is' if len(raised) == 1 else 'are'} too large: {share:.0%} is "
        f"due to {len(labels):,} {kind} with {part:.2%} of the samples; "
        f"read nc1_quotient, or {remedy}"
    )


def share_of_fuzziness(sources: Sources, chosen: Bool[Tensor, " k"]) -> float:
    r"""Return the share of the fuzziness, a trace, that is due to some classes.

    A class adds $\pi_c(\mu_c-\mu_G)^\top\Sigma_B^\dagger\Sigma_W\Sigma_B^\dagger(\mu_c-\mu_G)$. Of
    $\Sigma_W$ only the diagonal in the eigenvectors of $\Sigma_B$ is taken; what the rest adds sums
    to 0 over the classes. Where only one class's mean lies in a direction, $\Sigma_B$ is
    proportional to $\pi_c$ there, and this part of the trace to $1/\pi_c$.

    Args:
        sources: Statistics with the pooled scatter.
        chosen: True for the classes.
    """
    stats, between = sources.in_range.stats, sources.in_range.discriminants.between
    terms = sources.in_range.discriminants.within_along / between.values
    centre, (rows,) = stats.prior @ stats.offsets, torch.nonzero(chosen, as_tuple=True)
    part = terms.new_zeros(())
    for block in row_blocks(len(rows), stats.dim):
        along = (stats.offsets[rows[block]] - centre) @ between.vectors
        part += stats.prior[rows[block]] @ (along.square() @ (terms / between.values))
    return float(part / terms.sum())


def _warn_of_noisy_means(stats: ClassStatistics, values: Mapping[str, float]) -> Iterator[str]:
    """Warn if the class means are mostly noise, in classes too small to hide it in large values."""
    # NC2 is undefined where all class means coincide, to rounding.
    if not float(stats.between_trace) > 0 or math.isnan(values.get("nc2_etf", 0.0)):
        if decided := [key for key in ("ncc_accuracy", "nc4_disagreement") if key in values]:
            yield (
                "all class means coincide, and the first of them counts as the nearest to every "
                f"sample, which says nothing: {', '.join(decided)}"
            )
        return
    share, effects = noise_share(stats), []
    if lowered := [key for key in _LOWERED if key in values]:
        effects.append(f"too low by about as much: {', '.join(lowered)}")
    if "ncc_accuracy" in values:
        effects.append("too high: ncc_accuracy")
    if effects and share > SHARE_OF_NOISE and stats.num_samples < SAMPLES_OF_MEANS * stats.k:
        noise = f"{share:.0%} of the spread of the class means is noise of few samples"
        yield f"{noise}; {', '.join(effects)}"


def noise_share(stats: ClassStatistics) -> float:
    r"""Return the expected share of noise in the spread of the class means.

    $\sum_c\pi_c(1-\pi_c)\operatorname{Tr}\Sigma_c/n_c$ over $\operatorname{Tr}\Sigma_B$: the mean
    of $n_c$ samples varies by $\Sigma_c/n_c$. Ratios over the spread are too low by about this
    share.
    """
    noise = stats.prior * (1 - stats.prior) * stats.class_traces / stats.counts
    return min(1.0, float(noise.sum() / stats.between_trace))


def no_better_than_chance(
    values: Mapping[str, float], chance: Mapping[str, float], num_classes: int
) -> tuple[str, ...]:
    """Return a warning that names main metrics no closer to collapse than with permuted labels.

    Args:
        values: Metrics.
        chance: The same metrics with permuted labels.
        num_classes: Number of classes.
    """
    keys = []
    for key in _MAIN:
        row = METRICS[key]
        fixed = num_classes == 2 and row.for_two_classes is not None
        if key in values and key in chance and not fixed:
            ideal = row.target(num_classes)
            gained = abs(chance[key] - ideal) - abs(values[key] - ideal)
            if gained <= NO_GAIN * abs(chance[key] - ideal):
                keys.append(key)
    if not keys:
        return ()
    return (f"no sign of collapse, permuted labels come as close: {', '.join(keys)}",)


def warn_of_missing_classes(stats: ClassStatistics, reference: ClassStatistics) -> tuple[str, ...]:
    """Return a warning on classes whose samples can never be right: the reference has no mean.

    Args:
        stats: Statistics of the samples that are measured.
        reference: Statistics whose class means the nearest-mean rule uses.
    """
    known = set(reference.classes.tolist())
    missing = [label for label in stats.classes.tolist() if label not in known]
    if not missing:
        return ()
    kind = "class" if len(missing) == 1 else "classes"
    return (
        f"the reference has no samples of {kind} {list_names(missing, 10)}: ncc_accuracy "
        "and nc4_disagreement count their samples as wrong",
    )


def _warn_of_no_simplex(sources: Sources, values: Collection[str]) -> Iterator[str]:
    r"""Warn if there are too few dimensions for a simplex: some metrics then cannot reach 0.

    K vectors of rank r have a distance of at least $\sqrt{2-2\sqrt{r/(K-1)}}$ to the simplex.
    """
    k, rank = sources.stats.k, sources.stats.dim
    if k <= rank + 1 or "nc2_etf" not in values:
        return
    # Metrics of the means alone do not decompose the scatter, and this is no reason to do so.
    scatter = vars(sources.in_range).get("discriminants")
    rank = rank if scatter is None else scatter.between.rank
    bound = math.sqrt(2 - 2 * math.sqrt(rank / (k - 1)))
    yield (
        f"{k:,} class means in {rank:,} dimensions are no simplex: nc2_etf is at least "
        f"{bound:.3f}; read gnc2_log, gnc2_log_std and unc3 instead"
    )


def _warn_of_absent_classes(stats: ClassStatistics) -> Iterator[str]:
    if stats.k == stats.num_classes:
        return
    present = torch.zeros(stats.num_classes, dtype=torch.bool, device="cpu")
    present[stats.classes.cpu()] = True
    missing = torch.nonzero(~present).squeeze(1).tolist()
    kind = "class" if len(missing) == 1 else "classes"
    hint = " (labels count from 0)" if missing == [0] else ""
    yield (
        f"{kind} {list_names(missing, 10)} without samples{hint}: measured over the "
        f"{stats.k} classes present"
    )


def _warn_of_small_classes(stats: ClassStatistics, values: Collection[str]) -> Iterator[str]:
    small = stats.classes[stats.counts < SAMPLES_PER_CLASS].tolist()
    if not small:
        return
    verb = "has" if len(small) == 1 else "have"
    # The variance about a mean of n samples is (n - 1)/n of the class's own.
    lost = float((1 / stats.counts).mean())
    low = f"; too low by about {lost:.0%}: cdnv" if "cdnv" in values and lost >= LOST else ""
    yield (
        f"{_name_classes(small)} {verb} fewer than {SAMPLES_PER_CLASS} samples (the fewest: "
        f"{int(stats.counts.min())}): a mean of so few follows its samples{low}"
    )


def note_another_loss(sources: Sources, values: Mapping[str, float]) -> Iterator[str]:
    """Note that the parts of the squared error say little where it is large.

    This holds for every network that was trained with cross-entropy, and so is no warning.

    Args:
        sources: Statistics of the layer.
        values: Metrics computed from them.
    """
    loss, stats = values.get("mse_loss", math.nan), sources.stats
    if sources.weight_decay and "mse_loss" in values:
        squares = float(sources.present_weight.square().sum())
        if sources.bias is not None:
            squares += float(sources.bias[stats.classes].square().sum())
        loss -= 0.5 * sources.weight_decay * squares
    constant = 0.5 * (1 - float(stats.prior.square().sum()))
    if loss > constant:
        parts = ", ".join(key for key in _MSE_PARTS if key in values)
        yield (
            f"{parts} say little of a network trained with cross-entropy: the squared error of the "
            f"logits ({loss:.3g}) exceeds that of a constant output ({constant:.2g})"
        )


def _warn_of_inexact_entropies(sources: Sources, values: Mapping[str, float]) -> Iterator[str]:
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


def _name_classes(classes: list[int]) -> str:
    return f"class{'es' if len(classes) > 1 else ''} {list_names(classes, 10)}"
