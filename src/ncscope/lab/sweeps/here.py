"""The runs of a sweep one after another in this process."""

from collections.abc import Sequence

from ncscope.lab.sweeps.order import Order, carry_out
from ncscope.lab.sweeps.position import Board, Position


def run_here(orders: Sequence[Order], board: Board) -> dict[str, str]:
    """Carry out every order.

    Args:
        orders: In order.
        board: Told of every measurement.

    Returns:
        Of the runs that failed, why.
    """
    failures = {}
    for order in orders:

        def on_row(part: str, done: int, total: int, name: str = order.name) -> None:
            board.put({name: Position("running", part, done, total)})

        board.put({order.name: Position("running")})
        failure = carry_out(order, on_row)
        if failure:
            failures[order.name] = failure
        board.put({order.name: Position("failed" if failure else "ended")})
    return failures
