"""Sources of one layer's metrics, with shared intermediate results computed once."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from jaxtyping import Float
from torch import Tensor

from ncscope.math.powers import METRIC_LIMIT, STREAM_LIMIT, exponent_of, times_power
from ncscope.math.symmetric import SMALL_BYTES, share_gram
from ncscope.metrics.discriminants import Discriminants, discriminants
from ncscope.metrics.duality import RowCosines, row_cosines
from ncscope.metrics.imbalance import SizeSpectrum, size_spectrum
from ncscope.metrics.information import DatasetInformation, Entropies, means_entropies
from ncscope.metrics.mse import MseParts, mse_parts
from ncscope.metrics.ood import OodResult
from ncscope.metrics.spectrum import Covariance, covariance_between, covariance_within
from ncscope.metrics.uniformity import Uniformity, uniformity
from ncscope.stats.decisions import DecisionCounts, Hits
from ncscope.stats.statistics import ClassStatistics

ONE_LOGIT = (
    "one logit z: classes 0 and 1 have the logits -z/2 and z/2, which have the same softmax. Group "
    "'mse' is left out: it is about the outputs of two classes. The rows are opposite: nc0, unc3 "
    "and NC2 of the weights are 0 by construction, and nc3_etf is 0 or 2"
)
"""Note on a measurement with a classifier of one logit."""


@dataclass(frozen=True)
class Sources:
    r"""Statistics of one layer, the classifier that reads it, and results of the second pass.

    Attributes:
        stats: Statistics of the classes present; those of one class for unlabelled samples.
        weight: Classifier weight with a row for every class, of any float type; None if there is
            no classifier.
        bias: Classifier bias, or None.
        decisions: Counts of decisions from the second pass; None if not counted.
        hits: Samples that the classifier assigns to their class; None if not counted.
        information: Entropies from the second pass; None if not computed.
        weight_decay: Weight decay on the classifier, for the MSE decomposition.
        ood: Comparison with samples from outside the distribution; None without such samples.
        weight_exponent: Unit e of the weight: the classifier's weight is $2^e$ times ``weight``.
        one_logit: True if the classifier has one output z for two classes, and ``weight`` has rows
            that give -z/2 and z/2.
    """

    stats: ClassStatistics
    weight: Float[Tensor, "heads d"] | None = None
    bias: Float[Tensor, " heads"] | None = None
    decisions: DecisionCounts | None = None
    information: DatasetInformation | None = None
    weight_decay: float = 0.0
    weight_exponent: int = 0
    hits: Hits | None = None
    ood: OodResult | None = None
    one_logit: bool = False

    @cached_property
    def in_range(self) -> "Sources":
        """Sources with features and weight in units in which metrics can be computed."""
        stats, beyond = self.stats.in_range(), 0
        if self.weight is not None:
            beyond = exponent_of(self.weight, METRIC_LIMIT)
        if stats is self.stats and not beyond:
            return self
        weight = self.weight
        if weight is not None and beyond:
            weight = times_power(weight.to(stats.means.dtype), -beyond)
        unit = self.weight_exponent + beyond
        return replace(self, stats=stats, weight=weight, weight_exponent=unit)

    @cached_property
    def discriminants(self) -> Discriminants:
        """Decompositions of the scatter matrices."""
        return discriminants(self.stats)

    @cached_property
    def covariance(self) -> Covariance:
        """Covariance of the samples, and its root."""
        if not self.stats.has_labels:
            return covariance_within(self.stats)
        return covariance_between(self.stats, self.discriminants)

    @property
    def present_weight(self) -> Float[Tensor, "k d"]:
        """Rows of the weight of the classes present, in float64; kept if small, else converted."""
        small = 8 * self._present_rows.numel() <= SMALL_BYTES
        return self._small_weight if small else self._present_rows.to(self.stats.means.dtype)

    @cached_property
    def _small_weight(self) -> Float[Tensor, "k d"]:
        # Detached: the Gram matrix that metrics share is that of this object, and of no later one.
        return share_gram(self._present_rows.to(self.stats.means.dtype).detach())

    @property
    def _present_rows(self) -> Float[Tensor, "k d"]:
        """Rows of the weight of the classes present, in the weight's type."""
        assert self.weight is not None
        all_present = len(self.stats.classes) == len(self.weight)
        return self.weight if all_present else self.weight[self.stats.classes]

    @cached_property
    def uniformity(self) -> Uniformity:
        """Evenness of the directions of the centred class means."""
        return uniformity(self.stats.frame)

    @cached_property
    def row_cosines(self) -> RowCosines:
        """Cosines between the classifier's rows and the centred class means."""
        return row_cosines(self.present_weight, self.stats.frame)

    @cached_property
    def size_spectrum(self) -> SizeSpectrum | None:
        """Spectrum of the class sizes' matrix; None if there are too many different sizes."""
        return size_spectrum(self.stats.counts)

    @cached_property
    def mse(self) -> MseParts:
        """Decomposed MSE loss; NaN if a decay and features are too far apart in magnitude."""
        if self.weight_decay and abs(self.stats.exponent) > STREAM_LIMIT:
            return MseParts(*[self.stats.prior.new_tensor(math.nan)] * 4)
        return mse_parts(*self._logit_terms, self.weight_decay)

    @property
    def _logit_terms(
        self,
    ) -> tuple[ClassStatistics, Discriminants, Float[Tensor, "k d"], Float[Tensor, " k"] | None]:
        """Statistics and classifier in units in which their products are the logits.

        A weight decay refers to the given units, so with a decay the statistics are converted back
        to these units.
        """
        stats, decomposed = self.stats, self.discriminants
        if self.weight_decay and stats.exponent:
            stats = stats.in_unit(0)
            decomposed = discriminants(stats)
        weight = times_power(self.present_weight, self.weight_exponent + stats.exponent)
        if self.bias is None:
            return stats, decomposed, weight, None
        return stats, decomposed, weight, self.bias[stats.classes].to(stats.means.dtype)

    @cached_property
    def means_entropies(self) -> Entropies:
        """Entropies of the centred class means and of the classifier's rows."""
        return means_entropies(self._present_rows, self.stats.frame)

    @property
    def available(self) -> frozenset[str]:
        """Statistics that are there, by their names in the registry."""
        met = {
            "scatter": self.stats.scatter is not None,
            "directions": self.stats.unit_means is not None,
            "head": self.weight is not None,
            "outputs": self.weight is not None and not self.one_logit,
            "decisions": self.decisions is not None,
            "hits": self.hits is not None,
            "information": self.information is not None,
            "ood": self.ood is not None,
            "scores": self.ood is not None and bool(self.ood.detections),
        }
        return frozenset(name for name, there in met.items() if there)
