"""Results as VCI's experiments yield them, with courses of the metrics to choose."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ncscope.lab.observations import Results
from tests.lab.observed import measured, measurement

EPOCHS = (0, 2, 4, 6)
FALLING, RISING, RETURNING = (9.0, 3.0, 2.0, 1.0), (0.1, 1.0, 2.0, 4.0), (9.0, 3.0, 1.0, 2.0)
COURSES = {
    "fuzziness": FALLING,
    "nc1_quotient": FALLING,
    "cosine_within": FALLING,
    "vci": FALLING,
    "within_in_signal": FALLING,
    "within_off_signal": RISING,
    "accuracy": RISING,
}

Courses = Mapping[tuple[str, str, str], Sequence[float]]
NONE: Courses = MappingProxyType({})


def made(
    runs: Sequence[str],
    changed: Courses = NONE,
    between: Sequence[float] = (4.0, 1.0),
    total: Sequence[float] = (5.0, 3.0, 0.5),
) -> Results:
    """Every metric falls and the variance off V_B rises, but for what is changed.

    Args:
        runs: Names of the runs.
        changed: Courses by run, split and key.
        between: Eigenvalues of Sigma_B at the last epoch.
        total: Eigenvalues of Sigma_T at the last epoch.
    """
    spectra = {"between": list(between), "total": list(total)}
    measurements = []
    for run in runs:
        for split in ("train", "test"):
            own = {key: changed.get((run, split, key), COURSES[key]) for key in COURSES}
            for index, epoch in enumerate(EPOCHS):
                metrics = {key: course[index] for key, course in own.items()}
                at_end = spectra if (split, epoch) == ("train", EPOCHS[-1]) else None
                measurements.append(measurement(run, epoch, {"last": metrics}, at_end, split=split))
    return measured(measurements)
