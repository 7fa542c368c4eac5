"""Formulas that break the statements on the unconstrained features model."""

from lab.tests.theory.expected.broken import Break

from ncscope_lab.theory import xufm

energy, ratio = xufm.energy, xufm.weight_ratio
frame, simplex, regularised = xufm.frame_minimum, xufm.simplex_minimum, xufm.minimum_with_bias_decay
value, curvature, lemma = xufm.mean_value, xufm.saddle_curvature, xufm.lemma_minimum

BREAKS: list[Break] = [
    Break("xufm/theorem-3.1", xufm, "energy", lambda problem: 1.001 * energy(problem)),
    Break("xufm/theorem-3.1", xufm, "weight_ratio", lambda problem: 1.001 * ratio(problem)),
    Break("xufm/theorem-3.1", xufm, "frame_minimum", lambda problem: 0.999 * frame(problem)),
    Break("xufm/theorem-3.1", xufm, "frame_minimum", lambda problem: 1.001 * frame(problem)),
    Break("xufm/theorem-3.2", xufm, "energy", lambda problem: 1.001 * energy(problem)),
    Break("xufm/theorem-3.2", xufm, "simplex_minimum", frame),
    Break("xufm/theorem-3.2", xufm, "_centring", lambda k: 1.001 * xufm.torch.eye(k) - 1 / k),
    Break("xufm/remark-3.2", xufm, "mean_value", lambda problem: 1.001 * value(problem)),
    Break("xufm/remark-3.2", xufm, "mean_value", lambda problem: 0.0),
    Break(
        "xufm/remark-3.2",
        xufm,
        "minimum_with_bias_decay",
        lambda problem: 1.001 * regularised(problem),
    ),
    Break("xufm/remark-3", xufm, "saddle_curvature", lambda problem: 1.001 * curvature(problem)),
    Break("xufm/remark-3", xufm, "energy", lambda problem: 1.001 * energy(problem)),
    Break("xufm/lemma-a.1", xufm, "lemma_minimum", lambda beta: 1.001 * lemma(beta)),
    Break("xufm/lemma-a.1", xufm, "lemma_minimum", lambda beta: beta - beta**2 / 2),
    Break("xufm/lemma-b.1", xufm, "lemma_minimum", lambda beta: 1.001 * lemma(beta)),
    Break("xufm/lemma-b.1", xufm, "lemma_minimum", lambda beta: beta - beta**2 / 2),
]
