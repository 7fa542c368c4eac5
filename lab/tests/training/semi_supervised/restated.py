"""FixMatch and FreeMatch from their papers' formulas, in NumPy, sample by sample."""

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@dataclass
class FreeMatch:
    """FreeMatch (5)-(7), (10); the average of the confidence is clipped as USB does it."""

    classes: int
    decay: float
    limits: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        self.tau = 1 / self.classes
        self.p = [1 / self.classes] * self.classes
        self.h = [1 / self.classes] * self.classes

    def thresholds(self) -> list[float]:
        return [self.p[c] / max(self.p) * self.tau for c in range(self.classes)]

    def update(self, q: Array) -> None:
        old, new = self.decay, 1 - self.decay
        guesses = [int(np.argmax(row)) for row in q]
        self.tau = old * self.tau + new * sum(max(row) for row in q) / len(q)
        self.tau = min(max(self.tau, self.limits[0]), self.limits[1])
        for c in range(self.classes):
            self.p[c] = old * self.p[c] + new * sum(row[c] for row in q) / len(q)
            self.h[c] = old * self.h[c] + new * guesses.count(c) / len(q)

    def mask(self, q: Array) -> list[bool]:
        levels = self.thresholds()
        return [bool(max(row) >= levels[int(np.argmax(row))]) for row in q]


def consistency(q: Array, strong: Array, mask: list[bool]) -> float:
    """FreeMatch (8)."""
    costs = [-np.log(row[int(np.argmax(guess))]) for guess, row in zip(q, strong, strict=True)]
    return sum(cost for cost, sure in zip(costs, mask, strict=True) if sure) / len(q)


def fairness(state: FreeMatch, strong: Array, mask: list[bool]) -> float:
    """FreeMatch (9), (11), over the classes that a trusted strong view is given to."""
    chosen = [row for row, sure in zip(strong, mask, strict=True) if sure]
    if not chosen:
        return 0.0
    guesses = [int(np.argmax(row)) for row in chosen]
    met = sorted(set(guesses))
    running = [state.p[c] / state.h[c] for c in range(state.classes)]
    batch = {c: sum(row[c] for row in chosen) / guesses.count(c) for c in met}
    total = sum(batch.values())
    return sum(running[c] / sum(running) * np.log(batch[c] / total) for c in met)
