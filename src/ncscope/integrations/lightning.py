"""Measurement of neural collapse during a run of Lightning's trainer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ncscope.api.history import History
from ncscope.errors import InputError, missing_library
from ncscope.integrations.naming import logged
from ncscope.models.layers import named_layer
from ncscope.probing.batches import split
from ncscope.probing.model import probe_model
from ncscope.probing.plans import ProbeOptions
from ncscope.probing.records import Measurement, ProbeRecord
from ncscope.probing.watching import Watch

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.trainer.states import TrainerFn
except ModuleNotFoundError as error:
    raise ImportError(str(missing_library("lightning"))) from error


class NeuralCollapseCallback(Callback):
    """Measure the network of a `LightningModule` as it trains, and log the metrics.

    Validation samples are measured in the forward passes of the validation steps. Only the first
    batch of the run runs twice, to find the head, and two copies of its first sample run, to find
    the batch axis of each layer. The training set is measured in one of two ways. ``"pass"`` runs
    an additional pass over the training loader, in evaluation mode, at the end of the epoch.
    ``"steps"`` measures the passes of the training steps: no additional pass, but in training mode,
    and with weights that change from step to step.

    Metrics are logged as ``train/nc1`` and ``val/nc1``, those of other layers as
    ``val/blocks.0/nc2_etf``, through `log_dict`: loggers, checkpoints and early stopping see them.
    Several processes measure their samples together and log the same values. Samples that a sampler
    repeats to fill up a batch, as Lightning's samplers do in several processes, count twice.

    Args:
        network: Name of the submodule that is the classifier; by default the only child with
            parameters, or else the `LightningModule` itself. Names of layers are relative to it.
        train: ``"pass"``, ``"steps"``, or None not to measure the training set.
        validation: Measure the validation set if True.
        every_n_epochs: Number of epochs between measurements, which are at the end of an epoch. The
            last epoch of ``max_epochs`` is measured too; a run that stops earlier does not measure
            its last epoch.
        dataloader_idx: Index of the validation loader to measure, if there are several.
        split_batch: Function that returns inputs and labels of a batch; by default, batches are
            pairs, or mappings with ``labels``.
        options: Fields of `ProbeOptions`, such as ``layers`` and ``groups``, as for
            `measure_model`.

    Attributes:
        latest: Last record of ``"train"`` and of ``"val"``, with notes and spectra.
        history: `History` of all measurements, by optimiser step; ``history.save("run.html")``
            writes the page of the run.

    Raises:
        InputError: If ``train`` or ``every_n_epochs`` has another value; during the run, as
            `measure_model`.
    """

    def __init__(
        self,
        *,
        network: str | None = None,
        train: Literal["pass", "steps"] | None = "pass",
        validation: bool = True,
        every_n_epochs: int = 1,
        dataloader_idx: int = 0,
        split_batch: Callable[[Any], tuple[Any, Tensor]] | None = None,
        **options: Any,
    ) -> None:
        if train not in ("pass", "steps", None):
            fix = "choose one of the three"
            raise InputError(expected="train 'pass', 'steps' or None", found=repr(train), fix=fix)
        if every_n_epochs < 1:
            found, fix = str(every_n_epochs), "pass 1 to measure every epoch"
            raise InputError(expected="every_n_epochs of at least 1", found=found, fix=fix)
        self.network, self.train, self.validation = network, train, validation
        self.every_n_epochs, self.dataloader_idx = every_n_epochs, dataloader_idx
        self.split_batch, self.options = split_batch, ProbeOptions(**options)
        self.latest: dict[str, ProbeRecord] = {}
        self.history = History(unit="step")
        self._watches: dict[str, Watch] = {}
        self._validating = False

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the passes of the validation steps."""
        self._validating = self.validation and self._due(trainer)
        if self._validating:
            self._watch(trainer, pl_module, "val").attach()

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
        if self._validating and dataloader_idx == self.dataloader_idx:
            self._watches["val"].labels(self._split(pl_module, batch)[1])

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the samples added, and log the metrics."""
        if self._validating:
            self._watches["val"].detach()
            self._log(trainer, pl_module, "val", self._watches["val"].probed().record)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Record the pass of the training step."""
        if self.train == "steps" and self._due(trainer):
            self._watch(trainer, pl_module, "train").attach()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Add the samples of the batch."""
        if self.train == "steps" and self._due(trainer):
            self._watches["train"].labels(self._split(pl_module, batch)[1])
            self._watches["train"].detach()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the samples added, and log the metrics."""
        if self.train is None or not self._due(trainer):
            return
        if self.train == "steps":
            probed = self._watches["train"].probed()
        else:
            batches = self._training_batches(trainer, pl_module)
            with _generators_kept(trainer.train_dataloader):
                probed = probe_model(self._network(pl_module), batches, self.options)
        self._log(trainer, pl_module, "train", probed.record)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remove the hooks from the model."""
        for watch in self._watches.values():
            watch.detach()
            watch.forget()
        self._watches.clear()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Remove the hooks from the model."""
        self.teardown(trainer, pl_module, "exception")

    def _due(self, trainer: Trainer) -> bool:
        if trainer.sanity_checking:
            return False
        epoch = trainer.current_epoch + 1
        last = epoch == trainer.max_epochs
        in_run = trainer.state.fn == TrainerFn.FITTING
        return not in_run or last or epoch % self.every_n_epochs == 0

    def _network(self, pl_module: LightningModule) -> nn.Module:
        if self.network is not None:
            return named_layer(pl_module, self.network)
        children = [child for child in pl_module.children() if list(child.parameters())]
        return children[0] if len(children) == 1 else pl_module

    def _watch(self, trainer: Trainer, pl_module: LightningModule, name: str) -> Watch:
        """Return the watch on the network; it is kept, because it has found the head."""
        if name not in self._watches:
            network = self._network(pl_module)
            if network is pl_module and trainer.strategy.model is not pl_module:
                # In several processes a call of the LightningModule runs a whole step, and only the
                # step calls the classifier.
                raise InputError(
                    expected="a submodule of the LightningModule that is the classifier",
                    found="none, in several processes",
                    fix="keep the classifier's layers in one submodule, and pass network='...'",
                )
            self._watches[name] = Watch(network, self.options)
        return self._watches[name]

    def _split(self, pl_module: LightningModule, batch: Any) -> tuple[Any, Tensor]:
        return self.split_batch(batch) if self.split_batch else split(batch, pl_module.device)

    def _training_batches(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> Iterator[tuple[Any, Tensor]]:
        """Yield the batches of an epoch, converted and moved to the device as Lightning does."""
        loader, limit = trainer.train_dataloader, trainer.num_training_batches
        assert loader is not None
        for batch in islice(loader, limit if isinstance(limit, int) else None):
            converted = trainer.precision_plugin.convert_input(batch)
            ready = pl_module._on_before_batch_transfer(converted)
            yield self._split(pl_module, trainer.strategy.batch_to_device(ready))

    def _log(
        self, trainer: Trainer, pl_module: LightningModule, split_name: str, record: ProbeRecord
    ) -> None:
        self.latest[split_name] = record
        self.history.append(Measurement(record, trainer.global_step, split_name))
        # Every process has the same values. Lightning warns unless it is told to average them.
        pl_module.log_dict(logged(record, f"{split_name}/"), sync_dist=True)


@contextmanager
def _generators_kept(loader: Any) -> Iterator[None]:
    """Restore the states of the generators of a loader and of its samplers."""
    batches = getattr(loader, "batch_sampler", None)
    owners = (loader, getattr(loader, "sampler", None), getattr(batches, "sampler", None))
    generators = [getattr(owner, "generator", None) for owner in owners]
    states = [(each, each.get_state()) for each in generators if isinstance(each, torch.Generator)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
