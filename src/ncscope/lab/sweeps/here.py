"""The runs of a sweep one after another in this process."""

from collections.abc import Sequence

from ncscope.lab.sweeps.progress import RunProgress, SweepProgress
from ncscope.lab.sweeps.run_request import RunRequest, carry_out


def run_here(requests: Sequence[RunRequest], progress: SweepProgress) -> dict[str, str]:
    """Carry out every order.

    Args:
        requests: In order.
        progress: Told of every measurement.

    Returns:
        Of the runs that failed, why.
    """
    failures = {}
    for request in requests:

        def on_row(part: str, done: int, total: int, name: str = request.name) -> None:
            progress.put({name: RunProgress("running", part, done, total)})

        progress.put({request.name: RunProgress("running")})
        failure = carry_out(request, on_row)
        if failure:
            failures[request.name] = failure
        progress.put({request.name: RunProgress("failed" if failure else "ended")})
    return failures
