"""Formulas that break the statements of the field."""

from lab.tests.theory.expected.broken import Break, scaled

from ncscope_lab.theory import field
from ncscope_lab.theory import field_depth as depth

bound, duality, remaining, total = (
    field.rank_bound,
    field.duality_bound,
    field.remaining_sum,
    field.row_sum,
)
chain = depth.relu_chain


def _last_read_dropped(factors: int, k: int, core: int) -> tuple[depth.Chain, int]:
    """Return a chain whose head does not read one unit of the last hidden layer."""
    parts, rank = chain(factors, k, core)
    head = parts[0].clone()
    head[:, -1] = 0
    return [head, *parts[1:]], rank


BREAKS: list[Break] = [
    scaled("field/simplex-rank", field, "rank_bound"),
    Break("field/simplex-rank", field, "rank_bound", lambda k, d: bound(k + 1, d)),
    Break("field/nc0-stationary", field, "row_sum", lambda w: total(w) + 1e-6),
    Break("field/nc0-stationary", field, "row_sum", lambda w: total(w.abs())),
    Break("field/nc0-flow", field, "remaining_sum", lambda c, t: remaining(1.001 * c, t)),
    scaled("field/nc0-duality", field, "duality_bound"),
    scaled("field/nc0-duality", field, "row_sum"),
    scaled("field/deep-cross-entropy", depth, "schatten_decay"),
    Break("field/deep-cross-entropy", depth, "logits_of_pairs", depth.logits_at_collapse),
    scaled("field/deep-mse-relu", depth, "minimum_at_collapse", 0.9),
    Break("field/deep-mse-relu", depth, "relu_chain", _last_read_dropped),
    Break("field/deep-relu-any-loss", depth, "relu_chain", _last_read_dropped),
    scaled("field/deep-mse-linear", depth, "minimum_at_collapse"),
]
