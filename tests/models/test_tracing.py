"""The batch axis of every layer is found by running another number of samples."""

from collections import namedtuple
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ncscope
from ncscope.errors import InputError
from ncscope.models.taps import HEAD_INPUT
from ncscope.models.tracing import BatchAxis, guess_axes, take_samples, trace

N, T, D, K = 8, 8, 6, 3
Inputs = Tensor | dict[str, object] | list[object]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


class Sequences(nn.Module):
    """Transformer, recurrent or attention layers, sequence-first or batch-first inside."""

    def __init__(self, layers: nn.Module, read: Callable[[Tensor], Tensor], turn: bool) -> None:
        super().__init__()
        self.layers, self.head = layers, nn.Linear(D, K)
        self.read, self.turn = read, turn

    def forward(self, x: Tensor) -> Tensor:
        h = x.transpose(0, 1) if self.turn else x
        for layer in self.layers:
            h = layer(h, h, h) if isinstance(layer, nn.MultiheadAttention) else layer(h)
            h = h if isinstance(h, Tensor) else h[0]
        return self.head(self.read(h.transpose(0, 1) if self.turn else h))


def layers_of(kind: str, batch_first: bool) -> nn.Module:
    torch.manual_seed(0)
    if kind == "transformer":
        layer = nn.TransformerEncoderLayer(D, 2, 12, batch_first=batch_first)
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        return nn.Sequential(encoder)
    make = {
        "lstm": lambda: nn.LSTM(D, D, batch_first=batch_first),
        "attention": lambda: nn.MultiheadAttention(D, 2, batch_first=batch_first),
    }[kind]
    return nn.ModuleList(make() for _ in range(2))


PATTERNS = {"transformer": None, "lstm": ["layers.*"], "attention": ["layers.*"]}


def measured(model: nn.Module, x: Inputs, **options: object) -> ncscope.ModelReport:
    labels = torch.arange(N) % K
    return ncscope.measure_model(model, [(x, labels)], progress=False, **options)


@pytest.mark.parametrize("pool", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", PATTERNS)
def test_sequence_first_layers_measure_what_batch_first_ones_do(kind: str, pool: bool) -> None:
    """Also where there are as many tokens as samples."""
    reports = [
        measured(
            Sequences(layers_of(kind, not turned), lambda h: h[:, -1], turned).eval(),
            drawn(N, T, D),
            layers=PATTERNS[kind],
            pool=pool,
        )
        for turned in (False, True)
    ]
    names = [list(report.layers) for report in reports]
    assert names[0] == names[1]
    assert len(names[0]) == 3
    for name in names[0]:
        batch_first, sequence_first = (report.layers[name]["pfc1"] for report in reports)
        assert sequence_first == pytest.approx(batch_first, rel=1e-5)


class Block(nn.Module):
    """Two layers of weights around a nonlinearity."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(self.one(x).tanh())


class Model(nn.Module):
    """A classifier whose pass is a function of the test's choice."""

    def __init__(self, run: Callable[..., Tensor], **modules: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.run, self.block, self.head = run, Block(), nn.Linear(D, K)
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        return self.run(self, *args, **kwargs)


def sequence_first(model: nn.Module, x: Tensor) -> Tensor:
    """Inputs are T x B x d, like the layers."""
    return model.head(model.block(x).mean(dim=0))


def masked(model: nn.Module, x: Tensor, mask: Tensor, lengths: list[int]) -> Tensor:
    """Sequence-first inputs with a batch-first mask, and the lengths of the samples."""
    assert len(lengths) == len(mask) == x.shape[1]
    kept = mask.T[:, :, None]
    return model.head((model.block(x) * kept).sum(dim=0) / kept.sum(dim=0))


MASK = (torch.arange(T) <= torch.arange(N)[:, None]).float()
INPUTS = {
    "T x B": (sequence_first, drawn(T, N, D)),
    "more tokens": (sequence_first, drawn(T + 3, N, D)),
    "one sample": (sequence_first, drawn(T, 1, D)),
    "one of each": (sequence_first, drawn(1, 1, D)),
    "two of each": (sequence_first, drawn(2, 2, D)),
    "T x B and B x T": (masked, [drawn(T, N, D), MASK, list(range(N))]),
    "by name": (masked, {"x": drawn(T, N, D), "mask": MASK, "lengths": tuple(range(N))}),
}


@pytest.mark.parametrize(("run", "inputs"), INPUTS.values(), ids=INPUTS)
def test_which_axis_of_the_inputs_is_the_batch_shows_in_the_logits(
    run: Callable[..., Tensor], inputs: Inputs
) -> None:
    found = trace(Model(run), inputs, ["block"])
    assert found.axes["block"] == BatchAxis(axis=1)


def test_positions_that_all_samples_share_are_left_whole() -> None:
    def run(model: nn.Module, x: Tensor, positions: Tensor) -> Tensor:
        return model.head(model.block(x + positions).mean(dim=1))

    inputs = [drawn(N, T, D), drawn(1, T, D)]
    assert trace(Model(run), inputs, ["block"]).axes["block"] == BatchAxis()


# How the head reads the tokens of a sequence-first block, and in what order a row is read.
READINGS = {
    "last, after the head": (lambda m, h: m.head(h)[-1], "chosen token", lambda x: x[:, -1]),
    "last, one state": (lambda m, h: m.head(h[-1:])[0], "chosen token", None),
    "turned after the head": (lambda m, h: m.head(h).transpose(0, 1), "token", torch.clone),
    "turned before the head": (lambda m, h: m.head(h.transpose(0, 1)), "token", torch.clone),
    "turned and scaled": (lambda m, h: 3 * m.head(h).transpose(0, 1), "token", torch.clone),
    "T x B x K": (lambda m, h: m.head(h), "token", lambda x: x.transpose(0, 1)),
}


@pytest.mark.parametrize("tokens", [T, T + 1])
@pytest.mark.parametrize(("read", "rows", "order"), READINGS.values(), ids=READINGS)
def test_heads_on_sequence_first_tokens(
    read: Callable[[nn.Module, Tensor], Tensor],
    rows: str,
    order: Callable[[Tensor], Tensor] | None,
    tokens: int,
) -> None:
    model, x = Model(lambda m, x: read(m, m.block(x.transpose(0, 1)))), drawn(N, tokens, D)
    found = trace(model, x, ["block"], "head")
    with torch.no_grad(), found.taps(model) as taps:
        model(x)
        states = model.block(x)
    expected = order(states).flatten(0, -2) if order else states[:, -1]
    assert found.head.rows == rows
    torch.testing.assert_close(taps.features[HEAD_INPUT], expected)
    block = expected if order else states.flatten(1)
    torch.testing.assert_close(taps.features["block"], block)


def test_logits_of_tokens_whose_mask_fixes_their_number() -> None:
    """T x B x K with a mask T x T: the samples, not the tokens, can be fewer."""

    def run(model: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
        h = (mask @ model.block(x).flatten(1)).unflatten(1, x.shape[1:])
        return model.head(model.turned(h.transpose(0, 1)).transpose(0, 1))

    model = Model(run, turned=nn.Identity())
    inputs = [drawn(T, N + 1, D), torch.ones(T, T).tril()]
    found = trace(model, inputs, ["block", "turned"])
    with torch.no_grad(), found.taps(model) as taps:
        model(*inputs)
        states = model.block(inputs[0])
    assert torch.equal(taps.features["block"], states.flatten(0, 1))
    assert torch.equal(taps.features["turned"], taps.features[HEAD_INPUT])


@pytest.mark.parametrize("turned", [False, True])
def test_tokens_in_one_axis_with_the_samples(turned: bool) -> None:
    """In the order of the logits they are read as they are; in another order they are refused."""

    def run(model: nn.Module, x: Tensor) -> Tensor:
        h = x.transpose(0, 1) if turned else x
        rows = model.block(h.flatten(0, 1)).unflatten(0, h.shape[:2])
        return model.head(rows.transpose(0, 1) if turned else rows)

    model, x = Model(run), drawn(N, T, D)
    if turned:
        with pytest.raises(InputError, match=r"'block' to return one row a token, found \(64, 6\)"):
            trace(model, x, ["block"])
    else:
        found = trace(model, x, ["block"])
        with torch.no_grad(), found.taps(model) as taps:
            model(x)
        assert torch.equal(taps.features["block"], taps.features[HEAD_INPUT])


class Windows(nn.Module):
    """Returns what it makes of parts of the samples, and then of the samples."""

    def forward(self, x: Tensor) -> dict[str, object]:
        return {"parts": x.flatten(0, 1), "both": (None, x)}


def test_the_first_tensor_with_a_batch_axis_is_read() -> None:
    model = Model(lambda m, x: m.head(m.windows(m.block(x))["both"][1][:, 0]), windows=Windows())
    x = drawn(N, T, D)
    found = trace(model, x, ["windows"])
    assert found.axes["windows"] == BatchAxis(tensor=1)
    with torch.no_grad(), found.taps(model) as taps:
        model(x)
        assert torch.equal(taps.features["windows"], model.block(x).flatten(1))


def pairs(x: Tensor) -> Tensor:
    return x[:, 0] @ x[:, 0].T


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (lambda x: x.flatten(0, 1), r"\(64, 6\) of 8 samples, \(16, 6\) of 2"),
        (lambda x: x.mean(dim=0), r"\(8, 6\) of 8 samples, \(8, 6\) of 2"),
        (pairs, r"\(8, 8\) of 8 samples, \(2, 2\) of 2"),
        (lambda x: None, "no tensor of 8 samples"),
    ],
    ids=["parts of samples", "no samples", "pairs of samples", "nothing"],
)
def test_layers_without_one_batch_axis(seen: Callable[[Tensor], object], found: str) -> None:
    """Eight tokens of eight samples look like samples, and are not."""

    class Seen(nn.Module):
        def forward(self, x: Tensor) -> object:
            return seen(x)

    def run(model: nn.Module, x: Tensor) -> Tensor:
        model.seen(x)
        return model.head(model.block(x)[:, 0])

    with pytest.raises(InputError, match=f"'seen' to return one row a sample, found {found}"):
        trace(Model(run, seen=Seen()), drawn(N, T, D), ["seen"])


def test_a_model_of_one_batch_size_gives_its_head_alone() -> None:
    model = Model(lambda m, x: m.head(m.block(x.view(N, T, D))[:, 0]))
    message = r"also runs on copies of the first sample.*shape '\[8, 8, 6\]' is invalid"
    with pytest.raises(InputError, match=message):
        measured(model, drawn(N, T, D), layers=["block"])
    assert list(measured(model, drawn(N, T, D), layers=[]).layers) == [HEAD_INPUT]


def test_layers_called_once_a_sample_are_refused() -> None:
    model = Model(lambda m, x: m.head(torch.stack([m.block(sample)[0] for sample in x])))
    with pytest.raises(InputError, match=r"to run as often .* found 8 calls on 8 and 2 on"):
        trace(model, drawn(N, T, D), ["block"])


class Counter(nn.Module):
    """Counts its calls in a buffer and draws noise, in evaluation mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + torch.randn_like(x)


def test_the_runs_leave_nothing_behind() -> None:
    model = Model(lambda m, x: m.head(m.noise(m.block(x))), noise=Counter())
    random = torch.get_rng_state()
    trace(model, drawn(N, D), ["block"])
    assert model.noise.calls == 0
    assert torch.equal(torch.get_rng_state(), random)
    assert all(module.training for module in model.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class Padded(nn.Module):
    """An encoder that torch runs on nested tensors, without the padding, where it can."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(D, 2, 12, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(D, K)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.head(self.encoder(x, src_key_padding_mask=padding)[:, 0])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_stays_in_the_layers_of_an_encoder() -> None:
    model, inputs = Padded().eval(), [drawn(N, T, D), MASK == 0]
    report = measured(model, inputs)
    assert list(report.layers) == ["encoder.layers.0", "encoder.layers.1", HEAD_INPUT]
    assert report.layers["encoder.layers.0"].dim == D  # averaged over the tokens that are real
    message = "'encoder.layers.0' to return a plain tensor, found a nested one"
    with ncscope.watch(model) as seen, torch.no_grad():
        model(*inputs)  # the user's pass goes on
        with pytest.raises(InputError, match=message):
            seen.labels(torch.zeros(N))


class Shared(nn.Module):
    """One block listed three times, under another name too, and one activation for all layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.act, block = nn.ReLU(), Block()
        self.blocks, self.alias = nn.ModuleList([block] * 3), block
        self.head = nn.Linear(D, K)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = self.act(block(x))
        return self.head(self.alias(x))


@pytest.mark.parametrize(
    ("layers", "block", "names"),
    [
        (None, "blocks.0", ["{}", "{}#2", "{}#3", "{}#4"]),
        (["alias"], "alias", ["{}", "{}#2", "{}#3", "{}#4"]),
        (["act", "*.0"], "blocks.0", ["{}", "act", "{}#2", "act#2", "{}#3", "act#3", "{}#4"]),
    ],
    ids=["default", "by its other name", "with the activation"],
)
def test_every_call_of_a_shared_module_is_a_layer(
    layers: list[str] | None, block: str, names: list[str]
) -> None:
    """The last call's features are the head's input, which counts once."""
    model, x = Shared(), drawn(N, D)
    report = measured(model, x, layers=layers)
    assert list(report.layers) == [name.format(block) for name in names]
    with torch.no_grad():
        second = model.alias(model.act(model.alias(x)))
    by_hand = ncscope.measure(second, torch.arange(N) % K, groups=["pfc"])
    assert report.layers[f"{block}#2"]["pfc1"] == pytest.approx(by_hand["pfc1"], rel=1e-6)


Pair = namedtuple("Pair", ["ids", "mask"])


def test_every_structure_is_kept() -> None:
    ids, mask = torch.arange(6).reshape(3, 2), torch.ones(3, 2, dtype=torch.bool)
    inputs = {"pair": Pair(ids, mask), "lengths": [2, 1, 1], "more": (None, {"scale": 2.0}, "on")}
    (axes,) = guess_axes(inputs, 3)
    found = take_samples(inputs, axes, [1, 0])
    assert torch.equal(found["pair"].ids, ids[[1, 0]])
    assert torch.equal(found["pair"].mask, mask[[1, 0]])
    assert found["lengths"] == [1, 2]
    assert found["more"] == (None, {"scale": 2.0}, "on")


def test_first_axes_come_first_and_second_ones_may_be_positions() -> None:
    square, positions = torch.rand(3, 3, 1), torch.rand(1, 3)
    inputs = [square, positions]
    shapes = [
        tuple(tuple(each.shape) for each in take_samples(inputs, axes, [0, 0]))
        for axes in guess_axes(inputs, 3)
    ]
    first, second = (2, 3, 1), (3, 2, 1)
    assert shapes == [(first, (1, 2)), (first, (1, 3)), (second, (1, 2)), (second, (1, 3))]


def test_inputs_without_the_samples_cannot_be_cut() -> None:
    assert list(guess_axes([torch.rand(4, 4), 3, []], 3)) == []


class WithLoss(nn.Module):
    """Computes its loss at the end of the forward pass, and fails there without labels."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        logits = self.head(self.block(x))
        return nn.functional.cross_entropy(logits, labels), logits


def test_a_pass_that_fails_without_labels_is_not_counted() -> None:
    seen = trace(WithLoss(), torch.randn(6, 4), ["block"], labels=torch.arange(6) % 3)
    assert (seen.layers, seen.label_argument) == (("block",), "labels")
