"""Taps read what a layer returned, in the order of execution, and leave the model clean."""

import pytest
import torch
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.networks.residual import ResidualNet
from ncscope.models.taps import HEAD_INPUT, BatchAxis, Taps


def conv_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    ).eval()


def images(rows: int = 5) -> Tensor:
    return torch.randn(rows, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def test_features_before_an_inplace_relu() -> None:
    model, x = conv_net(), images()
    with Taps(model, ["1", "2"], "5") as taps:
        model(x)
    normalised = model[1](model[0](x))
    assert normalised.min() < 0
    torch.testing.assert_close(taps.features["1"], normalised.detach().flatten(1))
    torch.testing.assert_close(taps.features["2"], normalised.detach().relu().flatten(1))


class InplaceHead(nn.Module):
    """Changes its own input, and is then given a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        logits = self.head(h)
        h.zero_()
        return logits


def test_head_input_is_kept_from_later_changes() -> None:
    model = InplaceHead()
    with torch.no_grad(), Taps(model, ["body"], "head") as taps:
        model(torch.ones(2, 4))
    assert taps.features[HEAD_INPUT].abs().max() > 0
    assert torch.equal(taps.features[HEAD_INPUT], taps.features["body"])


def test_head_input_and_logits() -> None:
    model, x = conv_net(), images()
    with Taps(model, [], "5") as taps:
        out = model(x)
    assert list(taps.features) == [HEAD_INPUT]
    torch.testing.assert_close(
        taps.features[HEAD_INPUT] @ model[5].weight.T + model[5].bias, taps.logits
    )
    assert torch.equal(taps.logits, out)
    assert not taps.logits.requires_grad
    assert not taps.features[HEAD_INPUT].requires_grad


def test_features_are_copies_of_their_own_size() -> None:
    """A tapped slice must not keep the whole map alive, nor follow it."""
    model, x = nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(36, 3)), images()
    with Taps(model, ["0", "1"], "2") as taps:
        model(x)
    kept = taps.features["1"].clone()
    x.zero_()
    assert torch.equal(taps.features["1"], kept)
    assert taps.features["0"].data_ptr() != taps.features["1"].data_ptr()


def test_channels_last_memory_is_read_in_the_logical_order() -> None:
    model, x = nn.Sequential(nn.Identity(), nn.Flatten(), nn.Linear(24, 2)), torch.randn(2, 2, 3, 4)
    with Taps(model, ["0"], "2") as taps:
        model(x.to(memory_format=torch.channels_last))
    assert torch.equal(taps.features["0"], x.flatten(1))
    assert taps.features["0"].is_contiguous()


class Backwards(nn.Module):
    """Registers its layers in another order than it runs them."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.second, self.first = nn.Linear(4, 2), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(x)))


def test_order_is_that_of_execution() -> None:
    model = Backwards()
    with Taps(model, ["second", "head", "first"], "head") as taps:
        model(torch.ones(3, 4))
        model(torch.ones(2, 4))
    assert list(taps.features) == ["first", "second", "head", HEAD_INPUT]
    assert all(len(rows) == 2 for rows in taps.features.values())


@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (2, 5, 3, 3), (2, 3, 4, 3, 4)])
def test_pooling_averages_space(shape: tuple[int, ...]) -> None:
    model, x = nn.Sequential(nn.Identity(), nn.Flatten(), nn.LazyLinear(2)), torch.randn(shape)
    model(x)
    with Taps(model, ["0"], "2", pool=True) as taps:
        model(x)
    expected = x.mean(dim=tuple(range(2, len(shape))))
    torch.testing.assert_close(taps.features["0"], expected)
    assert taps.features[HEAD_INPUT].shape == (2, x[0].numel())


class Attending(nn.Module):
    """Sees its tokens through a mask, as transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = nn.Identity(), nn.Linear(4, 2)

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.head(self.block(x)[:, 0])


def test_pooling_averages_the_tokens_that_the_mask_keeps() -> None:
    model, x = Attending(), torch.randn(2, 3, 4)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    with Taps(model, ["block"], "head", pool=True) as taps:
        model(x, attention_mask=mask)
        kept = taps.features["block"]
        model(x)
    torch.testing.assert_close(kept, torch.stack([x[0, :2].mean(dim=0), x[1].mean(dim=0)]))
    torch.testing.assert_close(taps.features["block"], x.mean(dim=1))


def test_by_default_only_sequences_with_a_mask_are_averaged() -> None:
    model, x = Attending(), torch.randn(2, 3, 4)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    masked, plain, flat = [], [], []
    for pool, attention, kept in (
        (None, mask, masked),
        (None, None, plain),
        (False, mask, flat),
    ):
        with Taps(model, ["block"], "head", pool=pool) as taps:
            model(x, attention_mask=attention)
        kept.append(taps.features["block"])
    torch.testing.assert_close(masked[0], torch.stack([x[0, :2].mean(dim=0), x[1].mean(dim=0)]))
    assert all(torch.equal(rows, x.flatten(1)) for rows in (*plain, *flat))
    for pool in (None, True):  # the padding is unknown under a mask of other tokens
        with Taps(model, ["block"], "head", pool=pool), pytest.raises(InputError, match="2 tokens"):
            model(x, attention_mask=mask.T.contiguous())
    with Taps(model, ["block"], "head", pool=False) as taps:
        model(x, attention_mask=mask.T.contiguous())
    assert torch.equal(taps.features["block"], x.flatten(1))
    maps = nn.Sequential(nn.Identity(), nn.Flatten(), nn.Linear(16, 2))
    with Taps(maps, ["0"], "2") as taps:
        maps(torch.ones(2, 1, 4, 4))
    assert taps.features["0"].shape == (2, 16)


def test_pooling_leaves_vectors_and_the_input_of_the_head() -> None:
    model = nn.Sequential(nn.Linear(4, 12), nn.Unflatten(1, (3, 2, 2)), nn.Conv2d(3, 2, 2))
    x = torch.randn(5, 4)
    with Taps(model, ["0"], "2", pool=True) as taps:
        model(x)
    assert torch.equal(taps.features["0"], taps.features[HEAD_INPUT])


class LastToken(nn.Module):
    """A head on every token, of which the model returns the one at a place of the inputs'."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.mean, self.head = nn.Identity(), nn.Identity(), nn.Linear(4, 2)

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        self.mean(x.mean(dim=1))
        return self.head(self.block(x))[torch.arange(len(x)), place]


def test_the_chosen_token_is_read_in_every_layer_that_has_tokens() -> None:
    model, x, place = LastToken(), torch.randn(3, 5, 4), torch.tensor([4, 0, 2])
    with torch.no_grad(), Taps(model, ["block", "mean"], "head", rows="chosen token") as taps:
        model(x, place)
    chosen = x[torch.arange(3), place]
    assert torch.equal(taps.features[HEAD_INPUT], chosen)
    assert torch.equal(taps.features["block"], chosen)
    assert torch.equal(taps.features["mean"], x.mean(dim=1))


def test_equal_tokens_may_be_chosen_from_but_not_those_that_differ() -> None:
    model, x, place = LastToken(), torch.randn(1, 3, 4), torch.tensor([1])
    x[0, 2] = x[0, 1]
    with torch.no_grad(), Taps(model, [], "head", rows="chosen token") as taps:
        model(x, place)
        assert torch.equal(taps.features[HEAD_INPUT], x[:, 1])
        nn.init.zeros_(model.head.weight)
        with pytest.raises(InputError, match="for one token, found several such tokens"):
            model(x, place)


@pytest.mark.parametrize("flat", [False, True], ids=["B x T x d", "BT x d"])
def test_of_every_token_a_row(flat: bool) -> None:
    head = (
        [nn.Flatten(0, 1), nn.Linear(4, 2), nn.Unflatten(0, (2, 3))] if flat else [nn.Linear(4, 2)]
    )
    model, x = nn.Sequential(nn.Identity(), *head), torch.randn(2, 3, 4)
    with Taps(model, ["0"], "2" if flat else "1", rows="token") as taps:
        model(x)
    assert torch.equal(taps.features["0"], x.flatten(0, 1))
    assert torch.equal(taps.features[HEAD_INPUT], x.flatten(0, 1))
    assert taps.logits.shape == (2, 3, 2)


def test_pooling_refuses_channels_last_maps() -> None:
    model = nn.Sequential(nn.Identity(), nn.Flatten(), nn.Linear(45, 2))
    with (
        Taps(model, ["0"], "2", pool=True),
        pytest.raises(InputError, match="'0' to pool, found shape 2x3x3x5"),
    ):
        model(torch.randn(2, 3, 3, 5))


class Recurrent(nn.Module):
    """Returns tuples, runs a layer twice, and leaves one out."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)
        self.twice, self.unused = nn.Linear(6, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        _, state = self.rnn(x)
        return {"logits": self.head(input=self.twice(self.twice(state[0])))}


def test_tuple_outputs_and_keyword_inputs() -> None:
    model, x = Recurrent(), torch.randn(3, 5, 4)
    with Taps(model, ["rnn"], "head") as taps:
        model(x)
    assert torch.equal(taps.features["rnn"], model.rnn(x)[0].detach().flatten(1))
    assert taps.features[HEAD_INPUT].shape == (3, 6)


@pytest.mark.parametrize(
    ("layers", "head", "message"),
    [
        (["unused"], "head", "no call of 'unused'"),
        ([], "unused", "no call of 'unused'"),
        ([], "twice", "head 'twice' to run once"),
    ],
)
def test_heads_that_run_twice_and_layers_that_never_do(
    layers: list[str], head: str, message: str
) -> None:
    model = Recurrent()
    with Taps(model, layers, head) as taps, pytest.raises(InputError, match=message):
        model(torch.randn(3, 5, 4))
    with pytest.raises(InputError, match="a forward pass to read from"):
        _ = taps.features


def test_each_call_of_a_layer_has_features() -> None:
    model, x = Recurrent(), torch.randn(3, 5, 4)
    with Taps(model, ["twice"], "head") as taps:
        for _ in range(2):
            model(x)
    assert list(taps.features) == ["twice", "twice#2", HEAD_INPUT]
    first, second = taps.features["twice"], taps.features["twice#2"]
    torch.testing.assert_close(second, model.twice(first).detach())
    assert torch.equal(second, taps.features[HEAD_INPUT])


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (["twice"], "to call the tapped layers as often as the first, found another .*'twice#2'"),
        (["twice", "twice#2", "twice#3"], "every tapped layer to run, found no call of 'twice#3'"),
    ],
)
def test_every_pass_makes_the_calls_that_were_traced(calls: list[str], message: str) -> None:
    model, axes = Recurrent(), dict.fromkeys(calls, BatchAxis())
    with (
        Taps(model, ["twice"], "head", axes=axes),
        pytest.raises(InputError, match=message),
    ):
        model(torch.randn(3, 5, 4))


def test_calls_outside_a_forward_pass_are_not_read() -> None:
    """Checkpointing runs the layers again in the backward pass."""
    model, x = Recurrent(), torch.randn(3, 5, 4)
    with Taps(model, ["twice"], "head", pool=True) as taps:
        model(x)
        before = taps.features
        model.head(model.twice(torch.randn(2, 3, 3, 6)))  # in a pass, a map that is refused
        assert taps.features is before
        assert len(before) == 3


class BatchSecond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.tokens(x.transpose(0, 1))[0])


def test_rows_must_be_samples() -> None:
    model = BatchSecond()
    with (
        Taps(model, ["tokens"], "head"),
        pytest.raises(InputError, match="'tokens' to return one row a sample, found 7 rows for a"),
    ):
        model(torch.randn(3, 7, 4))


def test_samples_along_another_axis() -> None:
    model, x = BatchSecond(), torch.randn(3, 7, 4)
    axes = {"tokens": BatchAxis(axis=1)}
    for pool in (False, True):
        with Taps(model, ["tokens"], "head", pool=pool, axes=axes) as taps:
            model(x)
        tokens = model.tokens(x).detach()
        expected = tokens.mean(dim=1) if pool else tokens.flatten(1)
        torch.testing.assert_close(taps.features["tokens"], expected)


class NoTensor(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return x, None


class Silent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.silent, self.head = nn.Identity(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.silent(None)
        return self.head(x)


def test_layer_without_a_tensor() -> None:
    model = Silent()
    with (
        Taps(model, ["silent"], "head"),
        pytest.raises(InputError, match="'silent' to return a tensor, found NoneType"),
    ):
        model(torch.ones(2, 4))


def test_unknown_names() -> None:
    for layers, head in ((["blocks.7"], "classifier"), ([], "clasifier")):
        with pytest.raises(InputError, match="did you mean"), Taps(tiny_net(), layers, head):
            pass


def tiny_net() -> ResidualNet:
    return ResidualNet(4, 3, depth=2, num_classes=2)


def hooks_of(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_hooks_are_removed_also_after_errors() -> None:
    model = tiny_net()
    with pytest.raises(InputError), Taps(model, ["blocks.0", "blocks.9"], "classifier"):
        pass
    assert hooks_of(model) == 0
    with pytest.raises(ZeroDivisionError), Taps(model, ["blocks.0"], "classifier"):
        1 / (hooks_of(model) - 9)
    assert hooks_of(model) == 0


def test_a_failed_pass_leaves_nothing_to_read() -> None:
    model = tiny_net()
    with Taps(model, ["blocks.0"], "classifier") as taps:
        model(torch.ones(2, 4))
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 5))
        with pytest.raises(InputError, match="a forward pass"):
            _ = taps.logits
        model(torch.ones(3, 4))
        assert len(taps.logits) == 3


def test_outputs_and_gradients_are_untouched() -> None:
    model, x = tiny_net(), torch.ones(2, 4)
    expected = torch.autograd.grad(model(x).sum(), model.parameters())
    with Taps(model, ["blocks.0", "blocks.1"], "classifier"):
        found = torch.autograd.grad(model(x).sum(), model.parameters())
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_inference_mode() -> None:
    model = conv_net()
    with torch.inference_mode(), Taps(model, ["1"], "5") as taps:
        model(images())
    assert taps.features["1"].min() < 0
