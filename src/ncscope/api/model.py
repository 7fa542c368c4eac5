"""Measure collapse in a model: over a loader, or in forward passes that a loop of yours runs."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Unpack

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import Dataset

from ncscope.api.result import ModelReport
from ncscope.arguments import check_arguments
from ncscope.labels import check_reference_names
from ncscope.measurement.evaluation import ModelResult
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import OptionFields, Options, merge_options
from ncscope.measurement.watching import Watch
from ncscope.stats.statistics import ClassStatistics


@check_arguments
def measure_model(
    model: nn.Module,
    loader: Iterable[Any] | Dataset[Any],
    options: Options | None = None,
    *,
    reference: ModelReport | None = None,
    ood: Iterable[Any] | Dataset[Any] | None = None,
    **fields: Unpack[OptionFields],
) -> ModelReport:
    """Measure neural collapse in a classifier, layer by layer.

    The loader is read once, unless ``second_pass`` says otherwise. The first batch runs twice, once
    to find the head, which is the linear layer whose output is the logits; three times if the
    logits are those of one token of each sample, or if an earlier layer has outputs of the same
    shape. Two copies of the first sample also run, to find the batch axis of each layer's output.
    The model runs in evaluation mode and is left exactly as it was: weights, buffers, training
    flags, hooks and random states.

    A model that gives logits for every token, such as a language model, is measured token by
    token: its labels are B x T, and tokens labelled -100 are not measured. If a model gives the
    logits of one token of each sequence, such as the last, this token is measured in every layer.
    If the head is a convolution of kernel 1 that gives logits of every pixel, B x K x H x W, each
    pixel is a sample, and its labels are B x H x W.

    ``accuracy`` is that of the model's logits. If the model changes the outputs of a head that is
    given by name, it is that of the head's outputs, computed exactly from its weights.

    In several processes of ``torch.distributed``, each process calls this with its samples, and
    every process gets the report of all samples. A process may have no samples. An error in one
    process ends all.

    Args:
        model: A classifier: torchvision, timm, Hugging Face, or any module that returns logits;
            pruned, quantised, compiled or wrapped for training on several devices.
        loader: Iterable of batches: ``(inputs, labels)``, ``(inputs, labels, indices)``, or
            mappings with ``labels``, ``label``, ``target`` or ``targets``; ``split_batch`` says
            what others are. Batches without samples are skipped. Or a data set of torch or of the
            library ``datasets``, which is read in batches of 64.
        options: Options of the measurement; None for the defaults.
        reference: Report of the same model on its training set; the nearest-mean rule then uses
            the class means of the training set, and so do the metrics of OOD samples. All layers
            must have the same names in this report, except the features that the head reads.
        ood: Loader of samples from outside the distribution, read once: the features that the head
            reads are compared with theirs (the group ``"ood"``). It yields inputs, or batches as
            the loader does, whose labels are ignored.
        fields: Fields of `Options`, such as ``layers``, ``head``, ``groups``, ``pool`` or
            ``next_token``; they replace those of ``options``.

    Returns:
        A mapping of the metrics of the head's features; its ``layers`` holds a report for each
        layer.

    Raises:
        InputError: If there is no sample or no labels, no head is found, a layer does not exist or
            does not return one row for each sample, the model takes batches of one size only, or
            the reference is no report of these layers; the features to store do not fit, or the
            samples of the second pass differ; the message says what to pass. Also if another
            process fails, with the rank of that process and its error, or if this process is not
            in the group.

    Example:
        >>> import torch, ncscope
        >>> from ncscope.models.networks.residual import ResidualNet
        >>> data = torch.utils.data.TensorDataset(torch.randn(40, 8), torch.arange(40) % 4)
        >>> loader = torch.utils.data.DataLoader(data, batch_size=16)
        >>> model = ResidualNet(in_features=8, width=16, depth=2, num_classes=4)
        >>> report = ncscope.measure_model(model, loader, progress=False)
        >>> list(report.layers)
        ['blocks.0', 'blocks.1']
    """
    options = _options_of_report(options, fields)
    with options.processes.fail_together():
        statistics = statistics_by_layer(reference)
    return _report_of(measure_layers(model, loader, options, statistics, ood), reference)


def _report_of(result: ModelResult, reference: ModelReport | None) -> ModelReport:
    """Return the report of a measurement, with the names of its classes.

    Raises:
        InputError: If the classes of the reference have other names.
    """
    if reference is not None:
        check_reference_names(result.class_names, reference.class_names)
    report = ModelReport(result.record, result.statistics)
    report.class_names = result.class_names
    return report


def statistics_by_layer(reference: ModelReport | None) -> dict[str, ClassStatistics] | None:
    """Return the class statistics of a report's layers, in forward order.

    Raises:
        InputError: If the reference is no report of a model.
    """
    if reference is None:
        return None
    return {name: report.require_statistics() for name, report in reference.layers.items()}


def _options_of_report(options: Options | None, fields: OptionFields) -> Options:
    """Return options of a single report, which has the table of classes unless it is refused."""
    merged = merge_options(options, fields)
    return replace(merged, by_class=merged.by_class is not False)


_IN_TRAINING_MODE = (
    "measured in training mode, with dropout or the statistics of each batch: model.eval() before "
    "the passes gives the values of the trained network"
)


def _drops_or_mixes(model: nn.Module) -> bool:
    """Return whether a module in training mode drops entries, or normalises by the batch."""

    def changes(module: nn.Module) -> bool:
        if isinstance(module, _BatchNorm):
            return True
        # timm and torchvision have classes of their own that drop whole branches.
        names = ("Drop", "StochasticDepth")
        if any(name in type(module).__name__ for name in names):
            rates = (getattr(module, name, None) for name in ("p", "drop_prob"))
            return any(rates)
        return False

    return any(module.training and changes(module) for module in model.modules())


@check_arguments
class ModelWatch(Watch):
    """Context in which forward passes of a model are measured: see `watch`."""

    _latest: ModelReport | None = None
    _reference_report: ModelReport | None = None

    def labels(self, labels: Any) -> None:
        """Add the samples of the latest forward pass: see `watch`."""
        super().labels(labels)
        if self._measurement is not None and _drops_or_mixes(self._model):
            self._measurement.warn([_IN_TRAINING_MODE])

    def report(self) -> ModelReport:
        """Measure the forward passes whose labels were given since the last report.

        The head enters with its present weights. The context may have ended. In several processes,
        every process must call this.

        Returns:
            A report, as from `measure_model`. Without new passes, the last report again.

        Raises:
            InputError: If there were no such passes, but passes without labels or no report before;
                if fewer than two classes are present; or if the model used several heads.
        """
        if self._latest is None or self._failure is not None or self.has_passes():
            self._latest = _report_of(self.measure(), self._reference_report)
        return self._latest


@check_arguments
def watch(
    model: nn.Module,
    options: Options | None = None,
    *,
    reference: ModelReport | None = None,
    **fields: Unpack[OptionFields],
) -> ModelWatch:
    """Measure neural collapse in forward passes that your own loop runs.

    Inside the context, call ``labels(...)`` after a pass to add its samples. ``report()``, inside
    the context or after it, measures the samples added since the last report. In evaluation mode
    the result equals that of `measure_model` on the same batches. Two additional forward passes run
    for each report: one of its first batch, to find the head, which may have been replaced or have
    grown, and one of two samples, to find each layer's batch axis. Passes in training mode are
    measured as they run, with dropout, with batch statistics, and with weights that change from
    pass to pass; a warning says so where the model has dropout or batch norms. ``accuracy`` is that
    of the head with its weights at the time of the report, as are NC3 and NC4, not that of the
    logits of the passes.

    A loop may also call parts of the model, for example ``model.backbone(x)`` and then
    ``model.head(h)``. No additional pass runs then: the head is the linear layer whose output is
    the output of the last module that the loop calls before the first ``labels``.

    An error of measuring never breaks a forward pass: the next ``labels`` or ``report`` raises it.

    Args:
        model: A classifier; your loop must call this object, or its parts, inside the context. A
            compiled model runs uncompiled there.
        options: Options of the measurement; None for the defaults. ``progress`` and
            ``split_batch`` have no effect.
        reference: Report of the same model on its training set, as for `measure_model`.
        fields: Fields of `Options`, such as ``layers`` or ``groups``; they replace those of
            ``options``.

    Returns:
        A context manager. Cost: a copy of the tapped features of each pass, and the statistics of
        each pass whose labels are given.

    Raises:
        InputError: If ``second_pass`` is ``"recompute"``; on entry, if a layer does not exist; in
            ``labels``, if no head is found, or a layer does not return one row for each sample.

    Example:
        >>> import torch, ncscope
        >>> from ncscope.models.networks.residual import ResidualNet
        >>> model = ResidualNet(in_features=8, width=16, depth=2, num_classes=4).eval()
        >>> with torch.no_grad(), ncscope.watch(model) as seen:
        ...     for _ in range(3):
        ...         logits = model(torch.randn(20, 8))
        ...         seen.labels(torch.arange(20) % 4)
        >>> seen.report().num_samples
        60
    """
    context = ModelWatch(model, _options_of_report(options, fields), statistics_by_layer(reference))
    context._reference_report = reference
    return context
