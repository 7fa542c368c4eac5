"""Table rows of the spectra, which need no labels."""

from math import nan

from ncscope.metrics import spectrum
from ncscope.metrics.metric import Metric

_SCATTER = frozenset({"scatter"})
_CONSTANT = "the features do not vary"


def _simplex_rank(k: int) -> float:
    """Return the rank of K class means that form a simplex."""
    return k - 1.0


def _even(k: int) -> float:
    """Return the exponent of a simplex's equal eigenvalues; NaN where they are too few."""
    return 0.0 if k > 3 else nan


def _undefined(k: int) -> float:
    """Return NaN, the fit of equal eigenvalues."""
    return nan


ROWS = (
    Metric(
        key="rankme",
        group="spectra",
        title="RankMe",
        meaning=(
            "Number of directions that the features use, counted by the entropy of their singular "
            "values; the features are not centred."
        ),
        formula=(
            r"\exp\Bigl(-\sum_ip_i\log p_i\Bigr),\quad p_i=\frac{\sigma_i(H)}{\sum_j\sigma_j(H)}"
        ),
        source="Garrido et al. 2023",
        compute=lambda s: spectrum.rankme(s.covariance),
        needs=_SCATTER,
        needs_classes=False,
        low=1.0,
        at_collapse=_simplex_rank,
        two_sided=True,
        undefined="all features are zero",
    ),
    Metric(
        key="effective_rank_features",
        group="spectra",
        title="effective rank of the covariance",
        meaning=(
            "Number of directions along which the features vary, counted by the entropy of their "
            "covariance's eigenvalues."
        ),
        formula=(
            r"\exp\Bigl(-\sum_ip_i\log p_i\Bigr),\quad"
            r" p_i=\frac{\lambda_i(\Sigma_T)}{\sum_j\lambda_j(\Sigma_T)}"
        ),
        source="Roy and Vetterli 2007",
        compute=lambda s: spectrum.effective_rank_features(s.covariance),
        needs=_SCATTER,
        needs_classes=False,
        low=1.0,
        at_collapse=_simplex_rank,
        two_sided=True,
        undefined=_CONSTANT,
    ),
    Metric(
        key="participation_ratio",
        group="spectra",
        title="participation ratio",
        meaning=(
            "Number of directions along which the features vary, counted by the squares of their "
            "covariance's eigenvalues: large ones count most."
        ),
        formula=r"\frac{\bigl(\sum_i\lambda_i\bigr)^2}{\sum_i\lambda_i^2}",
        source="Gao et al. 2017",
        compute=lambda s: spectrum.participation_ratio(s.covariance),
        needs=_SCATTER,
        needs_classes=False,
        low=1.0,
        at_collapse=_simplex_rank,
        two_sided=True,
        undefined=_CONSTANT,
    ),
    Metric(
        key="alpha_req",
        group="spectra",
        title="decay of the spectrum",
        meaning=(
            "Exponent of the power law by which the covariance's eigenvalues decay with their "
            "index, fitted to all that are not zero."
        ),
        formula=(
            r"\alpha=-\frac{\sum_i(\log i-\overline{\log i})\log\lambda_i}"
            r"{\sum_i(\log i-\overline{\log i})^2},\quad\lambda_i\propto i^{-\alpha}"
        ),
        source="Agrawal et al. 2022",
        compute=lambda s: spectrum.alpha_req(s.covariance),
        needs=_SCATTER,
        needs_classes=False,
        zero="the features vary alike in all directions",
        better="high",
        at_collapse=_even,
        two_sided=True,
        undefined="fewer than three eigenvalues are above the cut",
    ),
    Metric(
        key="alpha_req_r2",
        group="spectra",
        title="fit of the spectrum's decay",
        meaning=(
            "Share of the variation of the eigenvalues' logarithms that the power law explains."
        ),
        formula=(
            r"1-\frac{\sum_i(\log\lambda_i-c+\alpha\log i)^2}"
            r"{\sum_i(\log\lambda_i-\overline{\log\lambda})^2}"
        ),
        source="fit of Agrawal et al. 2022",
        compute=lambda s: spectrum.alpha_req_r2(s.covariance),
        needs=_SCATTER,
        needs_classes=False,
        high=1.0,
        zero="the spectrum is no power law",
        better="high",
        at_collapse=_undefined,
        two_sided=True,
        undefined="fewer than three eigenvalues are above the cut, or they are equal",
    ),
)
