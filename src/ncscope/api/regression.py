"""Measurement of neural regression collapse, in arrays or in moments accumulated before."""

from typing import Any

import torch

from ncscope.api.inputs import check_head, check_part
from ncscope.api.plain_report import PlainReport
from ncscope.arguments import check_arguments
from ncscope.array_checks import as_tensor, check_features
from ncscope.errors import InputError
from ncscope.labels import check_pairing
from ncscope.metrics.regression import RegressionSource, RegressionValues, regression_collapse
from ncscope.metrics.regression_sources import RegressionArrays, RegressionSums
from ncscope.stats.regression_moments import RegressionMoments, check_numbers, check_targets

_WITHOUT_HEAD = ("nrc1", "nrc1_unexplained", "mse_least_squares", "r2_least_squares")
_KEYS = (*_WITHOUT_HEAD, "nrc2", "nrc3", "nrc3_gamma", "mse", "r2")


@check_arguments
class RegressionReport(PlainReport):
    """Values of neural regression collapse, by key.

    Keys: ``nrc1``, ``nrc1_unexplained``, ``mse_least_squares``, ``r2_least_squares``; with a head
    also ``nrc2``, ``nrc3``, ``nrc3_gamma``, ``mse`` and ``r2``. See `measure_regression`.

    Attributes:
        notes: Sentences for the reader: rank cuts, why a value is absent or NaN.
        num_samples: Number of samples.
        dim: Feature dimension.
        target_dim: Target dimension.
    """

    def __init__(
        self, values: RegressionValues, num_samples: int, dim: int, target_dim: int
    ) -> None:
        super().__init__(values.metrics, values.notes)
        self.num_samples, self.dim, self.target_dim = num_samples, dim, target_dim

    def _describe(self) -> str:
        return f"{self.num_samples} samples, dimension {self.dim}, targets of {self.target_dim}"

    def _explain_absence(self, key: str) -> str:
        if key not in _KEYS:
            return super()._explain_absence(key)
        if "mse" not in self:
            return f"{key!r} was not measured; it needs the last layer's weight"
        return f"{key!r} was not measured: {' '.join(self.notes)}"

    def as_dict(self) -> dict[str, object]:
        """Return the values as plain types; NaN is None, and a note says why."""
        sizes = {"num_samples": self.num_samples, "dim": self.dim, "target_dim": self.target_dim}
        return super().as_dict() | sizes

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each metric, with its value at collapse."""
        zero = ("nrc1", "nrc1_unexplained", "nrc2", "nrc3")
        return [
            row | {"collapsed_at": 0.0 if row["metric"] in zero else None} for row in super().rows()
        ]


@check_arguments
def measure_regression(
    features: Any, targets: Any, weight: Any = None, bias: Any = None
) -> RegressionReport:
    r"""Measure neural regression collapse in features of a regression model.

    NRC1 to NRC3 of Andriopoulos, Dong, Guo, Zhao and Ross, "The Prevalence of Neural Collapse in
    Neural Multivariate Regression" (NeurIPS 2024), with $\tilde h=h/\lVert h\rVert$ and t the
    target dimension:

    * ``nrc1``: mean squared distance of $\tilde h$ from the span of the t leading principal
      components of the features, in $[0,1]$. Components are those of the centred features;
      $\tilde h$ is not centred.
    * ``nrc1_unexplained``: share of the features' variance outside of these components; unlike
      ``nrc1`` it does not change if the features are shifted. Not in the paper's definition.
    * ``nrc2``: mean squared distance of $\tilde h$ from the row space of $W$, in $[0,1]$.
    * ``nrc3``: squared distance of $WW^\top$ from $\Sigma^{1/2}-\gamma^{1/2}I$, both divided by
      their Frobenius norms, for the best $\gamma\in(0,\lambda_{\min}(\Sigma))$, in $[0,2]$;
      absent for t = 1, where it is always 0. $\Sigma$ is the covariance of the targets.
    * ``nrc3_gamma``: the minimiser, exact by a closed form.
    * ``mse``, ``r2``: error of the head on the features, averaged over samples and targets, and the
      share of the targets' variance that it explains.
    * ``mse_least_squares``, ``r2_least_squares``: the same of least squares with an intercept on
      these features, which no head can surpass.

    The first four are 0 at collapse, the minimum of the paper's unconstrained features model with
    weight decay; $\gamma$ is then the product of both decays.

    Args:
        features: n x d array-like, the features that the last linear layer reads.
        targets: n x t array-like, or n numbers for t = 1.
        weight: Weight of the last layer, t x d; without a weight, what needs one is absent.
        bias: Bias of the last layer, t; None for a layer without a bias.

    Returns:
        Mapping from key to value, with notes, ``to_json``, ``to_dataframe`` and ``save``.

    Raises:
        InputError: If shapes do not fit, a number is NaN or infinite, the largest magnitude is
            beyond $2^{\pm470}$, there are fewer than two samples, or the targets are constant.

    Cost: four reads of the features and one triangular factorisation, about
    $\frac52n(d+t)^2$ operations in float64.

    Example:
        >>> import torch, ncscope
        >>> targets = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> head = torch.eye(2, 5)
        >>> report = ncscope.measure_regression(targets @ head, targets, head)
        >>> report["nrc1"] < 1e-12, report["nrc2"] < 1e-12, round(report["r2"], 9)
        (True, True, 1.0)
    """
    rows = as_tensor(features, "features")
    check_features(rows)
    check_pairing(features, targets, "targets")
    values = check_targets(targets, len(rows)).to(rows.device)
    check_numbers(rows, values)
    return _measure_source(
        RegressionArrays(rows, values.to(torch.float64)), weight, bias, rows.device
    )


@check_arguments
def measure_regression_moments(
    moments: RegressionMoments, weight: Any = None, bias: Any = None
) -> RegressionReport:
    """Measure neural regression collapse in moments that were accumulated batch by batch.

    Args:
        moments: Moments of features and targets, merged from any number of parts.
        weight: Weight of the last layer, t x d.
        bias: Bias of the last layer, t.

    Returns:
        A report, as from `measure_regression`. Values near zero have an absolute error of about
        1e-15, and those of least squares and of the head of 1e-15 of the targets' variance.

    Raises:
        InputError: If there are fewer than two samples, the targets are constant, or weight or bias
            do not fit.

    Example:
        >>> import torch, ncscope
        >>> moments = ncscope.RegressionMoments()
        >>> for batch in torch.randn(90, 3, generator=torch.Generator().manual_seed(0)).split(40):
        ...     moments.update(batch, batch[:, :2].sum(1))
        >>> round(ncscope.measure_regression_moments(moments)["r2_least_squares"], 9)
        1.0
    """
    return _measure_source(RegressionSums(moments), weight, bias, moments.device)


def _measure_source(
    source: RegressionSource, weight: Any, bias: Any, device: torch.device
) -> RegressionReport:
    if source.count < 2:
        found, fix = f"{source.count}", "pass more samples"
        raise InputError(expected="at least two samples", found=found, fix=fix)
    if float(source.target_axes()[0][0]) == 0:
        fix = "check the targets, for example that they were read from the right column"
        raise InputError(expected="targets that vary", found="constant targets", fix=fix)
    check_head(weight, bias)
    sizes = source.target_dim, source.dim
    rows = "targets"
    head = None if weight is None else check_part("weight", weight, sizes, device, rows)
    intercept = None if bias is None else check_part("bias", bias, sizes[:1], device, rows)
    values = regression_collapse(source, head, intercept)
    return RegressionReport(values, source.count, source.dim, source.target_dim)
