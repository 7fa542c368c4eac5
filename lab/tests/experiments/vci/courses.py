"""Results as VCI's experiments yield them, with courses of the metrics to choose."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lab.tests.observed import measured, measurement, nudged, with_each

from ncscope_lab.experiments.vci.training import RANGES
from ncscope_lab.observations import Observation, Results

FALLING, RISING = (9.0, 3.0, 2.0, 1.5, 1.0), (0.1, 1.0, 2.0, 3.0, 4.0)
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
        changed: Courses by run, split and key; the first value is that of the untrained network.
        between: Eigenvalues of Sigma_B at the last epoch.
        total: Eigenvalues of Sigma_T at the last epoch.
    """
    measurements = []
    for number, run in enumerate(runs):
        # Values that are all alike decide nothing.
        own_total = [total[0] * (1 + 1e-7 * number), *total[1:]]
        spectra = {"between": list(between), "total": own_total}
        for split in ("train", "test"):
            own = {key: changed.get((run, split, key), COURSES[key]) for key in COURSES}
            last = len(own["vci"]) - 1
            for epoch in range(last + 1):
                metrics = {key: course[epoch] for key, course in own.items()}
                at_end = spectra if (split, epoch) == ("train", last) else None
                measurements.append(measurement(run, epoch, {"last": metrics}, at_end, split=split))
    return with_each(measured(measurements), nudged)


def with_sweeps(
    results: Results, runs: Sequence[str], fuzziness: float = 1e5, vci: float = 0.401
) -> Results:
    """Add sweeps of the cut and the noise: at small sizes the metrics have the given values.

    Args:
        results: Results to add to.
        runs: Names of the runs.
        fuzziness: Fuzziness at the smallest size; the exact value is 4.
        vci: VCI at the smallest size; the exact value is 0.4.
    """
    for run in runs:
        for sweep, limit in RANGES.items():
            for size, own in ((limit / 10, (fuzziness, vci)), (10 * limit, (1e9, 1e9))):
                values = {"size": size, "fuzziness": own[0], "vci": own[1]}
                exact = {"fuzziness_exact": 4.0, "vci_exact": 0.4}
                row = Observation(9, 6, sweep, "head input", run, values | exact)
                results.add(nudged(row), run)
    return results
