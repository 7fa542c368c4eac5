"""Measurement of neural collapse during a run of the trainer of Hugging Face's transformers."""

import sys
import weakref
from pathlib import Path
from types import FrameType
from typing import Any, Unpack

from torch import Tensor, nn

from ncscope.api.alerts import AlertChoice
from ncscope.api.history import History
from ncscope.arguments import check_arguments
from ncscope.errors import InputError, library_error
from ncscope.integrations.recording import OnError, Recorder, Reference
from ncscope.measurement.naming import LogChoice
from ncscope.measurement.options import OptionFields, Options
from ncscope.measurement.records import ModelRecord
from ncscope.measurement.watching import Watch
from ncscope.models.evaluation_mode import restore_random_states
from ncscope.models.wrappers import unwrap

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import CallbackHandler
except ModuleNotFoundError as error:
    raise ImportError(str(library_error("transformers"))) from error


class NeuralCollapseTrainerCallback(TrainerCallback):
    """Measure a classifier in the forward passes of every evaluation, and log the metrics.

    Pass the callback to the trainer: ``Trainer(..., callbacks=[NeuralCollapseTrainerCallback()])``.
    Every evaluation is then measured, whether the schedule of a run or a call of
    ``trainer.evaluate`` starts it. A callback that ``trainer.add_callback`` adds later is told of
    the model when the training begins or the first batch of an evaluation has ended; an evaluation
    before any training, if it is the first, is then not measured, with a warning.

    The first batch of each evaluation runs twice, to find the head, which may have been replaced or
    have grown since the last, and two copies of its first sample run, to find the batch axis of
    each layer. Several processes measure their samples together;
    samples that a loader repeats to fill up a batch count twice.

    Metrics are logged after the prefix of the evaluation, as ``eval_nc/nc1``, those of other layers
    as ``eval_nc/bert.encoder.layer.0/pfc1``: in ``state.log_history`` and by the trainer's other
    callbacks, such as those for TensorBoard and Weights & Biases. ``trainer.evaluate`` returns them
    too, except in a search for hyperparameters, whose default objective is the sum of all metrics.
    A name that ``compute_metrics`` returns is left out, with a warning. A callback may follow
    several trainings: the history names the runs after the first ``"fit 2"``, ``"fit 3"`` and so
    on. Weights, random states and
    the other metrics are the same as in a run without the callback.

    Args:
        labels: Name of the model's argument for the labels.
        prefix: Namespace of the metrics in the log; empty for none.
        log: ``"headline"`` for ``nc1``, ``cdnv``, ``vci``, ``nc2_etf``, ``nc3_self_duality``,
            ``nc4_disagreement`` and ``mir_centered`` of the head's features, and ``pfc1``, ``pfc2``
            and ``pfc3`` of the other layers; ``"all"`` for all metrics that are measured. The
            history holds all in both cases; ``groups`` chooses what is measured.
        reference: Training set whose class means give NCC and NC4 of the other evaluations:
            ``"train"`` for the last evaluation with the prefix ``train``, or a `ModelReport` of the
            same layers. By default, and before the first such evaluation, the class means of the
            evaluation itself.
        on_error: ``"warn"``: an error of measuring ends the measuring with a warning, and the
            training goes on; ``"raise"``: the error ends the run. Errors show at the end of an
            evaluation, in all processes.
        save: File in which the history is written at the end of the training, for example
            ``"run.html"``; see `History.save`.
        alert: Condition, or several, that each measurement is checked against, for example
            ``"nc1 rises"`` or ``["nc1 rises", "rankme < 10"]``; a dictionary from condition to
            function calls the function with the `Measurement`, in every process. An alert never
            ends the run; see `History`.
        options: Options of the measurements, as for `measure_model`; not the uniform prior, whose
            class counts hold for one split. None for the defaults.
        fields: Fields of `Options`, such as ``layers``, ``groups`` or ``uncertainty``; they replace
            those of ``options``.

    Attributes:
        latest: Last record of each prefix, with notes and spectra.
        history: `History` of all measurements, by optimiser step and prefix;
            ``history.save("run.html")`` writes the page of the run.

    Raises:
        InputError: If an argument has another value; during the run, with ``on_error="raise"``, if
            the model does not get the labels, or as `measure_model`.
    """

    @check_arguments
    def __init__(
        self,
        *,
        labels: str = "labels",
        prefix: str = "nc",
        log: LogChoice = "headline",
        reference: Reference = None,
        on_error: OnError = "warn",
        save: str | Path | None = None,
        alert: AlertChoice | None = None,
        options: Options | None = None,
        **fields: Unpack[OptionFields],
    ) -> None:
        self.labels = labels
        self._recorder = Recorder(
            prefix=prefix,
            log=log,
            reference=reference,
            on_error=on_error,
            save=save,
            alert=alert,
            options=options,
            **fields,
        )
        self._model: nn.Module | None = None
        self._watch: Watch | None = None
        self._pre_hook: Any = None
        self._handler: CallbackHandler | None = None
        self._batch_labels: Tensor | None = None
        self._is_tracing = self._is_late = False
        self._loader: object = None

    @property
    def latest(self) -> dict[str, ModelRecord]:
        """Return the last record of each prefix."""
        return self._recorder.latest

    @property
    def history(self) -> History:
        """Return the history of all measurements."""
        return self._recorder.history

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Attach to the model of the trainer."""
        self._follow(kwargs["model"])

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin a run, and attach to its model: a trainer with ``model_init`` makes a new one."""
        self._recorder.begin_run()
        self._follow(kwargs["model"])

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the history."""
        self._recorder.finish()

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Add the batch; with the first batch of an evaluation, drop samples of the one before.

        An evaluation that was interrupted leaves its samples behind, and no event reports it.
        """
        if self._recorder.has_ended:
            return
        was_attached = self._watch is not None
        if not was_attached:
            self._follow(kwargs["model"])
        assert self._watch is not None
        # No event marks the beginning of an evaluation; another loader does.
        if kwargs["eval_dataloader"] is not self._loader:
            self._watch.forget()
            self._loader, self._is_late = kwargs["eval_dataloader"], not was_attached
        watch, labels = self._watch, self._batch_labels
        if labels is not None:
            self._recorder.run_locally(lambda: watch.labels(labels))
            watch.detach()
            self._batch_labels = None

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Any,
        **kwargs: Any,
    ) -> None:
        """Drop the samples: a prediction is not an evaluation."""
        self._is_late = False
        if self._watch is not None:
            self._watch.forget()

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Measure the samples of the evaluation, and log the metrics."""
        self._loader = None
        metrics: dict[str, float] = kwargs["metrics"]
        prefix = next(key for key in metrics if key.endswith("_runtime")).removesuffix("_runtime")
        if self._is_late and self._watch is not None:
            self._is_late = False
            self._watch.forget()
            self._recorder.warn_once(
                f"the evaluation {prefix!r} was not measured: the callback was added after the "
                "trainer was made; pass it as Trainer(callbacks=[...])"
            )
            return
        to_log: dict[str, float] = {}

        def measure() -> None:
            assert self._watch is not None
            if not self._watch.has_samples():
                raise InputError(
                    expected=f"{self.labels!r} among the inputs of the model",
                    found="none in the whole evaluation",
                    fix="evaluate with labels, and leave the loss to the model, without smoothing",
                )
            self._watch.reference = self._recorder.reference_for(prefix)
            self._recorder.add(self._watch.measure(), state.global_step, prefix)

        self._recorder.run_in_all(measure)
        # An action of its own: a process that fails in the first must not leave the others waiting
        # for its names.
        self._recorder.run_in_all(
            lambda: to_log.update(self._recorder.name_metrics(prefix, f"{prefix}_", metrics))
        )
        if self._recorder.has_ended:
            self._leave()
            return
        # The default objective of a search is the sum of all metrics, ours among them.
        if not state.is_hyper_param_search:
            metrics.update(to_log)
        # Not an action of the recorder, which would swallow errors of the user's callbacks.
        with restore_random_states():
            self._log(to_log, args, state, control)

    def _log(
        self,
        metrics: dict[str, float],
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
    ) -> None:
        """Log as the trainer logs: in the state's history and by all callbacks."""
        logs = dict(metrics) if state.epoch is None else {**metrics, "epoch": state.epoch}
        state.log_history.append({**logs, "step": state.global_step})
        if self._handler is not None:
            self._handler.on_log(args, state, control, logs)

    def _follow(self, model: nn.Module | None) -> None:
        self._leave()
        self._handler = _find_handler()
        if model is None or self._recorder.has_ended:
            return
        self._model = unwrap(model)
        self._watch = Watch(self._model, self._recorder.options)
        hook = _PassHook(self)
        self._pre_hook = self._model.register_forward_pre_hook(hook, with_kwargs=True)

    def _leave(self) -> None:
        """Remove the hooks from the model."""
        if self._pre_hook is not None:
            self._pre_hook.remove()
        if self._watch is not None:
            self._watch.detach()
            self._watch.forget()
        self._model = self._watch = self._pre_hook = self._batch_labels = None

    def pass_begins(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Attach to a pass in evaluation mode with labels, except the pass that finds the head.

        No event reports the beginning of an evaluation. A pass outside of evaluations is therefore
        recorded too; no prediction step follows it, and the next pass replaces its features.
        """
        # A callback that was removed from the trainer gets no events: nothing would be measured.
        is_added = self._handler is None or self in self._handler.callbacks
        labels = kwargs.get(self.labels)
        if module is not self._model or module.training or not is_added or labels is None:
            return
        # The trace below runs the model, and the hook of this very pass would start it again.
        if self._is_tracing or self._watch is None or self._recorder.has_ended:
            return
        if self._batch_labels is None:  # otherwise the watch is attached already
            self._is_tracing, watch = True, self._watch
            self._recorder.run_locally(lambda: watch.begin(module, args, kwargs))
            self._is_tracing = False
        self._batch_labels = labels


class _PassHook:
    """Hook that calls `pass_begins` of a callback; copies of the model, and files of it, lack it.

    A deep copy or a pickle of a model contains its hooks, but must not contain the callback, its
    history and the trainer's callbacks.
    """

    def __init__(self, callback: NeuralCollapseTrainerCallback) -> None:
        self._callback = weakref.ref(callback)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        callback = self._callback()
        if callback is not None:
            callback.pass_begins(module, args, kwargs)

    def __deepcopy__(self, memo: object) -> Any:
        return self.nothing

    def __reduce__(self) -> Any:
        return getattr, (_PassHook, "nothing")

    @staticmethod
    def nothing(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the place of the hook in a copy of the model."""


def _find_handler() -> CallbackHandler | None:
    """Return the trainer's handler of callbacks, which calls the event that runs now.

    Transformers hands its callbacks everything but this handler, which alone reaches the callbacks
    that write to the user's loggers. The handler is the object whose method calls the event.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, CallbackHandler):
            return caller
        frame = frame.f_back
    return None
