"""Measure collapse in a model, layer by layer."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from torch import nn

from ncscope.api.result import ModelReport
from ncscope.arguments import Count, NotNegative, check_arguments
from ncscope.measurement.model import probe_model
from ncscope.measurement.plans import ProbeOptions, SecondPass
from ncscope.stats.options import Precision, Prior, Redraw
from ncscope.stats.statistics import ClassStatistics
from ncscope.stats.store import DEFAULT_BUDGET


@check_arguments
def measure_model(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    layers: Sequence[str] | None = None,
    head: str | None = None,
    groups: Collection[str] | None = None,
    layer_groups: Collection[str] | None = ("pfc",),
    prior: Prior = "empirical",
    class_counts: Any = None,
    weight_decay: NotNegative = 0.0,
    pool: bool | None = None,
    next_token: bool = False,
    reference: ModelReport | None = None,
    baseline: bool | None = False,
    uncertainty: Redraw = False,
    precision: Precision = "float64",
    second_pass: SecondPass = "store",
    memory: Count = DEFAULT_BUDGET,
    disk: Count | None = None,
    progress: bool = True,
    group: Any = None,
    ood: Iterable[Any] | None = None,
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

    ``accuracy`` is that of the model's logits. If the model changes the outputs of a head that is
    given by name, it is that of the head's outputs, computed exactly from its weights.

    In several processes of ``torch.distributed``, each process calls this with its samples, and
    every process gets the report of all samples. A process may have no samples. An error in one
    process ends all.

    Args:
        model: A classifier: torchvision, timm, Hugging Face, or any module that returns logits;
            pruned, quantised, compiled or wrapped for training on several devices.
        loader: Iterable of ``(inputs, labels)``, or of mappings with ``labels``. Batches without
            samples are skipped.
        layers: Names or glob patterns of layers to measure besides the features that the head
            reads; by default the repeated blocks. Each call of a layer is a layer of the report:
            the second call of ``block`` is ``block#2``.
        head: Name of the classifier head; by default the head is detected.
        groups: Groups of metrics of the head's features, or keys of single metrics
            (``"key:nc1"`` for the metric that has the name of a group); by default all.
        layer_groups: Groups of metrics of the other layers, by default PFC1-3 only, which need
            no d x d matrix; None for all. With ``"per_class"`` each layer has a table of classes.
        prior: Class prior, ``"empirical"`` or ``"uniform"``.
        class_counts: Number of samples of each class; required for the uniform prior.
        weight_decay: Weight decay on the head that the MSE decomposition assumes.
        pool: Average feature maps over space, and sequences over tokens, if True; flatten both if
            False. By default, a sequence with an attention mask is averaged over the tokens that
            the mask keeps, and everything else is flattened.
        next_token: Take the label of the following token as a token's class if True. This is for
            causal language models, whose labels are their inputs.
        reference: Report of the same model on its training set; the nearest-mean rule then uses
            the class means of the training set, and so do the metrics of OOD samples. All layers
            must have the same names in this report, except the features that the head reads.
        baseline: Measure every layer with permuted labels too; see `measure`.
        uncertainty: Standard errors to estimate, if any; see `measure`.
        precision: ``"float64"``, or ``"blocked"`` for accelerators that are slow in float64; see
            `ClassMoments`.
        second_pass: Samples on which the nearest-mean rule decides, for which the class means must
            be finished first. ``"store"`` keeps the features of all samples. ``"recompute"`` keeps
            none and runs the loader again, which must yield the same samples, in any order: random
            augmentation is refused. A number n keeps n samples at random (of each process), and the
            report has the standard errors of the shares that are estimated from them.
        memory: Bytes of features that ``"store"`` keeps in memory; more goes to disk. The
            statistics that standard errors need may take as much.
        disk: Bytes of features that ``"store"`` writes to disk at most, by default half of the
            free space of the temporary folder.
        progress: Show a progress bar if True (on stderr, in a terminal).
        group: Process group of ``torch.distributed``, in which this process is; its processes
            measure their samples together. By default, all processes do.
        ood: Loader of samples from outside the distribution, read once: the features that the head
            reads are compared with theirs (the group ``"ood"``). It yields inputs, or pairs and
            mappings whose labels are ignored.

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
    options = ProbeOptions(
        layers=layers,
        head=head,
        groups=groups,
        layer_groups=layer_groups,
        prior=prior,
        class_counts=class_counts,
        weight_decay=weight_decay,
        pool=pool,
        next_token=next_token,
        baseline=baseline,
        uncertainty=uncertainty,
        precision=precision,
        second_pass=second_pass,
        memory=memory,
        disk=disk,
        progress=progress,
        group=group,
        by_class=True,
    )
    with options.processes.ending_together():
        statistics = statistics_by_layer(reference)
    probed = probe_model(model, loader, options, statistics, ood)
    return ModelReport(probed.record, probed.statistics)


def statistics_by_layer(reference: ModelReport | None) -> dict[str, ClassStatistics] | None:
    """Return the class statistics of a report's layers, in forward order.

    Raises:
        InputError: If the reference is no report of a model.
    """
    if reference is None:
        return None
    return {name: report.require_statistics() for name, report in reference.layers.items()}
