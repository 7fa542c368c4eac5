"""Execution of a sweep's runs one after another in this process."""

from collections.abc import Sequence

from ncscope.lab.sweeps.progress import RunProgress, SweepProgress
from ncscope.lab.sweeps.run_request import RunRequest, carry_out


def run_here(requests: Sequence[RunRequest], progress: SweepProgress) -> dict[str, str]:
    """Carry out all requests.

    Args:
        requests: Runs to carry out, in order.
        progress: Progress of the runs, updated at every measurement.

    Returns:
        Reason of the failure, for each run that failed.
    """
    failures = {}
    for request in requests:

        def on_row(part: str, done: int, total: int, name: str = request.name) -> None:
            progress.update({name: RunProgress("running", part, done, total)})

        progress.update({request.name: RunProgress("running")})
        failure = carry_out(request, on_row)
        if failure:
            failures[request.name] = failure
        progress.update({request.name: RunProgress("failed" if failure else "ended")})
    return failures
