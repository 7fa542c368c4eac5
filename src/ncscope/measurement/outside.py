"""Run of a model over samples from outside the distribution."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from ncscope.devices import move_to
from ncscope.measurement.batches import device_of, kept_tokens, unlabelled
from ncscope.measurement.plans import ProbeOptions
from ncscope.measurement.progress import with_progress
from ncscope.measurement.second_pass import number_of_batches
from ncscope.models.forward import forward
from ncscope.models.taps import HEAD_INPUT
from ncscope.models.tracing import Trace, trace


def run_outside(
    model: nn.Module, loader: Iterable[Any], traced: Trace | None, options: ProbeOptions
) -> Iterator[Tensor]:
    """Yield the head's input of a run of the model over OOD samples.

    Args:
        model: The classifier.
        loader: Loader of OOD samples.
        traced: The model's trace; None in a process without other samples, which traces the model.
        options: Options of the measurement.
    """
    device, length = device_of(model), number_of_batches(loader)
    batches = with_progress(unlabelled(loader, device), length, "Comparing", options.progress)
    for inputs, given in batches:
        if traced is None:
            traced = trace(model, inputs, options.layers, options.head, pool=options.pool)
        with traced.taps(model, pool=options.pool) as taps:
            forward(model, inputs)
            features = taps.features[HEAD_INPUT]
            if traced.head.rows == "token":
                tokens = taps.logits.shape[:2]
                kept = kept_tokens(given, tokens, options.next_token, taps.token_mask)
                features = features[move_to(kept, features.device)]
            taps.release_logits()
        yield features
