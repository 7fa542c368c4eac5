"""Features that a model's head reads, for the samples of a loader."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ncscope.arguments import check_arguments
from ncscope.array_checks import check_labels
from ncscope.errors import InputError
from ncscope.measurement.batches import Loader, as_batches, find_module_device, peek, prepare_batch
from ncscope.measurement.head_classes import HeadClasses, find_data_names
from ncscope.models.evaluation_mode import evaluation_mode, restore_buffers, restore_generators
from ncscope.models.forward import forward, no_logits_error, possible_logits
from ncscope.models.sharding import gather_shards
from ncscope.models.taps import HEAD_INPUT
from ncscope.models.tracing import trace
from ncscope.models.wrappers import unwrap
from ncscope.stats.moments import ClassMoments

OnFeatures = Callable[[Tensor, Tensor, Tensor | None], None]
"""Function of features, labels, and the head's logits, None for a model without a head."""


@check_arguments
def head_features(
    model: nn.Module,
    loader: Loader,
    *,
    has_head: bool = True,
    on_batch: Callable[[], None] = lambda: None,
) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Return the features that the head reads, in float32 on the CPU, and the labels.

    Args:
        model: Model, as for `measure_layers`; it is left exactly as it was.
        loader: Batches or a data set, as for `measure_layers`, with one label for each sample.
        has_head: False for a model without a classifier, whose outputs are the features.
        on_batch: Function called after each batch.

    Raises:
        InputError: If the loader holds no sample, labels do not fit the samples of a batch, no head
            with one row for each sample is found, or the model ends in a ReLU as a backbone does.

    Cost: one forward pass over the loader, and 4nd bytes twice, while the batches are concatenated.

    Example:
        >>> data = torch.utils.data.TensorDataset(torch.randn(10, 4), torch.arange(10) % 2)
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> features, labels = head_features(model, torch.utils.data.DataLoader(data, 4))
        >>> features.shape, labels.tolist()
        (torch.Size([10, 3]), [0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    """
    features, labels, _ = head_readings(model, loader, has_head=has_head, on_batch=on_batch)
    return features, labels


def head_readings(
    model: nn.Module,
    loader: Loader,
    *,
    has_head: bool = True,
    on_batch: Callable[[], None] = lambda: None,
) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"], Float[Tensor, "n z"] | None]:
    """Return what `head_features` returns, and the probabilities of the model's own classes.

    Probabilities are the softmax of the head's logits; None for a model without a head, or with
    logits that are not finite.

    Args:
        model: Model, as for `head_features`.
        loader: Loader of the samples, as for `head_features`.
        has_head: True if the model has a classifier.
        on_batch: Function called after each batch.

    Raises:
        InputError: As `head_features`.

    Cost: as `head_features`, and 4nZ bytes for Z source classes.
    """
    batches: list[tuple[Tensor, Tensor]] = []
    probabilities: list[Tensor] = []

    def append(features: Tensor, labels: Tensor, logits: Tensor | None) -> None:
        batches.append((features.float().cpu(), check_labels(labels, len(features)).cpu()))
        if logits is not None and bool(logits.isfinite().all()):
            probabilities.append(logits.float().softmax(1).cpu())
        on_batch()

    _read_batches(model, loader, has_head, append)
    features, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    # LEEP and NCE need the outputs for all samples: those of some batches are of no use.
    complete = len(probabilities) == len(batches)
    return features, labels, torch.cat(probabilities) if complete else None


@check_arguments
def head_moments(
    model: nn.Module,
    loader: Loader,
    num_classes: int,
    *,
    has_head: bool = True,
    on_batch: Callable[[], None] = lambda: None,
) -> ClassMoments:
    """Accumulate class moments of the features that the head reads, in constant memory.

    Args:
        model: Model, as for `head_features`.
        loader: Loader of the samples, as for `head_features`.
        num_classes: Number of classes; labels are 0..num_classes-1.
        has_head: True if the model has a classifier.
        on_batch: Function called after each batch.

    Raises:
        InputError: As `head_features`; or if a label is out of range, or a feature is not finite.
    """
    moments: list[ClassMoments] = []

    def update(features: Tensor, labels: Tensor, logits: Tensor | None) -> None:
        if not moments:
            moments.append(ClassMoments(num_classes, features.shape[1], device=features.device))
        moments[0].update(features, labels)
        on_batch()

    _read_batches(model, loader, has_head, update)
    return moments[0]


def _read_batches(
    model: nn.Module, loader: Loader, has_head: bool, on_features: OnFeatures
) -> None:
    """Call a function with the features, labels and logits of each batch."""
    model = unwrap(model)
    find_module_device(model)  # refuses a device without float64
    classes = HeadClasses(of_data=find_data_names(loader), is_option=False)
    with restore_generators(loader), evaluation_mode(model), restore_buffers(model):
        # Inside `evaluation_mode`, because a loader that starts draws a seed from torch.
        first, batches, _ = peek(as_batches(loader), model)
        if not has_head:
            for batch in batches:
                inputs, labels = prepare_batch(batch, model, classes)
                output = forward(model, inputs)
                vectors = possible_logits(output, maps=False).values()
                features = next((each for each in vectors if each.ndim == 2), None)
                if features is None:
                    raise no_logits_error(output).but(
                        expected="one vector a sample from a model without a head",
                        fix="return the mean of its outputs over tokens or pixels",
                    )
                on_features(features, labels, None)
            return
        inputs, labels = prepare_batch(first, model, classes)
        traced = trace(model, inputs, layers=[], labels=labels)
        if traced.head.rows == "token":
            fix = "rank models that classify whole samples"
            raise InputError(expected="a head of one row a sample", found="one a token", fix=fix)
        if traced.head.last_step.kind == "ReLU":  # as of a backbone, whose classes nothing tells
            raise InputError(
                expected="a model that ends in its head",
                found=f"one that ends in the ReLU of the outputs of {traced.head.name!r}",
                fix="pass has_head=False for a backbone, whose outputs are the features; or return "
                "the logits before the ReLU",
            )
        with traced.taps(model) as taps:
            for batch in batches:
                inputs, labels = prepare_batch(batch, model, classes)
                traced.run(model, inputs, labels)
                on_features(taps.features[HEAD_INPUT], labels, gather_shards(taps.logits))
            taps.check_step()
