"""Measure collapse in the forward passes of a loop of one's own."""

from collections.abc import Collection, Sequence

from jaxtyping import Int
from torch import Tensor, nn

from ncscope.api.model import statistics_by_layer
from ncscope.api.result import ModelReport
from ncscope.probing.model import ProbeOptions
from ncscope.probing.watching import Watch
from ncscope.stats.moments import Prior
from ncscope.stats.store import DEFAULT_BUDGET


class Watched(Watch):
    """Context in which forward passes of a model are measured: see `watch`."""

    def report(self) -> ModelReport:
        """Measure the passes whose labels were given since the last report.

        To be asked for inside the context. The head is taken as it is by then.

        Returns:
            As `measure_model`.

        Raises:
            InputError: If there were no such passes, or fewer than two classes.
        """
        probed = self.probed()
        return ModelReport(probed.record, probed.statistics)


def watch(
    model: nn.Module,
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
) -> Watched:
    """Measure neural collapse in forward passes that your own loop runs.

    Inside the context, ``labels(...)`` after a pass counts its samples in, and ``report()``
    measures what was counted in since the last report. In evaluation mode the result is that of
    `measure_model` on the same batches. The only forward passes of its own are one of the first
    batch, to find the head, and one of two samples, to find each layer's batch axis. Passes in
    training mode are measured as they are: with dropout, with batch statistics, and with weights
    that move from pass to pass.

    Args:
        model: A classifier, called by itself inside the context.
        layers: Layers, as in `measure_model`; likewise all arguments that follow.
        head: Name of the classifier head, if it should not be looked for.
        groups: Groups of metrics of the head's features, by default all.
        layer_groups: Groups of metrics of the other layers.
        prior: Class prior, ``"empirical"`` or ``"uniform"``.
        class_counts: Samples of each class, which the uniform prior needs beforehand.
        weight_decay: Decay on the head that the MSE decomposition assumes.
        pool: Average feature maps over space and sequences over tokens.
        next_token: Take the label of the following token as a token's class if True.
        reference: Report of the same model on its training set.
        memory: Bytes of features to keep for the second look; more goes to disk.

    Returns:
        A context manager. Cost: a copy of the tapped features of each pass, and the statistics of
        those that are given labels.

    Raises:
        InputError: In the forward pass, if no head is found, a layer does not exist or does not
            return one row a sample.

    Example:
        >>> import torch, ncscope
        >>> from ncscope.models.networks.residual import ResidualNet
        >>> model = ResidualNet(in_features=8, width=16, depth=2, num_classes=4).eval()
        >>> with torch.no_grad(), ncscope.watch(model) as seen:
        ...     for _ in range(3):
        ...         logits = model(torch.randn(20, 8))
        ...         seen.labels(torch.arange(20) % 4)
        ...     report = seen.report()
        >>> report.num_samples
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
        memory=memory,
    )
    return Watched(model, options, statistics_by_layer(reference))
