"""Follow neural collapse in a run of the trainer of Hugging Face's transformers."""

from typing import Any

from torch import Tensor, nn

from ncscope.api.history import History
from ncscope.errors import InputError, missing_library
from ncscope.integrations.naming import logged
from ncscope.probing.model import ProbeOptions
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

    Whatever evaluates, the schedule of a run or a call of ``trainer.evaluate``, is measured:
    nothing runs twice but the first batch of the run, in which the head is found (and two copies
    of its first sample, which show the batch axis of each layer). Metrics are
    logged as ``eval_nc1``, those of other layers as ``eval_bert.encoder.layer.0/nc2_etf``, with the
    prefix of the evaluation, and returned by ``trainer.evaluate``. Several processes measure their
    samples together; samples that a loader repeats to fill up a batch count twice.

    Args:
        trainer: The trainer that it is then added to, and logs through.
        labels: Under what name the model is given the labels.
        pool: Average sequences over the tokens that the attention mask keeps, and maps over space.
            Otherwise both are flattened, and sequences must be of one length in all batches.
        options: Other fields of `ProbeOptions`, such as ``layers`` and ``groups``, as for
            `measure_model`.

    Attributes:
        latest: Last record by prefix, with notes and spectra.
        history: `History` of all measurements, by optimiser step and prefix;
            ``history.save("run.html")`` is the page of the run.

    Raises:
        InputError: In the run, if the model is not given the labels, and as `measure_model`.
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
        """Follow the model, which a trainer with ``model_init`` has made anew."""
        self._begins.remove()
        self._follow(kwargs["model"])

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count the batch in, the first of an evaluation without what is left of another.

        An evaluation that was interrupted has left its samples, and nothing else has told of it.
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
        """Predictions are not evaluations: forget them."""
        self._watch.forget()

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Measure and log."""
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
        found = logged(self.latest[prefix], f"{prefix}_")
        metrics.update(found)
        self.trainer.log(dict(found))

    def _follow(self, model: nn.Module) -> None:
        self._watch = Watch(model, self.options)
        self._begins = model.register_forward_pre_hook(self._pass_begins, with_kwargs=True)

    def _pass_begins(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Attach to a pass in evaluation mode with labels; not to the one that finds the head.

        No event tells when an evaluation begins. So a pass of somebody else's, which no
        prediction step follows, is seen as well, until the next one takes its place.
        """
        added = self in self.trainer.callback_handler.callbacks
        given = kwargs.get(self.labels)
        if module.training or not added or self._beginning or given is None:
            return
        if self._given is None:  # else it is attached already
            self._beginning = True
            try:
                self._watch.begin(module, args, kwargs)
            finally:
                self._beginning = False
        self._given = given
