"""Formulas that break the statements of the field."""

from lab.tests.theory.expected.broken import Break

from ncscope_lab.theory import field
from ncscope_lab.theory import field_depth as depth

bound, duality, remaining, total = (
    field.rank_bound,
    field.duality_bound,
    field.remaining_sum,
    field.row_sum,
)
decay, chain, minimum = depth.schatten_decay, depth.relu_chain, depth.minimum_at_collapse


def _last_read_dropped(factors: int, k: int, core: int) -> tuple[depth.Chain, int]:
    """Return a chain whose head does not read one unit of the last hidden layer."""
    parts, rank = chain(factors, k, core)
    head = parts[0].clone()
    head[:, -1] = 0
    return [head, *parts[1:]], rank


BREAKS: list[Break] = [
    Break("field/simplex-rank", field, "rank_bound", lambda k, d: 1.001 * bound(k, d)),
    Break("field/simplex-rank", field, "rank_bound", lambda k, d: bound(k + 1, d)),
    Break("field/nc0-stationary", field, "row_sum", lambda w: total(w) + 1e-6),
    Break("field/nc0-stationary", field, "row_sum", lambda w: total(w.abs())),
    Break("field/nc0-flow", field, "remaining_sum", lambda c, t: remaining(1.001 * c, t)),
    Break("field/nc0-duality", field, "duality_bound", lambda z: 1.001 * duality(z)),
    Break("field/nc0-duality", field, "row_sum", lambda w: 1.001 * total(w)),
    Break("field/deep-cross-entropy", depth, "schatten_decay", lambda *a: 1.001 * decay(*a)),
    Break("field/deep-cross-entropy", depth, "logits_of_pairs", depth.logits_at_collapse),
    Break("field/deep-mse-relu", depth, "minimum_at_collapse", lambda m: 0.9 * minimum(m)),
    Break("field/deep-mse-relu", depth, "relu_chain", _last_read_dropped),
    Break("field/deep-relu-any-loss", depth, "relu_chain", _last_read_dropped),
    Break("field/deep-mse-linear", depth, "minimum_at_collapse", lambda m: 1.001 * minimum(m)),
]
