"""The losses written from their formulas in NumPy: n x n matrices, plain loops, no gradients."""

import numpy as np


def gram(vectors: np.ndarray) -> np.ndarray:
    unit = vectors / np.sqrt((vectors**2).sum(1, keepdims=True))
    return unit @ unit.T


def entropy(matrix: np.ndarray) -> float:
    share = np.linalg.eigvalsh(matrix / len(matrix))
    share = share[share > 1e-300]
    return float(-(share * np.log(share)).sum())


def mutual_information(features: np.ndarray, vectors: np.ndarray) -> float:
    left, right = gram(features), gram(vectors)
    return entropy(left) + entropy(right) - entropy(left * right)


def mutual_information_ratio(features: np.ndarray, vectors: np.ndarray) -> float:
    smaller = min(entropy(gram(features)), entropy(gram(vectors)))
    return mutual_information(features, vectors) / smaller


def entropy_difference(features: np.ndarray, vectors: np.ndarray) -> float:
    return abs(entropy(gram(features)) - entropy(gram(vectors)))


def within_class_cosine(features: np.ndarray, labels: np.ndarray) -> float:
    terms = []
    for c in np.unique(labels):
        rows = features[labels == c]
        cosines = [a @ b / np.sqrt((a @ a) * (b @ b)) for a in rows for b in rows]
        terms.append(np.mean(cosines) / len(rows))
    return float(np.mean(terms))


def squared_error(logits: np.ndarray, labels: np.ndarray, factor: float, target: float) -> float:
    total = 0.0
    for scores, label in zip(logits, labels, strict=True):
        for j, score in enumerate(scores):
            total += factor * (score - target) ** 2 if j == label else score**2
    return total / (2 * len(logits))


def cross_entropy(
    logits: np.ndarray, labels: np.ndarray, temperature: float, smoothing: float
) -> float:
    total = 0.0
    for scores, label in zip(logits / temperature, labels, strict=True):
        log_share = scores - np.log(np.exp(scores).sum())
        target = np.full(len(scores), smoothing / len(scores))
        target[label] += 1 - smoothing
        total -= target @ log_share
    return total / len(logits)


def pick_all_label(logits: np.ndarray, targets: np.ndarray) -> float:
    total = 0.0
    for scores, row in zip(logits, targets, strict=True):
        for label, there in enumerate(row):
            total -= (scores[label] - np.log(np.exp(scores).sum())) if there else 0.0
    return total / len(logits)


def decay(
    features: np.ndarray, weight: np.ndarray, feature_decay: float, weight_decay: float
) -> float:
    lengths = [h @ h for h in features]
    return feature_decay / 2 * np.mean(lengths) + weight_decay / 2 * np.trace(weight @ weight.T)
