"""Table rows of the geometry that classes of different sizes reach."""

from ncscope.metrics import imbalance
from ncscope.metrics.metric import Metric

_HEAD = frozenset({"head"})
_TOO_MANY = f"there are more than {imbalance.MOST_SIZES:,} different class sizes"
_TOO_FEW = "fewer than two classes are smaller than the median"
_SMALL = r"c\ne c',\,n_c,n_{c'}<\operatorname{med}n"


def _simplex_cosine(k: int) -> float:
    """Return the cosine between two vectors of a simplex."""
    return -1 / (k - 1)


ROWS = (
    Metric(
        key="minority_cosine_means",
        group="nc2",
        title="cosine of minority means",
        meaning=(
            "Average cosine between the centred class means of the classes smaller than the "
            "median class: near 1 if the small classes have merged."
        ),
        formula=rf"\operatorname{{avg}}_{{{_SMALL}}}\cos(\tilde\mu_c,\tilde\mu_{{c'}})",
        source="Fang et al. 2021",
        compute=lambda s: imbalance.minority_cosine(s.stats.frame, s.stats.counts),
        low=-1.0,
        high=1.0,
        zero="means of small classes are on average orthogonal",
        at_collapse=_simplex_cosine,
        two_sided=True,
        undefined=f"{_TOO_FEW}, or a centred class mean of these is zero",
    ),
    Metric(
        key="minority_cosine_weights",
        group="nc2",
        title="cosine of minority weights",
        meaning=(
            "Average cosine between the classifier's rows of the classes smaller than the median "
            "class: near 1 if the small classes have merged."
        ),
        formula=rf"\operatorname{{avg}}_{{{_SMALL}}}\cos(w_c,w_{{c'}})",
        source="Fang et al. 2021",
        compute=lambda s: imbalance.minority_cosine(s.present_weight, s.stats.counts),
        needs=_HEAD,
        low=-1.0,
        high=1.0,
        zero="classifier rows of small classes are on average orthogonal",
        at_collapse=_simplex_cosine,
        two_sided=True,
        undefined=f"{_TOO_FEW}, or a row of the classifier of these is zero",
    ),
    Metric(
        key="seli_means",
        group="nc2",
        title="class means to SELI",
        meaning=(
            "Distance of the class means' normalised Gram matrix from the geometry that classes "
            "of these sizes reach as the weight decay vanishes."
        ),
        formula=(
            r"\Bigl\lVert\frac{\tilde M^\top\tilde M}{\lVert\tilde M^\top\tilde M\rVert_F}-"
            r"\frac{(A^\dagger)^{1/2}}{\lVert(A^\dagger)^{1/2}\rVert_F}\Bigr\rVert_F,\;"
            r"A=P\operatorname{diag}(n_c)P,\,P=I-\frac1K\mathbf 1\mathbf 1^\top"
        ),
        source="Thrampoulidis et al. 2022",
        compute=lambda s: imbalance.seli_means(s.stats.frame, s.size_spectrum),
        high=2**0.5,
        zero="centred class means form the SELI geometry; for equal sizes a simplex ETF",
        undefined=f"the class means coincide, or {_TOO_MANY}",
    ),
    Metric(
        key="seli_weights",
        group="nc2",
        title="weights to SELI",
        meaning=(
            "Distance of the normalised Gram matrix of the classifier's rows from the geometry "
            "that classes of these sizes reach as the weight decay vanishes."
        ),
        formula=(
            r"\Bigl\lVert\frac{WW^\top}{\lVert WW^\top\rVert_F}-"
            r"\frac{A^{1/2}}{\lVert A^{1/2}\rVert_F}\Bigr\rVert_F,\;"
            r"A=P\operatorname{diag}(n_c)P,\,P=I-\frac1K\mathbf 1\mathbf 1^\top"
        ),
        source="Thrampoulidis et al. 2022",
        compute=lambda s: imbalance.seli_weights(s.present_weight, s.size_spectrum),
        needs=_HEAD,
        high=2**0.5,
        zero="classifier rows form the SELI geometry; for equal sizes a simplex ETF",
        undefined=f"the classifier is zero, or {_TOO_MANY}",
    ),
)
