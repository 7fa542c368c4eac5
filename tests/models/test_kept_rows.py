"""Finding the head of a language model keeps a few rows of its activations, not sequences."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.utils import parametrizations
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.heads import find_head
from ncscope.models.parts_observer import PartsObserver
from ncscope.models.taps import HEAD_INPUT
from ncscope.models.tracing import BatchAxis, trace

WIDTH, INNER, VOCABULARY = 64, 96, 160


class Alive(TorchDispatchMode):
    """The greatest number of bytes of tensors that exist at the same time, of those made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                reference = StorageWeakRef(storage)
                self.made[reference.cdata] = reference, storage.nbytes()
        self.made = {key: kept for key, kept in self.made.items() if not kept[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.made.values()))
        return result


def peak(run: Callable[[], Any]) -> int:
    with Alive() as alive:
        run()
    return alive.peak


class Language(nn.Module):
    """Blocks of linear layers, as many as a large model has, with a head on every token."""

    def __init__(self, read: Callable[[Tensor], Tensor] = torch.clone, depth: int = 6) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.read = nn.Embedding(VOCABULARY, WIDTH), read
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, INNER), nn.Tanh(), nn.Linear(INNER, WIDTH))
            for _ in range(depth)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        h = self.embed(input_ids)
        for block in self.blocks:
            h = h + block(h)
        return self.read(self.head(h))


def ids(*shape: int) -> Tensor:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(1))


def llama(tokens: int) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=tokens,
        use_cache=False,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


def rows_of(model: nn.Module, inputs: Any, find: Callable[[], Any]) -> float:
    """How many rows of the greatest width are alive at once beyond those of a pass alone."""

    def passes() -> None:
        with evaluation_mode(model):
            model(inputs)

    return (peak(find) - peak(passes)) / (4 * VOCABULARY)


@pytest.mark.slow
def test_a_llama_of_8192_tokens_keeps_less_than_64_rows() -> None:
    model, inputs, found = llama(8192), ids(1, 8192), []
    assert rows_of(model, inputs, lambda: found.append(find_head(model, inputs))) < 64
    (head,) = found
    assert (head.name, head.rows) == ("lm_head", "token")


@pytest.mark.parametrize("layers", [[], ["blocks.*"]])
def test_nothing_of_the_layers_is_kept(layers: list[str]) -> None:
    model, inputs = Language().eval(), ids(3, 4096)  # copies of the first: two
    copy = inputs.nbytes / (4 * VOCABULARY)  # the model gets one, which it may change in place
    assert rows_of(model, inputs, lambda: trace(model, inputs, layers)) < 64 + copy
    assert trace(model, inputs, layers).axes == {
        HEAD_INPUT: BatchAxis(),
        **{f"blocks.{index}": BatchAxis() for index in range(6) if layers},
    }


def observed(model: nn.Module, inputs: Tensor) -> None:
    with PartsObserver(model, []) as seen:
        model(inputs)
    assert seen.is_whole


def test_nor_while_a_loop_is_observed() -> None:
    model, inputs = Language().eval().requires_grad_(False), ids(2, 4096)
    assert rows_of(model, inputs, lambda: observed(model, inputs)) < 64


def test_observing_makes_no_step_of_spectral_normalisation() -> None:
    def train(observe: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 3))
        with PartsObserver(model, []) if observe else nullcontext():
            model(torch.randn(5, 4))
        return model.state_dict()

    torch.testing.assert_close(train(True), train(False), rtol=0, atol=0)


def last(logits: Tensor) -> Tensor:
    return logits[:, -1]


def calls_of(model: nn.Module) -> list[int]:
    passes: list[int] = []
    model.register_forward_hook(lambda *_: passes.append(1))
    return passes


@pytest.mark.parametrize(
    ("model", "inputs", "rows", "passes"),
    [
        (Language(), ids(2, 50), "token", 1),
        (Language(last), ids(2, 50), "chosen token", 2),
        (
            Language(lambda y: y[torch.arange(2), torch.tensor([3, 17])]),
            ids(2, 50),
            "chosen token",
            2,
        ),
        (Language(lambda y: y.transpose(0, 1)), ids(50, 2), "token", 1),
        (Language(lambda y: y.transpose(0, 1)), ids(40, 40), "token", 1),
        (Language(lambda y: y[-1]), ids(50, 2), "chosen token", 2),
    ],
    ids=["all", "last", "some", "sequence-first", "square", "last of sequence-first"],
)
def test_a_second_pass_runs_only_for_a_chosen_token(
    model: nn.Module, inputs: Tensor, rows: str, passes: int
) -> None:
    counted = calls_of(model)
    head = find_head(model, inputs)
    assert (head.name, head.rows, len(counted)) == ("head", rows, passes)


class Branches(nn.Module):
    """Six heads on one input, of which a function of the outputs is returned."""

    def __init__(self, read: Callable[[list[Tensor]], Tensor], noise: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.heads, self.read = nn.ModuleList(nn.Linear(6, 3) for _ in range(6)), read
        self.noise = noise
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = x + self.noise * torch.randn_like(x)
        return self.read([head(x) for head in self.heads])


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_first_of_many_alike_is_found_by_a_second_pass(noise: float) -> None:
    """Also if no two passes are equal: each is compared with its own logits."""
    model = Branches(lambda outputs: outputs[0], noise)
    counted = calls_of(model)
    head = find_head(model, torch.randn(40, 6))
    assert head.name == "heads.0"
    assert len(counted) == 2
    assert model.calls == 1


def test_of_the_first_and_the_last_alike_neither_is_chosen() -> None:
    model = Branches(lambda outputs: outputs[0])
    model.heads[5].load_state_dict(model.heads[0].state_dict())
    with pytest.raises(ValueError, match=r"found 'heads\.0' and 'heads\.5'"):
        find_head(model, torch.randn(40, 6))


def test_an_average_of_early_heads_is_explained() -> None:
    model = Branches(lambda outputs: (outputs[0] + outputs[1]) / 2)
    with pytest.raises(ValueError, match=r"the average of 'heads\.0' and 'heads\.1'"):
        find_head(model, torch.randn(40, 6))
