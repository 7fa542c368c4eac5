"""A language model's 200,000 tokens in K=50,000 classes, d=1024: every metric of its head's input.

Run as a module, it prints its seconds, the seconds of the products it cannot avoid and the peak
memory of its process in GB. The model is GPT-2's transformer with one block, untrained; a token's
class is the one after it. ``--sequences 20`` streams fewer than the 401 sequences of 500 tokens.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import ncscope
from benchmarks.measure import own_peak_gigabytes

K, D, SEQUENCES, LENGTH = 50_000, 1024, 401, 500


def texts(sequences: int) -> Iterator[dict[str, Tensor]]:
    """Sequences of random tokens, one a batch, so that no more than 100 MB of logits are alive."""
    draws = torch.Generator().manual_seed(0)
    for _ in range(sequences):
        tokens = torch.randint(K, (1, LENGTH), generator=draws)
        yield {"input_ids": tokens, "labels": tokens}


def unavoidable(model: GPT2LMHeadModel, sequences: int, classes: int) -> float:
    """Seconds of the forward pass and of the products, each timed on a part and multiplied.

    A forward pass; scores of means and head in float32; the triangle of a Gram matrix of tokens,
    and for CDNV and the angles of means and head that of three Gram matrices of the classes
    present, in float64.
    """
    rows, weight = torch.randn(LENGTH, D), torch.randn(K, D)
    square = torch.randn(D, D, dtype=torch.float64)
    wide = torch.randn(D, LENGTH, dtype=torch.float64)
    with torch.no_grad():
        forward = _best(lambda: [model(**batch) for batch in texts(1)])
    scores = _best(lambda: rows @ weight.T)
    tokens, pairs = _best(lambda: wide @ wide.T), _best(lambda: square @ square)
    return sequences * (forward + 2 * scores + tokens / 2) + 3 * (classes / D) ** 2 / 2 * pairs


def _best(call: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    """Measure the head's input, and print seconds, floor and peak."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_classes")
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    sequences = parser.parse_args().sequences
    block: dict[str, Any] = {"n_layer": 1, "n_embd": D, "n_head": 16, "n_positions": LENGTH}
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=K, bos_token_id=0, eos_token_id=0, **block))
    classes = len(torch.cat([batch["labels"][0, 1:] for batch in texts(sequences)]).unique())
    least = unavoidable(model, sequences, classes)
    start = time.perf_counter()
    report = ncscope.measure_model(
        model, texts(sequences), layers=[], next_token=True, memory=0, progress=False
    )
    seconds = time.perf_counter() - start
    assert len(report) > 30
    print(seconds, least, own_peak_gigabytes())


if __name__ == "__main__":
    main()
