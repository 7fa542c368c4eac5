"""A language model's 200,000 tokens in K=50,000 classes, d=1024: every metric of its head's input.

Run as a module, it prints its seconds and the peak memory of its process in GB. The model is
GPT-2's transformer with one block, untrained; a token's class is the one after it.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import ncscope
from benchmarks.measure import own_peak_gigabytes

K, D, SEQUENCES, LENGTH = 50_000, 1024, 401, 500


def texts() -> Iterator[dict[str, Tensor]]:
    """Sequences of random tokens, one a batch, so that no more than 100 MB of logits are alive."""
    draws = torch.Generator().manual_seed(0)
    for _ in range(SEQUENCES):
        tokens = torch.randint(K, (1, LENGTH), generator=draws)
        yield {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Measure the head's input, and print seconds and peak."""
    block: dict[str, Any] = {"n_layer": 1, "n_embd": D, "n_head": 16, "n_positions": LENGTH}
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=K, bos_token_id=0, eos_token_id=0, **block))
    start = time.perf_counter()
    report = ncscope.measure_model(
        model, texts(), layers=[], next_token=True, memory=0, progress=False
    )
    seconds = time.perf_counter() - start
    assert len(report) > 30
    print(seconds, own_peak_gigabytes())


if __name__ == "__main__":
    main()
