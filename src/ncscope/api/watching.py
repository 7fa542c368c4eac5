"""Measurement of collapse in the forward passes of the user's loop."""

from collections.abc import Collection, Sequence
from typing import Any

from torch import nn

from ncscope.api.model import statistics_by_layer
from ncscope.api.result import ModelReport
from ncscope.arguments import Count, NotNegative, check_arguments
from ncscope.measurement.plans import ProbeOptions, SecondPass
from ncscope.measurement.watching import Watch
from ncscope.stats.options import Precision, Prior, Redraw
from ncscope.stats.store import DEFAULT_BUDGET


@check_arguments
class Watched(Watch):
    """Context in which forward passes of a model are measured: see `watch`."""

    _latest: ModelReport | None = None

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
        if self._latest is None or self._failure is not None or self.passed_anywhere():
            probed = self.probed()
            self._latest = ModelReport(probed.record, probed.statistics)
        return self._latest


@check_arguments
def watch(
    model: nn.Module,
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
    group: Any = None,
) -> Watched:
    """Measure neural collapse in forward passes that your own loop runs.

    Inside the context, call ``labels(...)`` after a pass to add its samples. ``report()``, inside
    the context or after it, measures the samples added since the last report. In evaluation mode
    the result equals that of `measure_model` on the same batches. Two additional forward passes run
    for each report: one of its first batch, to find the head, which may have been replaced or have
    grown, and one of two samples, to find each layer's batch axis. Passes in training
    mode are measured as they run: with dropout, with batch statistics, and with weights that change
    from pass to pass. ``accuracy`` is that of the head with its weights at the time of the report,
    as are NC3 and NC4, not that of the logits of the passes.

    A loop may also call parts of the model, for example ``model.backbone(x)`` and then
    ``model.head(h)``. No additional pass runs then: the head is the linear layer whose output is
    the output of the last module that the loop calls before the first ``labels``.

    An error of measuring never breaks a forward pass: the next ``labels`` or ``report`` raises it.

    Args:
        model: A classifier; your loop must call this object, or its parts, inside the context. A
            compiled model runs uncompiled there.
        layers: Layers to measure, as in `measure_model`, like all arguments that follow.
        head: Name of the classifier head; by default the head is detected.
        groups: Groups of metrics of the head's features, by default all.
        layer_groups: Groups of metrics of the other layers.
        prior: Class prior, ``"empirical"`` or ``"uniform"``.
        class_counts: Number of samples of each class; required for the uniform prior.
        weight_decay: Weight decay on the head that the MSE decomposition assumes.
        pool: Average feature maps over space and sequences over tokens if True, flatten both if
            False, as for `measure_model`.
        next_token: Take the label of the following token as a token's class if True.
        reference: Report of the same model on its training set.
        baseline: Measure every layer with permuted labels too.
        uncertainty: Standard errors to estimate, if any; see `measure`.
        precision: ``"float64"``, or ``"blocked"`` for accelerators that are slow in float64; see
            `ClassMoments`.
        second_pass: ``"store"``, or the number of samples to keep at random. Your loop runs the
            passes, so that no pass can be computed again.
        memory: Bytes of features to keep in memory for the second pass; more goes to disk.
        disk: Bytes of features to write to disk at most, as in `measure_model`.
        group: Process group of ``torch.distributed``, in which this process is; its processes
            measure their samples together. By default, all processes do.

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
        group=group,
        by_class=True,
    )
    return Watched(model, options, statistics_by_layer(reference))
