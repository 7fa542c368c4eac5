"""NC4: agreement of the classifier with the nearest-class-mean rule."""

from ncscope.stats.decisions import DecisionCounts, Hits


def disagreement(counts: DecisionCounts) -> float:
    r"""Share of samples with $\arg\max_c\langle w_c,h\rangle+b_c\ne\arg\min_c\lVert h-\mu_c\rVert$.

    Source: MSE fig. 8. Range $[0,1]$; 0: the classifier is the nearest-class-mean rule.
    """
    assert counts.disagreements is not None
    return counts.disagreements / counts.samples


def ncc_accuracy(counts: DecisionCounts) -> float:
    r"""Share of samples with $\arg\min_c\lVert h-\mu_c\rVert=y$.

    Source: PFC (9). Range $[0,1]$; 1: every sample is nearest to the mean of its class.
    """
    return counts.nearest_hits / counts.samples


def accuracy(hits: Hits) -> float:
    r"""Share of samples with $\arg\max_c\langle w_c,h\rangle+b_c=y$. Range $[0,1]$."""
    return hits.correct / hits.samples
