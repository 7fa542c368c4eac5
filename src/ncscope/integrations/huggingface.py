"""Measurement of neural collapse during a run of the trainer of Hugging Face's transformers."""

from typing import Any

from torch import Tensor, nn

from ncscope.api.history import History
from ncscope.errors import InputError, missing_library
from ncscope.integrations.naming import logged
from ncscope.probing.plans import ProbeOptions
from ncscope.probing.records import Measurement, ProbeRecord
from ncscope.probing.watching import Watch

try:
    from transformers import (
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )
except ModuleNotFoundError as error:
    raise ImportError(str(missing_library("transformers"))) from error


class NeuralCollapseTrainerCallback(TrainerCallback):
    """Measure a classifier in the forward passes of every evaluation, and log the metrics.

    Every evaluation is measured, whether the schedule of a run or a call of ``trainer.evaluate``
    starts it. Only the first batch of the run runs twice, to find the head, and two copies of its
    first sample run, to find the batch axis of each layer. Metrics are logged with the prefix of
    the evaluation: as ``eval_nc1``, those of other layers as
    ``eval_bert.encoder.layer.0/nc2_etf``. ``trainer.evaluate`` returns them too. Several processes
    measure their samples together; samples that a loader repeats to fill up a batch count twice.

    Args:
        trainer: Trainer to which the callback is added afterwards, and through which it logs.
        labels: Name of the model's argument for the labels.
        pool: Average sequences over the tokens that the attention mask keeps, and maps over space.
            Otherwise both are flattened, and sequences must have one length in all batches.
        options: Other fields of `ProbeOptions`, such as ``layers`` and ``groups``, as for
            `measure_model`.

    Attributes:
        latest: Last record of each prefix, with notes and spectra.
        history: `History` of all measurements, by optimiser step and prefix;
            ``history.save("run.html")`` writes the page of the run.

    Raises:
        InputError: During the run, if the model does not get the labels, or as `measure_model`.
    """

    def __init__(
        self, trainer: Trainer, *, labels: str = "labels", pool: bool = True, **options: Any
    ) -> None:
        self.trainer, self.labels = trainer, labels
        self.options = ProbeOptions(pool=pool, **options)
        self.latest: dict[str, ProbeRecord] = {}
        self.history = History(unit="step")
        self._given: Tensor | None = None
        self._beginning = False
        self._loader: object = None
        assert trainer.model is not None
        self._follow(trainer.model)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Attach to the model of this run: a trainer with ``model_init`` makes a new one."""
        self._begins.remove()
        self._follow(kwargs["model"])

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Add the batch; with the first batch of an evaluation, drop samples of the one before.

        An evaluation that was interrupted leaves its samples behind, and no event reports it.
        """
        if kwargs["eval_dataloader"] is not self._loader:
            self._watch.forget()
            self._loader = kwargs["eval_dataloader"]
        if self._given is not None:
            self._watch.labels(self._given)
            self._watch.detach()
            self._given = None

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Any,
        **kwargs: Any,
    ) -> None:
        """Drop the samples: a prediction is not an evaluation."""
        self._watch.forget()

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Measure the samples of the evaluation, and log the metrics."""
        self._loader = None
        metrics: dict[str, float] = kwargs["metrics"]
        prefix = next(key for key in metrics if key.endswith("_runtime")).removesuffix("_runtime")
        if not self._watch.counted_anywhere():
            raise InputError(
                expected=f"{self.labels!r} among the inputs of the model",
                found="none in the whole evaluation",
                fix="evaluate with labels, and leave the loss to the model, without smoothing",
            )
        self.latest[prefix] = self._watch.probed().record
        self.history.append(Measurement(self.latest[prefix], state.global_step, prefix))
        measured = logged(self.latest[prefix], f"{prefix}_")
        metrics.update(measured)
        self.trainer.log(dict(measured))

    def _follow(self, model: nn.Module) -> None:
        self._watch = Watch(model, self.options)
        self._begins = model.register_forward_pre_hook(self._pass_begins, with_kwargs=True)

    def _pass_begins(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Attach to a pass in evaluation mode with labels, except the pass that finds the head.

        No event reports the beginning of an evaluation. A pass outside of evaluations is therefore
        recorded too; no prediction step follows it, and the next pass replaces its features.
        """
        added = self in self.trainer.callback_handler.callbacks
        given = kwargs.get(self.labels)
        if module.training or not added or self._beginning or given is None:
            return
        if self._given is None:  # otherwise the watch is attached already
            self._beginning = True
            try:
                self._watch.begin(module, args, kwargs)
            finally:
                self._beginning = False
        self._given = given
