"""Advice on which transfer score to trust, with its evidence from the zoo of networks.

The numbers are the mean weighted Kendall tau of each score on the report half of ``transfer/zoo``,
by condition; ``docs/figures/zoo.py`` writes them. The page ``transfer-zoo`` has the protocol.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ncscope.transfer.correlations import Correlation

FEW_PER_CLASS = 10
"""Samples a class below which there are few; also few are no more samples than features."""

MANY_CLASSES = 20
"""Classes from which on there are many."""

USUAL, FEW, MANY, MORE_CLASSES, TUNED = "usual", "few", "many", "more classes", "tuned"
FEW_OF_MANY = "few of many"

CONDITIONS: Mapping[str, str] = {
    USUAL: "20 to 200 samples a class",
    FEW: "5 samples a class",
    MANY: "20 to 48 classes, all samples",
    FEW_OF_MANY: "20 to 48 classes, 5 samples each",
    MORE_CLASSES: "48 classes, 32 or 44 features",
    TUNED: "fine-tuned, all samples",
}
"""Conditions under which scores were judged, by key."""


@dataclass(frozen=True)
class Advice:
    """Quality of scores on the zoo under conditions like those of a ranking.

    Attributes:
        conditions: Keys of `CONDITIONS` that fit.
        weighted_tau: Mean weighted tau with its 95 % interval, by condition and key of the score;
            an interval of NaN is unknown.
        reason: Sentence on why the first of the conditions fits.
    """

    conditions: Sequence[str]
    weighted_tau: Mapping[str, Mapping[str, Correlation]]
    reason: str

    @property
    def order(self) -> list[str]:
        """Keys of the scores, the best first, by the first of the conditions."""
        keys = set.intersection(*(set(self.weighted_tau[name]) for name in self.conditions))
        first = self.weighted_tau[self.conditions[0]]
        return sorted(keys, key=lambda key: -first[key].value)


def list_conditions(samples: int, classes: int, dims: Sequence[int]) -> list[str]:
    """Return the keys of the conditions that fit a ranking; fine-tuning is always one.

    Args:
        samples: Number of samples on which the scores are computed.
        classes: Number of classes.
        dims: Number of features of each checkpoint.

    Example:
        >>> list_conditions(samples=100, classes=20, dims=[16, 512])
        ['few', 'few of many', 'more classes', 'tuned']
    """
    few = _are_few(samples, classes, dims)
    conditions = [FEW if few else USUAL]
    if classes >= MANY_CLASSES:
        conditions.append(FEW_OF_MANY if few else MANY)
    if any(dim < classes for dim in dims):
        conditions.append(MORE_CLASSES)
    return [*conditions, TUNED]


def _are_few(samples: int, classes: int, dims: Sequence[int]) -> bool:
    return samples < FEW_PER_CLASS * classes or samples <= max(dims)


def describe_size(samples: int, classes: int, dims: Sequence[int]) -> str:
    """Say why samples count as few, or not; the arguments are those of `list_conditions`.

    Example:
        >>> describe_size(samples=480, classes=10, dims=[64, 512])
        'Yours are few: 480 training samples for up to 512 features.'
        >>> describe_size(samples=480, classes=10, dims=[64])
        'Yours are not few: 48 training samples a class, and in all more than the 64 features.'
    """
    each = samples / classes
    if each < FEW_PER_CLASS:
        return f"Yours are few: {each:.3g} training samples a class, fewer than {FEW_PER_CLASS}."
    if _are_few(samples, classes, dims):
        return f"Yours are few: {samples:,} training samples for up to {max(dims):,} features."
    return (
        f"Yours are not few: {each:.3g} training samples a class, and in all more than the "
        f"{max(dims):,} features."
    )


@cache
def read_evidence() -> Mapping[str, Mapping[str, Correlation]]:
    """Return the mean weighted tau of every score by condition, on the zoo's report half."""
    text = files("ncscope.transfer").joinpath("evidence.json").read_text(encoding="utf-8")
    return {
        condition: {
            key: Correlation(*(math.nan if each is None else each for each in numbers))
            for key, numbers in scores.items()
        }
        for condition, scores in json.loads(text)["weighted_tau"].items()
    }
