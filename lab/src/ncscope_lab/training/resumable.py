"""Training that can be interrupted at any moment and resumed from its last checkpoint."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ncscope.errors import InputError
from ncscope.stats.processes import ALL
from ncscope_lab.observations import Event, Heartbeat, Recorded, event_of, plain_event
from ncscope_lab.runs.event_log import EventLog
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.checkpoint import Checkpoints
from ncscope_lab.training.learner import Learner
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.optimisation import bytes_to_come

AfterStep = Callable[[], None]
"""Function that the loop calls after every step that does not end an epoch."""


def resumable_events(
    learner: Learner,
    epochs: Callable[[AfterStep], Iterator[EpochEnd]],
    measured: Callable[[EpochEnd], Sequence[Recorded]],
    last: int,
    resources: Resources,
) -> Iterator[Event]:
    """Train, measure at the epochs that are due, and save checkpoints at intervals.

    Args:
        learner: Learner to train.
        epochs: Function that trains the learner from its current position, as `train` does.
        measured: Function that measures at the end of an epoch if a measurement is due, and does
            not change the learner.
        last: Number of the last epoch.
        resources: Resources of the run. With a checkpoint folder, a run that was stopped resumes
            from its last checkpoint, and first yields its earlier events again.

    Yields:
        Measurements and observations, and a heartbeat after every epoch.

    Raises:
        InputError: If the disk has no space for checkpoints, or the checkpoint is of another run.
    """
    keeper = _Keeper(learner, resources)
    earlier = keeper.restore()
    events = earlier or []
    yield from events
    yield from (Heartbeat() for _ in range(learner.epoch))
    ends = epochs(lambda: keeper.save_if_due(events))
    if earlier is not None and learner.batch == 0:
        next(ends)  # the events of this epoch were restored from the checkpoint
    for end in ends:
        fresh = measured(end)
        events += fresh
        if keeper.saves(bool(fresh) or end.epoch == last):
            keeper.save(events, fresh)
        yield from fresh
        if end.epoch:
            yield Heartbeat()


class _Keeper:
    """The checkpoint of a run: its learner and all events that it has yielded.

    Of several processes only the first reads the clock and writes. If its write fails, all
    processes stop.
    """

    def __init__(self, learner: Learner, resources: Resources) -> None:
        self.learner, self.device = learner, resources.fabric.device
        self.first, self.alone = resources.fabric.is_global_zero, resources.fabric.world_size == 1
        self.checkpoints: Checkpoints | None = None
        self.log = EventLog(None)
        self.owner: dict[str, str] = {}
        if resources.checkpoints is not None:
            self.checkpoints = Checkpoints(
                resources.checkpoints / "checkpoint.pt", resources.checkpoint_interval
            )
            # One level for the part and one for the run: several parts may have runs of one name.
            part = "/".join(resources.checkpoints.absolute().parts[-2:])
            self.owner = {"run": resources.run, "part": part}

    def restore(self) -> list[Recorded] | None:
        """Restore the learner from the last checkpoint and return its events; None without one.

        Raises:
            InputError: On all processes, if the checkpoint cannot be used on one of them.
        """
        if self.checkpoints is None:
            return None
        state, failure = None, None
        try:
            state = self.checkpoints.load()
            if state is not None:
                self._load(state)
        except InputError as error:
            failure = error
        self._agree(-1 if state is None else self.learner.step, failure)
        events = None if state is None else self._events(self.checkpoints, state)
        self._by_first(partial(self._make_ready, self.checkpoints, events or []))
        return events

    def saves(self, asked: bool) -> bool:
        """Return whether to save a checkpoint at the end of an epoch: on request, or when due."""
        return bool(self._of_first(int(asked or self._due)))

    def save_if_due(self, events: list[Recorded]) -> None:
        """Save a checkpoint within an epoch when one is due, if there is only one process.

        Each of several processes has its own partial sum of the loss, and the sums are combined
        only at the end of an epoch.
        """
        if self.alone and self._due:
            self.save(events)

    def save(self, events: list[Recorded], fresh: Sequence[Recorded] = ()) -> None:
        """Save a checkpoint, and log the new events."""
        if self.checkpoints is not None:
            self._by_first(partial(self._write, self.checkpoints, events, fresh))

    @property
    def _due(self) -> bool:
        return self.checkpoints is not None and self.checkpoints.due

    def _events(self, checkpoints: Checkpoints, state: Mapping[str, Any]) -> list[Recorded]:
        try:
            return [event_of(plain) for plain in state["events"]]
        except (ValueError, TypeError, KeyError) as error:
            raise checkpoints.refuse(reason="events that cannot be read") from error

    def _load(self, state: dict[str, Any]) -> None:
        """Load the checkpoint's state into the learner."""
        assert self.checkpoints is not None
        if not isinstance(state.get("learner"), dict) or not isinstance(state.get("events"), list):
            raise self.checkpoints.refuse(reason="no learner and events")
        if {name: state.get(name) for name in self.owner} != self.owner:
            these = "these" if state.get("run") == self.owner["run"] else "other"
            raise InputError(
                expected=f"the checkpoint of {self.owner['part']} under these settings",
                found=f"that of {state.get('part', 'an unnamed part')} under {these} settings, in "
                f"{self.checkpoints.path}",
                fix="remove it to start this part again",
            )
        found = _difference(_layout(state.get("learner", {})), _layout(self.learner.state()))
        if found:
            raise InputError(
                expected="a checkpoint of this network under these settings",
                found=f"{found} in {self.checkpoints.path}",
                fix="resume with the version that wrote it, or remove it to start this part again",
            )
        self.learner.load_state(state["learner"])
        if not self.first:
            self.learner.loss, self.learner.samples = 0.0, 0  # the first process holds the totals

    def _agree(self, step: int, failure: InputError | None) -> None:
        """Check that all processes are at the same step and that none has failed.

        Raises:
            InputError: On all processes, if one differs or has failed; the failed process raises
                its own failure.
        """
        apart = step != self._of_first(step) or failure is not None
        if ALL.sum(torch.tensor(int(apart), device=self.device), guarded=False):
            raise failure or InputError(
                expected="the same checkpoint on every machine",
                found="another, or none, on some of them",
                fix="pass an --out that all of them see",
            )

    def _make_ready(self, checkpoints: Checkpoints, events: Sequence[Recorded]) -> None:
        checkpoints.clean()
        checkpoints.check_space(self.learner.state(), bytes_to_come(self.learner.optimiser))
        self.log = EventLog(checkpoints.path.parent / "tensorboard")
        self.log.add(events)

    def _write(
        self, checkpoints: Checkpoints, events: list[Recorded], fresh: Sequence[Recorded]
    ) -> None:
        plain = [plain_event(event) for event in events]
        checkpoints.save({**self.owner, "learner": self.learner.state(), "events": plain})
        self.log.add(fresh)

    def _by_first(self, act: Callable[[], None]) -> None:
        """Run an action on the first process, on whose success all processes depend.

        Raises:
            InputError: On all processes, if the action fails.
        """
        failure = None
        if self.first:
            try:
                act()
            except InputError as error:
                failure = error
        if self._of_first(int(failure is not None)):
            raise failure or InputError(
                expected="the first process to keep checkpoints",
                found="that it cannot",
                fix="see what it says",
            )

    def _of_first(self, number: int) -> int:
        """Send the first process's number to all processes."""
        if self.alone:
            return number
        told = torch.tensor(number, device=self.device)
        ALL.send([told])
        return int(told)


def _layout(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names and tensor shapes that must agree for a state to be loaded."""
    held = {name: part for name, part in state.items() if isinstance(part, Mapping)}
    tensors = {
        f"{part}'s {name}": tuple(getattr(value, "shape", ()))
        for part in ("model", "average", "memory", "place")
        for name, value in held.get(part, {}).items()
    }
    groups = [len(group["params"]) for group in held.get("optimiser", {}).get("param_groups", [])]
    return {"parts": sorted(state), "sizes of the optimiser's groups": groups} | tensors


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """Return the first difference between a checkpoint's layout and the learner's."""
    for name in {**here, **there}:
        if there.get(name) != here.get(name):
            return f"{name}: {there.get(name, 'none')} there, {here.get(name, 'none')} here,"
    return None
