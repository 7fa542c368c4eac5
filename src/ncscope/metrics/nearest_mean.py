"""NC4: agreement of the classifier with the nearest-class-mean rule."""

from ncscope.metrics.metric import metric
from ncscope.stats.decisions import DecisionCounts, Hits


@metric(
    key="nc4_disagreement",
    group="nc4",
    meaning=(
        "Share of the samples for which the classifier and the nearest class mean choose "
        "different classes."
    ),
    formula=(
        r"\operatorname{share}\{\arg\max_c\langle w_c,h\rangle+b_c\ne"
        r"\arg\min_c\lVert h-\mu_c\rVert\}"
    ),
    source="MSE fig. 8",
    needs={"decisions", "head"},
    high=1.0,
    zero="the classifier is the nearest-class-mean rule",
)
def disagreement(decisions: DecisionCounts) -> float:
    """Return the share of samples that classifier and nearest class mean decide differently."""
    assert decisions.disagreements is not None
    return decisions.disagreements / decisions.samples


@metric(
    key="ncc_accuracy",
    group="nc4",
    meaning="Share of the samples whose nearest class mean is that of their class.",
    formula=r"\operatorname{share}\{\arg\min_c\lVert h-\mu_c\rVert=y\}",
    source="PFC (9)",
    needs={"decisions"},
    high=1.0,
    zero="no sample is nearest to its own class mean",
    better="high",
    aliases=("pfc3",),
    also=("pfc",),
)
def ncc_accuracy(decisions: DecisionCounts) -> float:
    """Return the share of samples that are nearest to the mean of their class."""
    return decisions.nearest_hits / decisions.samples


@metric(
    key="accuracy",
    group="nc4",
    meaning="Share of the samples that the classifier assigns to their class.",
    formula=r"\operatorname{share}\{\arg\max_c\langle w_c,h\rangle+b_c=y\}",
    source="",
    needs={"hits", "head"},
    high=1.0,
    zero="every sample is misclassified",
    better="high",
)
def accuracy(hits: Hits) -> float:
    """Return the share of samples that the classifier assigns to their class."""
    return hits.correct / hits.samples
