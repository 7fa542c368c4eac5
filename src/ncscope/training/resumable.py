"""A training run that can be stopped at any moment and taken up again."""

from collections.abc import Callable, Iterator
from pathlib import Path

from ncscope.probing.records import Row
from ncscope.training.checkpoint import Checkpoints
from ncscope.training.event_log import EventLog
from ncscope.training.learner import Learner
from ncscope.training.loop import EpochEnd
from ncscope.training.work import Work

AfterStep = Callable[[], None]
"""What the loop is to call after every step that does not end an epoch."""


def resumable_rows(
    learner: Learner,
    epochs: Callable[[AfterStep], Iterator[EpochEnd]],
    measured: Callable[[EpochEnd], list[Row]],
    last: int,
    work: Work,
) -> Iterator[Row]:
    """Train, measuring as asked, and keep the place now and then.

    Args:
        learner: What learns.
        epochs: Trains it from where it stands, as `train` does.
        measured: The rows of a moment, none if none is due; leaves the learner as it is.
        last: The last epoch.
        work: Where and with what. With a place, a run that was stopped goes on from its last
            checkpoint, and first yields again the rows that it had.

    Yields:
        The rows, and an empty one after every epoch.

    Raises:
        InputError: If the disk has no room for checkpoints.
    """
    keeper = _Keeper(learner, work)
    restored = keeper.restored()
    rows = restored or []
    log = EventLog(keeper.events)
    log.add(rows)
    yield from rows
    yield from ({} for _ in range(learner.epoch))
    ends = epochs(lambda: keeper.save_if_due(rows))
    if restored is not None and learner.batch == 0:
        next(ends)  # what there was to measure is among the rows restored
    for end in ends:
        fresh = measured(end)
        rows += fresh
        if fresh or end.epoch == last or keeper.due:
            keeper.save(rows)
            log.add(fresh)
        yield from fresh
        if end.epoch:
            yield {}


class _Keeper:
    """The checkpoint of a run: everything that it has yielded, and its learner."""

    def __init__(self, learner: Learner, work: Work) -> None:
        self.learner = learner
        self.first, self.alone = work.fabric.is_global_zero, work.fabric.world_size == 1
        self.checkpoints: Checkpoints | None = None
        self.events: Path | None = None
        if work.place is not None:
            self.checkpoints = Checkpoints(work.place / "checkpoint.pt", work.seconds)
            self.events = work.place / "tensorboard" if self.first else None

    @property
    def due(self) -> bool:
        """Whether the last checkpoint is old."""
        return self.checkpoints is not None and self.checkpoints.due

    def restored(self) -> list[Row] | None:
        """The rows of the last checkpoint, the learner put back to it; None if there is none."""
        if self.checkpoints is None:
            return None
        state = self.checkpoints.load()
        if state is None:
            if self.first:
                self.checkpoints.check_space(self.learner.state())
            return None
        self.learner.load_state(state["learner"])
        return list(state["rows"])

    def save_if_due(self, rows: list[Row]) -> None:
        """Save the place in the middle of an epoch, now and then, if there is one process.

        Several have a sum of the loss each, and meet at the end of an epoch only.
        """
        if self.alone and self.due:
            self.save(rows)

    def save(self, rows: list[Row]) -> None:
        """Save the place; of several processes the first does."""
        if self.checkpoints is not None and self.first:
            self.checkpoints.save({"learner": self.learner.state(), "rows": rows})
