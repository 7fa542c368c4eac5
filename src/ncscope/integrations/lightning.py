"""Measurement of neural collapse during a run of Lightning's trainer."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Unpack

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from ncscope.api.alerts import AlertChoice
from ncscope.api.history import History
from ncscope.arguments import Count, Size, check_arguments
from ncscope.errors import library_error
from ncscope.integrations.recording import OnError, Recorder, Reference
from ncscope.measurement.batches import check_third_entry, split
from ncscope.measurement.model import measure_layers
from ncscope.measurement.naming import LogChoice
from ncscope.measurement.options import OptionFields, Options
from ncscope.measurement.records import ModelRecord
from ncscope.measurement.watching import Watch
from ncscope.models.evaluation_mode import disable_compilation, restore_generators
from ncscope.models.layers import find_layer
from ncscope.models.wrappers import unwrap

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.trainer.states import TrainerFn
    from lightning.pytorch.utilities import CombinedLoader
except ModuleNotFoundError as error:
    raise ImportError(str(library_error("lightning"))) from error


class NeuralCollapseCallback(Callback):
    """Measure the network of a `LightningModule` as it trains, and log the metrics.

    Validation samples are measured in the forward passes of the validation steps. The first batch
    of each validation runs twice, to find the head, which may have been replaced or have grown
    since the last, and two copies of its first sample run, to find the batch axis of each layer.
    The training set is
    measured in one of two ways. ``"pass"`` runs an additional pass over the training loader, in
    evaluation mode, at the end of the epoch. ``"steps"`` measures the passes of the training steps:
    no additional pass, but in training mode, and with weights that change from step to step.

    The steps may call the network as a whole, or parts of it, such as ``self.backbone`` and then
    ``self.head``. The head is then the linear layer whose output is the output of the last module
    that a step calls. Only the steps know what happens between the parts, so the training set is
    measured in the training steps also with ``"pass"``. The same holds if an additional pass would
    change the training: with an `IterableDataset`, with ``persistent_workers``, and with loaders
    that are no `DataLoader`. The record's warnings then say so. A data set that has a random
    generator of its own, or counts how often it is read, shows no sign of that; pass ``"steps"``.

    Metrics are logged as ``train/nc/nc1`` and ``val/nc/nc1``, those of other layers as
    ``val/nc/blocks.0/pfc1``: loggers, checkpoints and early stopping see them. A name that the
    module or another callback logs is left out, with a warning. Several processes measure their
    samples together and log the same values. Samples that a sampler repeats to fill up a batch, as
    Lightning's samplers do in several processes, count twice.

    A callback may follow several fits, such as those of a cross-validation: the history names the
    runs after the first ``"fit 2"``, ``"fit 3"`` and so on.

    Weights, random states and the module's metrics are the same as in a run without the callback. A
    compiled network runs uncompiled in the steps that are measured, which may change the last
    digits of the values that these steps log, and with ``"steps"`` of the weights.

    Args:
        network: Name of the submodule that is the classifier; by default the only child with
            parameters, or else the `LightningModule` itself. Names of layers are relative to it.
        train: ``"pass"``, ``"steps"``, or None not to measure the training set.
        validation: Measure the validation set if True.
        every_n_epochs: Number of epochs between measurements, which are at the end of an epoch. The
            last epoch of ``max_epochs`` is measured too; a run that stops earlier does not measure
            its last epoch.
        dataloader_idx: Index of the validation loader to measure, if there are several. Metrics of
            a loader after the first are logged with the index, as ``val/1/nc/nc1``; several loaders
            take one callback each.
        prefix: Namespace of the metrics in the log; empty for none.
        log: ``"headline"`` for ``nc1``, ``cdnv``, ``vci``, ``nc2_etf``, ``nc3_self_duality``,
            ``nc4_disagreement`` and ``mir_centered`` of the head's features, and ``pfc1``, ``pfc2``
            and ``pfc3`` of the other layers; ``"all"`` for all metrics that are measured. The
            history holds all in both cases; ``groups`` chooses what is measured.
        reference: Training set whose class means give NCC and NC4 of the validation set:
            ``"train"`` for the last measurement of the training set, which then comes before the
            validation at the end of an epoch; or a `ModelReport` of the same layers. By default,
            and before the first measurement of the training set, the class means of the validation
            set.
        on_error: ``"warn"``: an error of measuring ends the measuring with a warning, and the
            training goes on; ``"raise"``: the error ends the run. Errors show at the end of the
            sanity check or of an epoch, in all processes.
        save: File in which the history is written at the end of the run, for example
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
        latest: Last record of ``"train"`` and of ``"val"``, with notes and spectra.
        history: `History` of all measurements, by optimiser step; ``history.save("run.html")``
            writes the page of the run.

    Raises:
        InputError: If an argument has another value; during the run, with ``on_error="raise"``, as
            `measure_model`.
    """

    @check_arguments
    def __init__(
        self,
        *,
        network: str | None = None,
        train: Literal["pass", "steps"] | None = "pass",
        validation: bool = True,
        every_n_epochs: Size = 1,
        dataloader_idx: Count = 0,
        prefix: str = "nc",
        log: LogChoice = "headline",
        reference: Reference = None,
        on_error: OnError = "warn",
        save: str | Path | None = None,
        alert: AlertChoice | None = None,
        options: Options | None = None,
        **fields: Unpack[OptionFields],
    ) -> None:
        self.network, self.train, self.validation = network, train, validation
        self.every_n_epochs, self.dataloader_idx = every_n_epochs, dataloader_idx
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
        self._measures_train_first = reference == "train"
        self._watches: dict[str, Watch] = {}
        self._step = ExitStack()
        self._users_names: set[str] = set()
        self._batches = 0
        self._step_of_train: int | None = None

    @property
    def latest(self) -> dict[str, ModelRecord]:
        """Return the last record of each split."""
        return self._recorder.latest

    @property
    def history(self) -> History:
        """Return the history of all measurements."""
        return self._recorder.history

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begin a new run in the history if the callback has followed a fit before."""
        if stage == "fit":
            self._recorder.begin_run()
            self._users_names.clear()
            self._batches, self._step_of_train = 0, None

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the training set first if its class means are the reference."""
        if not self._watches_validation(trainer) or trainer.sanity_checking:
            return
        in_fit = trainer.state.fn == TrainerFn.FITTING
        # Within an epoch, a second pass over the loader could disturb the first one.
        ends = in_fit and trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        if self._measures_train_first and self.train is not None and ends:
            self._measure_train(trainer, pl_module)

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Record the pass of the validation step."""
        if self._watches_validation(trainer) and dataloader_idx == self.dataloader_idx:
            self._recorder.run_locally(lambda: self._attach(trainer, pl_module, "val"))

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Add the samples of the batch."""
        if self._watches_validation(trainer) and dataloader_idx == self.dataloader_idx:
            self._recorder.run_locally(lambda: self._add(pl_module, batch, "val"))
            self._detach()

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the samples added, and log the metrics; report errors in the sanity check."""
        if not self._watches_validation(trainer):
            return
        if trainer.sanity_checking:
            self._recorder.run_in_all()
            for watch in self._watches.values():
                watch.restart()
        else:
            self._recorder.run_in_all(lambda: self._measure_watched(trainer, pl_module, "val"))
            self._log(trainer, pl_module, "val")
        self._clean_after_error()

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the names that the module logs, which a metric must not take."""
        self._users_names.update(trainer.callback_metrics, trainer.logged_metrics)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count the batches of the epoch from here."""
        self._batches = 0

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Record the pass of the training step."""
        if self._watches_training(trainer):
            self._recorder.run_locally(lambda: self._attach(trainer, pl_module, "train"))

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Add the samples of the batch."""
        self._batches += 1
        if self._watches_training(trainer):
            self._recorder.run_locally(lambda: self._add(pl_module, batch, "train"))
            self._detach()
            # The first step is watched in any case, to learn what the steps call.
            if not self._watches_training(trainer):
                self._watches["train"].forget()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the samples added, or the training set, and log the metrics."""
        if self.train is None or not self._is_due(trainer):
            return
        if self._step_of_train != trainer.global_step:
            self._measure_train(trainer, pl_module)
        self._log(trainer, pl_module, "train")
        self._clean_after_error()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn of names that the module has logged after the last measurement."""
        self._recorder.run_in_all(lambda: self._recorder.leave_out_logged(names_of_others(trainer)))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remove the hooks from the model, and write the history."""
        self._remove_watches()
        self._recorder.finish()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Remove the hooks from the model, and write the history."""
        self.teardown(trainer, pl_module, "exception")

    def _is_due(self, trainer: Trainer) -> bool:
        if trainer.sanity_checking or self._recorder.has_ended:
            return False
        epoch = trainer.current_epoch + 1
        last = epoch == trainer.max_epochs
        in_run = trainer.state.fn == TrainerFn.FITTING
        return not in_run or last or epoch % self.every_n_epochs == 0

    def _watches_validation(self, trainer: Trainer) -> bool:
        """Return whether validation steps are watched now."""
        is_checked = trainer.sanity_checking and not self._recorder.has_ended
        return self.validation and (is_checked or self._is_due(trainer))

    def _watches_training(self, trainer: Trainer) -> bool:
        """Return whether training steps are watched now.

        Before an additional pass, a step is watched too if it is unknown what the steps call.
        """
        if self.train is None or not self._is_due(trainer):
            return False
        return self._needs_steps(trainer) or self._steps_call_whole() is None

    def _needs_steps(self, trainer: Trainer) -> bool:
        """Return whether this process has to measure the training set in the training steps."""
        if self.train == "steps" or self._steps_call_whole() is False:
            return True
        return not can_be_read_again(trainer.train_dataloader)

    def _steps_call_whole(self) -> bool | None:
        """Return whether the steps call the whole network; None as long as this is unknown."""
        answers = [watch.calls_model for watch in self._watches.values()]
        return next((whole for whole in answers if whole is not None), None)

    def _attach(self, trainer: Trainer, pl_module: LightningModule, split_name: str) -> None:
        self._step.enter_context(disable_compilation(pl_module))
        self._watch(trainer, pl_module, split_name).attach()

    def _add(self, pl_module: LightningModule, batch: Any, split_name: str) -> None:
        watch = self._watches[split_name]
        split_batch, is_first = self._recorder.options.split_batch, not watch.has_own_samples
        watch.labels(split(batch, watch.model, split_batch)[1])
        if is_first and watch.head_rows is not None:
            check_third_entry(batch, watch.head_rows, split_batch)

    def _detach(self) -> None:
        for watch in self._watches.values():
            watch.detach()
        self._step.close()

    def _measure_watched(
        self, trainer: Trainer, pl_module: LightningModule, split_name: str
    ) -> None:
        """Measure the samples of the steps that were watched."""
        watch = self._watch(trainer, pl_module, split_name)
        watch.reference = self._recorder.reference_for(split_name)
        result = watch.measure()
        if split_name == "train":
            warnings = (*result.record.last.warnings, _IN_STEPS)
            result = replace(result, record=result.record.with_last(warnings=warnings))
        self._recorder.add(result, trainer.global_step, split_name)

    def _measure_train(self, trainer: Trainer, pl_module: LightningModule) -> None:
        def measure() -> None:
            # Decided by all processes together: the two ways call different collectives.
            if any(self._recorder.processes.gather(self._needs_steps(trainer))):
                self._measure_watched(trainer, pl_module, "train")
                return
            batches = self._training_batches(trainer, pl_module)
            network, options = self._network(pl_module), self._recorder.options
            data = trainer.train_dataloader
            # A loader with a generator of its own draws the next epoch's order from its state.
            with restore_generators(*_loaders_in(data)), disable_compilation(pl_module):
                result = measure_layers(network, batches, options, data=data)
            self._recorder.add(result, trainer.global_step, "train")

        self._recorder.run_in_all(measure)
        self._step_of_train = trainer.global_step

    def _network(self, pl_module: LightningModule) -> nn.Module:
        if self.network is not None:
            return find_layer(pl_module, self.network)
        children = [child for child in pl_module.children() if list(child.parameters())]
        return children[0] if len(children) == 1 else pl_module

    def _watch(self, trainer: Trainer, pl_module: LightningModule, name: str) -> Watch:
        """Return the watch on the network, a new one if the module has another network now."""
        network = self._network(pl_module)
        watch = self._watches.get(name)
        if watch is None or watch.model is not unwrap(network):
            if watch is not None:
                watch.detach()
                watch.forget()
            # In several processes a call of the LightningModule runs a whole step.
            whole = network is not pl_module or trainer.strategy.model is pl_module
            self._watches[name] = Watch(network, self._recorder.options, whole=whole)
            self._watches[name].data = self._data(trainer, name)
        return self._watches[name]

    def _data(self, trainer: Trainer, name: str) -> Any:
        """Return the loader of a split, whose data set may name the classes."""
        if name == "train":
            return trainer.train_dataloader
        loaders = trainer.val_dataloaders
        several = isinstance(loaders, list | tuple)
        return loaders[self.dataloader_idx] if several and loaders else loaders

    def _training_batches(self, trainer: Trainer, pl_module: LightningModule) -> Iterator[Any]:
        """Yield the batches of an epoch, converted and moved to the device as Lightning does.

        Of a loader without a length, such as one with a batch sampler without a length, as many
        batches are read as the epoch had.
        """
        loader, limit = trainer.train_dataloader, trainer.num_training_batches
        assert loader is not None
        if isinstance(loader, Mapping | list | tuple):
            loader = (batch for batch, _, _ in CombinedLoader(loader, "max_size_cycle"))
        for batch in islice(loader, limit if isinstance(limit, int) else self._batches):
            batch = trainer.precision_plugin.convert_input(batch)
            batch = pl_module._on_before_batch_transfer(batch)
            yield trainer.strategy.batch_to_device(batch)

    def _log(self, trainer: Trainer, pl_module: LightningModule, split_name: str) -> None:
        def log() -> None:
            in_log = self._users_names | {*trainer.callback_metrics, *trainer.logged_metrics}
            # Callbacks of several validation loaders log side by side.
            later = split_name == "val" and self.dataloader_idx > 0
            namespace = f"val/{self.dataloader_idx}/" if later else f"{split_name}/"
            others = names_of_others(trainer)
            metrics = self._recorder.name_metrics(split_name, namespace, in_log, others)
            log_apart(trainer, metrics, pl_module.device)

        self._recorder.run_in_all(log)

    def _clean_after_error(self) -> None:
        if self._recorder.has_ended:
            self._remove_watches()

    def _remove_watches(self) -> None:
        self._detach()
        for watch in self._watches.values():
            watch.forget()
        self._watches.clear()


_IN_STEPS = (
    "measured in the training steps: in training mode, with weights that change during the epoch"
)
"""Warning in the record of a training set that was not measured in an additional pass."""


def can_be_read_again(loader: Any) -> bool:
    """Return whether an additional pass over the training data leaves the next epoch as it is.

    Workers that persist keep random generators, and a stream keeps its position. Of a loader of
    another kind nothing is known.
    """
    return all(
        isinstance(each, DataLoader)
        and not each.persistent_workers
        and not isinstance(each.dataset, IterableDataset)
        for each in _loaders_in(loader)
    )


def _loaders_in(loader: Any) -> list[Any]:
    """Return the loaders in nested lists, tuples, mappings and Lightning's combined loaders."""
    if isinstance(loader, CombinedLoader):
        return _loaders_in(loader.iterables)
    if isinstance(loader, Mapping):
        loader = list(loader.values())
    if isinstance(loader, list | tuple):
        return [inner for each in loader for inner in _loaders_in(each)]
    return [loader]


_SOURCE = "ncscope"
"""Name of the callback among the hooks whose values Lightning's result collection holds."""


def log_apart(trainer: Trainer, metrics: Mapping[str, float], device: torch.device) -> None:
    """Log values beside those of the module; of one name, the module's value is shown.

    `LightningModule.log` averages values of one name and one hook, and callbacks run before the
    module: a value that the module then logs under the same name would be averaged with the
    callback's value. Under another source, Lightning holds both and shows the later one, which is
    the module's.
    """
    results = trainer._results
    assert results is not None
    # The default type, but at least float32: in half precision 65,520 is infinite already.
    default = torch.get_default_dtype()
    dtype = default if default == torch.float64 else torch.float32
    for name, value in metrics.items():
        # Lightning averages the values of a name until it resets them.
        earlier = results.get(f"{_SOURCE}.{name}")
        if earlier is not None:
            earlier.reset()
        results.log(
            _SOURCE,
            name,
            torch.tensor(value, device=device, dtype=dtype),
            batch_size=1,
            # Every process has the same values. Lightning warns unless it is told to average them.
            sync_dist=trainer.world_size > 1,
            sync_dist_fn=trainer.strategy.reduce,
        )


def names_of_others(trainer: Trainer) -> set[str]:
    """Return the names that the module and the other callbacks have logged in this run."""
    epoch_loop = trainer.fit_loop.epoch_loop
    loops = (epoch_loop, epoch_loop.val_loop, trainer.validate_loop)
    return {
        name
        for loop in loops
        for each in loop._results.values()
        if each.meta.fx != _SOURCE
        for name in (each.meta.name, each.meta.forked_name(True), each.meta.forked_name(False))
    }
