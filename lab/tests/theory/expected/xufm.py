"""Formulas that break the statements on the unconstrained features model."""

from lab.tests.theory.expected.broken import Break, scaled

from ncscope_lab.theory import xufm

BREAKS: list[Break] = [
    scaled("xufm/cross-entropy", xufm, "logit_scale"),
    scaled("xufm/cross-entropy", xufm, "weight_ratio"),
    scaled("xufm/cross-entropy", xufm, "cross_entropy_minimum", 0.999),
    scaled("xufm/cross-entropy", xufm, "cross_entropy_minimum"),
    scaled("xufm/theorem-3.1", xufm, "energy"),
    scaled("xufm/theorem-3.1", xufm, "weight_ratio"),
    scaled("xufm/theorem-3.1", xufm, "frame_minimum", 0.999),
    scaled("xufm/theorem-3.1", xufm, "frame_minimum"),
    scaled("xufm/theorem-3.2", xufm, "energy"),
    Break("xufm/theorem-3.2", xufm, "simplex_minimum", xufm.frame_minimum),
    Break("xufm/theorem-3.2", xufm, "_centring", lambda k: 1.001 * xufm.torch.eye(k) - 1 / k),
    scaled("xufm/remark-3.2", xufm, "mean_value"),
    Break("xufm/remark-3.2", xufm, "mean_value", lambda problem: 0.0),
    scaled("xufm/remark-3.2", xufm, "minimum_with_bias_decay"),
    scaled("xufm/remark-3", xufm, "saddle_curvature"),
    scaled("xufm/remark-3", xufm, "energy"),
    scaled("xufm/lemma-a.1", xufm, "lemma_minimum"),
    Break("xufm/lemma-a.1", xufm, "lemma_minimum", lambda beta: beta - beta**2 / 2),
    scaled("xufm/lemma-b.1", xufm, "lemma_minimum"),
    Break("xufm/lemma-b.1", xufm, "lemma_minimum", lambda beta: beta - beta**2 / 2),
]
