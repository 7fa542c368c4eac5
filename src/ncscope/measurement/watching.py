"""Measurement of a model in forward passes that a training loop or a trainer runs."""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import signature
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import nn

from ncscope.arguments import check_arguments
from ncscope.errors import InputError
from ncscope.measurement.batches import check_next_token, find_module_device
from ncscope.measurement.evaluation import ModelResult
from ncscope.measurement.model import LayerwiseMeasurement, choose_processes
from ncscope.measurement.options import Options
from ncscope.measurement.sample_stores import SampleStore, check_second_pass, open_store
from ncscope.models.evaluation_mode import disable_compilation
from ncscope.models.heads import Head
from ncscope.models.hooks import guard_hook
from ncscope.models.parts_observer import PartsObserver
from ncscope.models.replicas import check_replicas
from ncscope.models.taps import Taps
from ncscope.models.tracing import Trace, trace
from ncscope.models.wrappers import unwrap
from ncscope.stats.statistics import ClassStatistics

Kind = TypeVar("Kind", bound="Watch")
"""Kind of watch, so that a context manager has the type of its subclass."""


@check_arguments
class Watch:
    """Measurement of a model's forward passes while a loop runs them.

    While attached to a model, the watch keeps the features of the latest pass. When it is given the
    labels of this pass, it adds the samples to the measurement; a pass without labels is not
    measured. The passes are measured as they run: in training or evaluation mode, in any precision;
    a compiled model runs uncompiled while the watch is attached.

    The first pass of each measurement costs up to four more passes in evaluation mode: one to find
    the head, which may have been replaced or have grown since the last, one of two samples to find
    the batch axis of each layer, and two of at most eight to see the order of its rows. A loop may
    also call parts of the model, such as a backbone and then a head, instead of the model: that
    pass then shows the head and the layers by itself; see `PartsObserver`.

    A forward pass never fails because it is watched: an error in a hook ends the recording, and the
    next call of `labels` or `measure` raises it.

    Args:
        model: A classifier; a compiled or data-parallel one is unwrapped.
        options: Options of the measurement.
        reference: Statistics of the training set by layer; see `measure_layers`.
        whole: Take a call of the model as a forward pass if True; otherwise only its parts count.

    Attributes:
        reference: Statistics that the next measurement uses as reference.
        data: Loader or data set that may name the classes of the next measurement, or None.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> with Watch(model, Options(layers=["0"], groups=["nc1"])) as seen:
        ...     for _ in range(3):
        ...         _ = model(torch.randn(10, 4))
        ...         seen.labels(torch.arange(10) % 2)
        ...     result = seen.measure()
        >>> [(layer.layer, layer.num_samples) for layer in result.record.layers]
        [('0', 30), ('head input', 30)]
    """

    def __init__(
        self,
        model: nn.Module,
        options: Options | None = None,
        reference: Mapping[str, ClassStatistics] | None = None,
        *,
        whole: bool = True,
    ) -> None:
        self.reference = reference
        self.data: Any = None
        self._given, self._model = model, unwrap(model)
        self._whole = whole
        self._options, self._replicas = choose_processes(options or Options(), model)
        check_second_pass(self._options)
        self._processes = self._options.processes
        self._hooks, self._observing, self._gathered = ExitStack(), ExitStack(), ExitStack()
        self._observer: PartsObserver | None = None
        self._traced: Trace | None = None
        self._taps: Taps | None = None
        self._measurement: LayerwiseMeasurement | None = None
        self._unchecked: Any = None
        self._last: object = None
        self._untraceable: Exception | None = None
        self._failure: Exception | None = None
        self._attached = False
        self._calls_model: bool | None = None
        # Samples that are never measured must not stay on the disk.
        weakref.finalize(self, self._gathered.close)

    def __enter__(self: Kind) -> Kind:
        self.attach()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the hooks from the model; after an error, drop the samples too."""
        self.detach()
        if error is not None:
            self.restart()

    @property
    def model(self) -> nn.Module:
        """Return the model that is watched, without wrappers."""
        return self._model

    @property
    def calls_model(self) -> bool | None:
        """Return whether the loop calls the model itself; None before the first labels."""
        return self._calls_model

    def attach(self) -> None:
        """Record the forward passes from now on.

        Raises:
            InputError: If the model is on a device without float64.
        """
        find_module_device(self._model)  # refuses a device without float64
        self.detach()
        if self._failure is not None:
            return
        self._attached = True
        self._hooks.enter_context(disable_compilation(self._given))
        if self._traced is not None and self._observer is None:
            self._tap(self._traced)
            return
        self._traced, self._taps, self._untraceable = None, None, None
        layers, head = self._options.layers, self._options.head
        observer = PartsObserver(self._model, layers, head, self._fail, whole=self._whole)
        self._observer = self._observing.enter_context(observer)
        if self._whole:
            hook = guard_hook(self._begin_first, self._fail)
            finder = self._model.register_forward_pre_hook(hook, with_kwargs=True)
            self._hooks.callback(finder.remove)

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Attach to a forward pass that begins; register this as a forward pre-hook of the model.

        The first call traces the model with the inputs of this pass.
        """
        find_module_device(self._model)  # refuses a device without float64
        self.detach()
        if self._traced is None:
            self._traced = self._trace(module, args, kwargs)
        self._tap(self._traced).begin(module, args, kwargs)

    def detach(self) -> None:
        """Stop recording forward passes; samples added before are kept."""
        self._attached = False
        self._hooks.close()
        self._observing.close()

    def labels(self, labels: Any) -> None:
        """Add the samples of the latest forward pass to the measurement.

        Args:
            labels: Class of each sample, token or pixel of the pass, in the order of the batch; or
                names of classes that are known.

        Raises:
            InputError: If there was no pass since the last labels, the labels do not fit it, or the
                pass could not be recorded.
        """
        if self._failure is not None:
            raise self._failure
        self._settle()
        taps = self._taps
        is_missing = taps is None or not taps.has_pass
        if taps is None or is_missing or taps.features is self._last:
            raise InputError(
                expected="a forward pass of the watched model before its labels",
                found="none"
                if taps is None or not taps.has_pass
                else "the labels of that pass twice",
                fix="call the watched model itself, then pass the labels of that batch, once",
            )
        assert self._traced is not None
        with _outside_inference_mode():
            self._measurement = self._measurement or self._new_measurement()
            classes = self._measurement.classes.number(labels).clone()  # the loop may reuse them
            if self._unchecked is not None:
                # Only the first pass is compared, so that no later inputs are kept.
                options = self._options
                check_next_token(
                    self._traced.head,
                    self._unchecked,
                    classes,
                    options.next_token,
                    options.ignore_index,
                )
                self._unchecked = None
            self._measurement.update(taps, classes, self._traced)
        self._last = taps.features

    def has_passes(self) -> bool:
        """Return whether a pass has begun in any process since the last call of `measure`.

        Every process must call this.
        """
        begun = self._traced is not None or bool(self._observer and self._observer.has_pass)
        return any(self._processes.gather(begun))

    def has_samples(self) -> bool:
        """Return whether any process has added samples since the last call of `measure`.

        Every process must call this.
        """
        return any(self._processes.gather(self.has_own_samples))

    def measure(self) -> ModelResult:
        """Measure the samples that all processes have added since the last call.

        The head enters with its present weights. Every process must call this, even without
        samples.

        Raises:
            InputError: If no process has added samples, fewer than two classes are present, or
                another process fails.
        """
        with _outside_inference_mode(), self._processes.fail_together():
            if self._failure is not None:
                raise self._failure
            if not self.has_samples():
                raise InputError(
                    expected="forward passes of the watched model, and their labels",
                    found="none",
                    fix="run the model and pass the labels of each batch inside the context",
                )
            measurement = self._measurement or self._new_measurement()
            try:
                measurement.note_buffers(check_replicas(self._model, self._processes))
                measurement.set_reference(self.reference)
                return measurement.result(self._refresh_head())
            finally:
                self.restart()

    @property
    def has_own_samples(self) -> bool:
        """True if this process has added samples since the last call of `measure`."""
        return self._measurement is not None

    @property
    def head_rows(self) -> int | None:
        """Number of rows of the head; None if it has not been found yet."""
        return None if self._traced is None else len(self._traced.head.weight)

    def forget(self) -> None:
        """Drop the samples added since the last call of `measure`."""
        self._measurement = None
        self._gathered.close()

    def restart(self) -> None:
        """Drop samples and errors; find the head again in the next pass: it may be another one."""
        self.forget()
        self._failure = None
        if self._observer is None:
            self._traced, self._taps = None, None
            if self._attached:
                self.attach()

    def _begin_first(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Trace the model on the first pass; what follows shows whether the loop calls parts."""
        assert self._observer is not None
        self._hooks.close()  # tracing runs the model
        self._hooks.enter_context(disable_compilation(self._given))
        with self._observer.pause():
            try:
                self._traced = self._trace(module, args, kwargs)
            except Exception as error:
                self._untraceable = error
                return
        self._tap(self._traced).begin(module, args, kwargs)

    def _trace(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
        self._unchecked = args
        if kwargs:
            # `forward` takes all arguments by position, or all by name.
            names = list(signature(module.forward).parameters)[: len(args)]
            self._unchecked = dict(zip(names, args, strict=True)) | kwargs
        layers, head = self._options.layers, self._options.head
        with _outside_inference_mode():
            return trace(self._model, self._unchecked, layers, head, pool=self._options.pool)

    def _settle(self) -> None:
        """Decide after the first pass whether the loop calls the model or parts of the model."""
        observer = self._observer
        if observer is None or not observer.has_pass:
            return
        self._observer = None
        self._observing.close()
        self._calls_model = observer.is_whole
        if observer.is_whole and self._untraceable is None:
            return
        self._hooks.close()
        self._unchecked = None
        try:
            if observer.is_whole:
                assert self._untraceable is not None
                raise self._untraceable
            with _outside_inference_mode():
                self._traced = observer.trace()
                observer.replay(self._tap(self._traced))
            if not self._attached:
                self._hooks.close()
        except Exception as error:
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        """Keep the error of a hook, and remove all hooks."""
        self._failure = self._failure or error
        self.detach()

    def _tap(self, traced: Trace) -> Taps:
        taps = traced.taps(self._model, pool=self._options.pool, on_error=self._fail)
        if self._taps is not None:
            taps.continue_from(self._taps)
        self._hooks.enter_context(disable_compilation(self._given))
        self._taps = self._hooks.enter_context(taps)
        return self._taps

    def _new_measurement(self) -> LayerwiseMeasurement:
        context = open_store(self._options, can_rerun=False)
        store: SampleStore = self._gathered.enter_context(context)
        return LayerwiseMeasurement(
            self._model,
            self._options,
            store,
            self.reference,
            replicas=self._replicas,
            data=self.data,
        )

    def _refresh_head(self) -> Head | None:
        """Return the head with its present weight; check that it made the logits to the end."""
        if self._traced is None:
            return None
        step = None
        if self._taps is not None and self._measurement is not None:
            step, warnings = self._taps.check_step()
            self._measurement.warn(warnings)
        return self._traced.head.refresh(step)


@contextmanager
def _outside_inference_mode() -> Iterator[None]:
    """Make tensors that can be updated later, even if the passes run in inference mode."""
    with torch.inference_mode(False), torch.no_grad():
        yield
