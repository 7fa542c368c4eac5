"""Measure collapse in a model, layer by layer."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn

from ncscope.api.result import ModelReport
from ncscope.errors import InputError
from ncscope.probing.model import ProbeOptions, probe_model
from ncscope.stats.distributed import ending_together
from ncscope.stats.moments import Prior
from ncscope.stats.statistics import ClassStatistics
from ncscope.stats.store import DEFAULT_BUDGET


def measure_model(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    layers: Sequence[str] | None = None,
    head: str | None = None,
    groups: Collection[str] | None = None,
    layer_groups: Collection[str] | None = ("pfc",),
    prior: Prior = "empirical",
    class_counts: Int[Tensor, " k"] | None = None,
    weight_decay: float = 0.0,
    pool: bool = False,
    next_token: bool = False,
    reference: ModelReport | None = None,
    memory: int = DEFAULT_BUDGET,
    progress: bool = True,
) -> ModelReport:
    """Measure neural collapse in a classifier, layer by layer.

    One pass over the loader. The first batch runs twice, once to find the head: the linear layer
    whose output is the logits. Two copies of the first sample run too, to find which axis of each
    layer's output is the batch. The model runs in evaluation mode and is left exactly as it was:
    weights, buffers, training flags, hooks and random states.

    A model that gives logits for every token, such as a language model, is measured token by
    token: its labels are B x T, and tokens labelled -100 are left out. Of one that picks a token's
    logits, such as the last, that token is measured, in every layer.

    In several processes of ``torch.distributed`` each calls this with its own samples, of which a
    process may have none, and all get the report of all samples. An error in one process ends all.

    Args:
        model: A classifier: torchvision, timm, Hugging Face, or any module that returns logits;
            pruned, quantised, compiled or wrapped for training on several devices.
        loader: Iterable of ``(inputs, labels)``, or of mappings with ``labels``. Batches without
            samples are skipped.
        layers: Names or glob patterns of layers to measure besides the features that the head
            reads; by default the repeated blocks. Feature maps are flattened. Each call of a layer
            is a layer of the report: the second call of ``block`` is ``block#2``.
        head: Name of the classifier head, if it should not be looked for.
        groups: Groups of metrics of the head's features, by default all.
        layer_groups: Groups of metrics of the other layers, by default PFC1-3 only, which need
            no d x d matrix; None for all.
        prior: Class prior, ``"empirical"`` or ``"uniform"``.
        class_counts: Samples of each class, which the uniform prior needs beforehand.
        weight_decay: Decay on the head that the MSE decomposition assumes.
        pool: Average feature maps over space, and sequences over the tokens that the model's
            attention mask keeps, instead of flattening them.
        next_token: Take the label of the following token as a token's class if True, for causal
            language models, whose labels are their inputs.
        reference: Report of the same model on its training set, whose class means the
            nearest-mean rule then uses. The features that the head reads need no layer of the
            same name in it, the other layers do.
        memory: Bytes of features to keep for the second look; more goes to disk.
        progress: Show a progress bar if True (on stderr, in a terminal).

    Returns:
        A mapping of the metrics of the head's features, with ``layers``, a report for each.

    Raises:
        InputError: If there is no sample or no labels, no head is found, a layer does not exist or
            does not return one row a sample, the model takes batches of one size only, or the
            reference is no report of these layers; the message says what to pass. Also if another
            process fails; the message names its rank and says why.

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
        memory=memory,
        progress=progress,
    )
    with ending_together():
        known = statistics_by_layer(reference)
    probed = probe_model(model, loader, options, known)
    return ModelReport(probed.record, probed.statistics)


def statistics_by_layer(reference: ModelReport | None) -> dict[str, ClassStatistics] | None:
    """Class statistics of a report's layers, in forward order.

    Raises:
        InputError: If the reference is something else.
    """
    if reference is None:
        return None
    if not isinstance(reference, ModelReport):
        fix = "pass what measure_model returned for the training set"
        found = type(reference).__name__
        raise InputError(expected="a reference of a model's report", found=found, fix=fix)
    return {name: report.statistics for name, report in reference.layers.items()}
