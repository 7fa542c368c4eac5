"""VCI's published numbers on transfer: tables 1 and 2, of eleven ResNet-50 on ImageNet."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

DOWNSTREAM: Sequence[str] = (
    "pets",
    "flowers",
    "aircraft",
    "cars",
    "dtd",
    "cifar10",
    "food101",
    "cifar100",
    "caltech101",
    "sun397",
)
"""The downstream sets, in the order of table 1's columns."""


class CheckpointRow(NamedTuple):
    """A row of both tables; every number as printed.

    Attributes:
        accuracies: Accuracies of the linear probes in per cent, in the order of `DOWNSTREAM`.
        mlo: Mean log odds.
        fuzziness: Fuzziness on 50,000 training images of ImageNet, like the next three metrics.
        nc1_quotient: Squared distance.
        cosine_similarity: Column "Cos Sim". Section 3.2 gives this name to the mean cosine distance
            within classes. But the column rises while the other metrics fall, and falls as the
            weight of a penalty on the similarity rises, so it is the similarity, 1 minus the
            distance.
        vci: Variability collapse index.
        accuracy: Accuracy of pretraining, in per cent.
        mlog: Mean log odds gain.
    """

    accuracies: tuple[float, ...]
    mlo: float
    fuzziness: float
    nc1_quotient: float
    cosine_similarity: float
    vci: float
    accuracy: float
    mlog: float


def _row(downstream: str, pretraining: str) -> CheckpointRow:
    *accuracies, mlo = map(float, downstream.split())
    return CheckpointRow(tuple(accuracies), mlo, *map(float, pretraining.split()))


TEMPERATURES: Mapping[float, CheckpointRow] = {
    0.1: _row(
        "90.8 95.03 58.85 64.73 74.47 93.1 75.45 77.14 84.9 62.44 1.445",
        "15.93 2.829 0.4634 0.796 75.4 0.3250",
    ),
    0.2: _row(
        "91.52 95.25 57.5 64.1 74.41 92.89 75.41 77.65 85.58 63.28 1.459",
        "15.64 2.534 0.4856 0.7849 76.64 0.2704",
    ),
    0.4: _row(
        "91.64 94.66 57.67 64.42 74.63 92.58 74.97 77.1 85.59 63.3 1.441",
        "13.45 2.141 0.512 0.7552 77.53 0.2029",
    ),
    0.6: _row(
        "91.74 94.14 57.54 61.56 76.22 92.42 74.86 76.6 85.2 63.51 1.421",
        "12.62 1.923 0.5371 0.7406 77.72 0.1711",
    ),
    0.8: _row(
        "92.35 93.52 55.64 61.6 75.37 92.37 74.2 76.07 84.49 62.74 1.39",
        "11.83 1.742 0.5589 0.728 77.83 0.1343",
    ),
    1.0: _row(
        "91.7 93.68 55.37 60.14 73.99 91.9 74.42 75.96 85.82 62.98 1.375",
        "11.46 1.625 0.5767 0.7201 77.88 0.1161",
    ),
}
"""The first group: the temperature of the softmax."""

REGULARISED: Mapping[float, CheckpointRow] = {
    2.5: _row(
        "90.86 92.01 51.07 55.14 74.36 91.79 72.9 75.44 85.19 62.01 1.282",
        "13.15 2.78 0.4097 0.7216 77.52 0.0440",
    ),
    3.75: _row(
        "90.87 90.79 47.81 50.44 76.01 91.89 72.19 75.31 82.97 60.98 1.22",
        "14.31 3.803 0.3556 0.719 77.31 -0.0063",
    ),
    5.0: _row(
        "90.51 90.03 45.12 50.52 74.41 91.63 71.84 74.64 82.63 60.38 1.174",
        "14.51 4.783 0.3551 0.7099 77.29 -0.0507",
    ),
    7.5: _row(
        "89.33 86.54 44.52 46.87 73.14 91.64 71.19 74.13 81.23 58.55 1.08",
        "15.22 7.287 0.2794 0.6936 77.46 -0.1539",
    ),
    10.0: _row(
        "89.92 83.6 43.39 43.55 72.5 91.43 70.29 73.76 78.25 56.9 1.008",
        "13.92 9.964 0.172 0.6652 77.65 -0.2375",
    ),
}
"""The second group: the weight of the penalty on the cosine similarity within classes."""
