"""Values that INFO prints in its tables 1 and 2, to stand beside ours."""

from collections.abc import Mapping
from typing import NamedTuple


class Printed(NamedTuple):
    """A printed value.

    Attributes:
        mean: Mean over the paper's seeds.
        deviation: Number after the plus-minus sign, which the paper does not explain.
    """

    mean: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.deviation:.2f}"


SETTINGS = (
    ("cifar10", 10),
    ("cifar10", 40),
    ("cifar10", 250),
    ("cifar100", 400),
    ("cifar100", 2500),
    ("stl10", 40),
    ("stl10", 1000),
)
"""Data sets and numbers of labels of table 1, in the order of its columns."""

_ERRORS = """
Pi model: 79.18 1.11, 74.34 1.76, 46.24 1.29, 86.96 0.80, 58.80 0.66, 74.31 0.85, 32.78 0.40
Pseudo Label: 80.21 0.55, 74.61 0.26, 46.49 2.20, 87.45 0.85, 57.74 0.28, 74.68 0.99, 32.64 0.71
VAT: 79.81 1.17, 74.66 2.12, 41.03 1.79, 85.20 1.40, 48.84 0.79, 74.74 0.38, 37.95 1.12
MeanTeacher: 76.37 0.44, 70.09 1.60, 37.46 3.30, 81.11 1.44, 45.17 1.06, 71.72 1.45, 33.90 1.37
MixMatch: 65.76 7.06, 36.19 6.48, 13.63 0.59, 67.59 0.66, 39.76 0.48, 54.93 0.96, 21.70 0.68
ReMixMatch: 20.77 7.48, 9.88 1.03, 6.30 0.05, 42.75 1.05, 26.03 0.35, 32.12 6.24, 6.74 0.17
UDA: 34.53 10.69, 10.62 3.75, 5.16 0.06, 46.39 1.59, 27.73 0.21, 37.42 8.44, 6.64 0.17
FixMatch: 24.79 7.65, 7.47 0.28, 5.07 0.05, 46.42 0.82, 28.03 0.16, 35.97 4.14, 6.25 0.33
Dash: 27.28 14.09, 8.93 3.11, 5.16 0.23, 44.82 0.96, 27.15 0.22, 34.52 4.30, 6.39 0.56
MPL: 23.55 6.01, 6.93 0.17, 5.76 0.24, 46.26 1.84, 27.71 0.19, 35.76 4.83, 6.66 0.00
FlexMatch: 13.85 12.04, 4.97 0.06, 4.98 0.09, 39.94 1.62, 26.49 0.20, 29.15 4.16, 5.77 0.18
FreeMatch: 8.07 4.24, 4.90 0.04, 4.88 0.18, 37.98 0.42, 26.47 0.20, 15.56 0.55, 5.63 0.15
OTMatch: 4.89 0.76, 4.72 0.08, 4.60 0.15, 37.29 0.76, 26.04 0.21, 12.10 0.72, 5.60 0.14
SoftMatch: 4.91 0.12, 4.82 0.09, 4.04 0.02, 37.10 0.07, 26.66 0.25, 21.42 3.48, 5.73 0.24
FreeMatch + MI: 4.87 0.66, 4.66 0.13, 4.56 0.15, 36.41 1.91, 25.77 0.35, 16.61 1.19, 5.24 0.17
FreeMatch + ED: 4.69 0.16, 4.63 0.25, 4.60 0.15, 37.31 1.96, 25.79 0.41, 14.93 3.28, 5.30 0.18
"""


def _line(text: str) -> dict[tuple[str, int], Printed]:
    pairs = [Printed(*map(float, pair.split())) for pair in text.split(",")]
    return dict(zip(SETTINGS, pairs, strict=True))


ERRORS: Mapping[str, Mapping[tuple[str, int], Printed]] = {
    name: _line(cells)
    for name, cells in (line.split(": ") for line in _ERRORS.strip().splitlines())
}
"""Table 1: errors in per cent by row, then by data set and number of labels."""

ACCURACIES: Mapping[str, Mapping[str, float]] = {
    "CE": {"cifar10": 95.35, "cifar100": 80.77},
    "CE + MI": {"cifar10": 95.52, "cifar100": 80.81},
    "CE + ED": {"cifar10": 95.57, "cifar100": 80.96},
}
"""Table 2: accuracies in per cent by loss, then by data set, without spreads."""
