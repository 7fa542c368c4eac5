"""Models that change their inputs or logits in place, keep a state or count their passes.

Each is measured beside a model of the same function without the habit, or beside its own features.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import ncscope
from ncscope.transfer.features import head_features

Y = torch.arange(200) % 4
X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))[Y] + 0.7 * torch.randn(
    200, 6, generator=torch.Generator().manual_seed(1)
)
MIXED = Y[torch.randperm(200, generator=torch.Generator().manual_seed(2))]
"""Classes that do not repeat from batch to batch."""


def load(labels: Tensor = Y) -> list[tuple[Tensor, Tensor]]:
    return [(X[at : at + 50].clone(), labels[at : at + 50].clone()) for at in range(0, 200, 50)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x).relu())


class Scales(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward((x - 0.5) / 0.25)


class ScalesInPlace(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(0.5).div_(0.25))


def with_weights(kind: Callable[[], nn.Module], *, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return kind()


def measure(model: nn.Module, batches: Any, **options: Any) -> Any:
    return ncscope.measure_model(model, batches, **{"layers": [], "progress": False} | options)


def test_inputs_that_a_model_changes_in_place_are_those_of_the_loader() -> None:
    changes, copies = map(with_weights, (ScalesInPlace, Scales))
    found, wanted = measure(changes, load()), measure(copies, load())
    for key in ("nc1", "accuracy", "ncc_accuracy", "mir"):
        assert found[key] == wanted[key]
    assert torch.equal(head_features(changes, load())[0], head_features(copies, load())[0])
    other = with_weights(Net, seed=1)
    pairs = [
        ncscope.compare_layers(each, load(), other=other, progress=False)
        for each in (changes, copies)
    ]
    assert pairs[0].values == pytest.approx(pairs[1].values)


def test_a_batch_of_another_kind_that_is_changed_in_place_is_left_to_the_user() -> None:
    class Bag:
        def __init__(self, x: Tensor) -> None:
            self.x = x

    class OfBags(Net):
        def forward(self, bag: Bag) -> Tensor:
            bag.x = (bag.x - 0.5) / 0.25
            return super().forward(bag.x)

    model = with_weights(OfBags).eval()
    with torch.no_grad():
        wanted = model(Bag(X))
        with ncscope.watch(model, layers=[]) as watched:
            found = model(Bag(X))
            watched.labels(Y)
    assert torch.equal(found, wanted)


def test_a_loader_that_writes_all_batches_into_one_memory() -> None:
    def reuse() -> Iterator[tuple[Tensor, Tensor]]:
        x, y = torch.empty(50, 6), torch.empty(50, dtype=torch.long)
        for inputs, labels in load(MIXED):
            yield x.copy_(inputs), y.copy_(labels)

    model = with_weights(Net)
    found, wanted = measure(model, reuse()), measure(model, load(MIXED))
    for key in ("nc1", "accuracy", "ncc_accuracy", "mir", "mir_centered"):
        assert found[key] == wanted[key]
    assert torch.equal(head_features(model, reuse())[1], MIXED)
    with ncscope.watch(model.eval(), layers=[]) as watched, torch.no_grad():
        for inputs, labels in reuse():
            model(inputs)
            watched.labels(labels)
        assert watched.report()["accuracy"] == wanted["accuracy"]


@dataclass
class Memory:
    h: Tensor


STATES = {
    "list": lambda zero: [zero],
    "deque": lambda zero: deque([zero], maxlen=1),
    "dictionary in a dictionary": lambda zero: {"a": {0: zero}},
    "list in a dictionary": lambda zero: {"a": [zero]},
    "dataclass": Memory,
}


def last(state: Any) -> tuple[Any, Any]:
    """The innermost container, and the place of its tensor."""
    if isinstance(state, Memory):
        return vars(state), "h"
    place = next(iter(state)) if isinstance(state, dict) else 0
    return (state, place) if isinstance(state[place], Tensor) else last(state[place])


class Remembers(Net):
    kind = "list"

    def __init__(self) -> None:
        super().__init__()
        self.state = STATES[self.kind](torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        held, place = last(self.state)
        hidden = self.body(x).tanh() + held[place]
        held[place] = 0.9 * held[place] + hidden.detach().mean(0)
        return self.fc(hidden)


@pytest.mark.parametrize("kind", STATES)
def test_a_state_in_a_container_is_the_model_s_own(kind: str, monkeypatch) -> None:
    monkeypatch.setattr(Remembers, "kind", kind)
    model, features = with_weights(Remembers), []
    handle = model.fc.register_forward_pre_hook(lambda _, args: features.append(args[0].detach()))
    for inputs, _ in load():
        model(inputs)
    handle.remove()
    model.state = STATES[kind](torch.zeros(8))
    assert measure(model, load())["nc1"] == pytest.approx(
        ncscope.measure(torch.cat(features), Y)["nc1"]
    )
    held, place = last(model.state)
    assert not held[place].any()


def test_a_choice_of_classes_after_the_head_is_not_the_head() -> None:
    class Select(nn.Module):
        def forward(self, logits: Tensor) -> Tensor:
            return logits[:, [2, 0, 3, 1]]

    for classes in (7, 4):  # some of the classes, and all of them in another order
        net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, classes))
        with pytest.raises(ncscope.InputError, match="head"):
            measure(nn.Sequential(net, Select()), [(X, Y)])


def test_channels_come_first_or_last_as_the_parts_of_a_layer_tell() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.linear(x).relu()

    class Maps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.block, self.fc = nn.Conv2d(3, 8, 4, 4), Last(), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.block(self.patches(x).permute(0, 2, 3, 1)).mean((1, 2)))

    images = torch.randn(40, 3, 16, 24)
    with pytest.raises(ncscope.InputError, match="looks channels-last; pass pool=False"):
        measure(Maps(), [(images, Y[:40])], layers=["block"], pool=True)
    assert (
        measure(Maps(), [(images, Y[:40])], layers=["patches"], pool=True).layers["patches"].dim
        == 8
    )
    of_signals = nn.Sequential(
        nn.Conv1d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    signals = torch.randn(40, 3, 20) + torch.randn(4, 3, 1)[Y[:40]]
    found = measure(of_signals, [(signals, Y[:40])], layers=["0"], pool=True).layers["0"]
    rows = of_signals[0](signals).mean(2).detach()
    assert found["pfc1"] == pytest.approx(ncscope.measure(rows, Y[:40])["nc1_quotient"])


@pytest.mark.parametrize("in_place", [True, False])
def test_logits_that_are_changed_in_later_batches_are_refused(in_place: bool) -> None:
    class Changes(Net):
        def forward(self, x: Tensor) -> Tensor:
            logits = super().forward(x)
            logits = logits if in_place else logits.clone()
            logits[x[:, 0] > 1.5] = torch.tensor([9.0, 0.0, 0.0, 0.0])
            return logits

    order = X[:, 0].argsort()
    batches = [(X[order][at : at + 50], Y[order][at : at + 50]) for at in range(0, 200, 50)]
    with pytest.raises(ncscope.InputError, match="found other logits in some"):
        measure(with_weights(Changes), batches)


def test_a_model_that_needs_labels_is_measured_outside_too() -> None:
    class Losing(Net):
        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = super().forward(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    outside = [(X + 3, Y)]
    found = measure(with_weights(Losing), [(X, Y)], ood=outside)
    wanted = measure(with_weights(Net), [(X, Y)], ood=outside)
    assert "nc5" in found
    assert dict(found) == pytest.approx(dict(wanted), nan_ok=True)


def test_counts_and_generators_stay_those_of_the_user() -> None:
    class Counts(Net):
        def __init__(self) -> None:
            super().__init__()
            self.step, self.drawn = 0, torch.Generator().manual_seed(0)
            self.seen = [0]

        def forward(self, x: Tensor) -> Tensor:
            self.step += 1
            self.seen.append(self.step)
            return super().forward(x + 0.1 * torch.randn(x.shape, generator=self.drawn))

    model = with_weights(Counts)
    before = model.drawn.get_state()
    measure(model, load())
    assert (model.step, model.seen) == (0, [0])
    assert torch.equal(model.drawn.get_state(), before)
    with ncscope.watch(model, layers=["body"]) as watched:
        for inputs, labels in load()[:3]:
            model(inputs)
            watched.labels(labels)
        watched.report()
    assert (model.step, model.seen) == (3, [0, 1, 2, 3])


def test_the_head_among_the_layers_is_noted() -> None:
    found = measure(with_weights(Net), load(), layers=["body", "fc"])
    assert list(found.layers) == ["body", "head input"]
    assert any("'fc' is the head" in note for note in found.notes)


def test_features_of_a_backbone_are_vectors() -> None:
    class Tokens(nn.Module):
        def __init__(self, *, pools: bool) -> None:
            super().__init__()
            self.linear, self.pools = nn.Linear(6, 8), pools

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            tokens = self.linear(x)[:, None].expand(-1, 3, -1)
            pooled = {"pooler_output": 2 * tokens.mean(1)} if self.pools else {}
            return {"last_hidden_state": tokens, **pooled}

    features, *_ = head_features(Tokens(pools=True), load(), has_head=False)
    assert features.shape == (200, 8)
    with pytest.raises(ncscope.InputError, match="return the mean of its outputs over tokens"):
        head_features(Tokens(pools=False), load(), has_head=False)


def test_a_mask_of_pairs_of_tokens_hides_no_sample_whatever_the_batch() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            shares = attention_mask / attention_mask.sum(1, keepdim=True)
            return x + shares @ self.linear(x)

    class Causal(nn.Module):
        def __init__(self, *, tokens: bool) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Block(), Block()])
            self.fc, self.tokens = nn.Linear(6, 4), tokens

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.ones(x.shape[1], x.shape[1]).tril()
            for layer in self.layers:
                x = layer(x, attention_mask=mask)
            return self.fc(x if self.tokens else x.mean(1))

    sequences = torch.randn(64, 16, 6) + torch.randn(4, 1, 6)[Y[:64]]
    for tokens in (False, True):
        model = Causal(tokens=tokens)
        labels = Y[:64, None].expand(-1, 16) if tokens else Y[:64]
        found = [
            measure(
                model,
                [(sequences[at : at + size], labels[at : at + size]) for at in range(0, 64, size)],
                layers=None,
            )
            for size in (16, 32)
        ]
        for name, layer in found[0].layers.items():
            assert layer["pfc1"] == pytest.approx(found[1].layers[name]["pfc1"]), name
            assert layer.num_samples == (64 * 16 if tokens else 64)
        assert list(found[0].layers)[:2] == ["layers.0", "layers.1"]


LENGTHS = torch.randint(2, 8, (200,), generator=torch.Generator().manual_seed(3))
SEQUENCES = X[:, None] + 0.7 * torch.randn(200, 7, 6, generator=torch.Generator().manual_seed(4))


class Sorts(nn.Module):
    """Sorts the sequences of a batch by length, and puts the last states back in order."""

    packs, by_hand, head_sorts = True, True, False

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.fc = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if not self.by_hand:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return self.fc(self.rnn(packed)[1][0])
        order = lengths.argsort(descending=True)
        ordered = x[order]
        if self.packs:
            ordered = pack_padded_sequence(ordered, lengths[order], batch_first=True)
        states = self.rnn(ordered)[1][0]
        if self.head_sorts:
            return 2 * self.fc(states).relu()[order.argsort()]
        return self.fc(states[order.argsort()])


class SortsWithoutPacking(Sorts):
    packs = False


class SortsForTheHead(Sorts):
    head_sorts = True


class LeavesIt(Sorts):
    by_hand = False


@pytest.mark.parametrize(
    ("kind", "layers", "head"),
    [(Sorts, ["rnn"], None), (SortsWithoutPacking, ["rnn"], None), (SortsForTheHead, [], "fc")],
)
def test_rows_in_another_order_than_the_labels_are_refused(kind, layers, head) -> None:
    torch.manual_seed(0)
    model = kind()
    with pytest.raises(ncscope.InputError, match="in the order of the labels, found another order"):
        measure(model, [((SEQUENCES, LENGTHS), Y)], layers=layers, head=head)
    torch.manual_seed(0)
    found = measure(LeavesIt(), [((SEQUENCES, LENGTHS), Y)], layers=["rnn"])
    torch.manual_seed(0)
    as_advised = LeavesIt()
    packed = pack_padded_sequence(SEQUENCES, LENGTHS, batch_first=True, enforce_sorted=False)
    states = as_advised.rnn(packed)[1][0].detach()
    assert found["nc1"] == pytest.approx(ncscope.measure(states, Y)["nc1"])


def test_a_model_of_one_batch_size_is_measured_without_layers() -> None:
    class OneSize(Net):
        def forward(self, x: Tensor) -> Tensor:
            assert len(x) == 50
            return super().forward(x).relu() ** 2

    model = with_weights(OneSize)
    found = measure(model, load(), head="fc")
    rows = model.body(X).relu().detach()
    assert found["nc1"] == pytest.approx(ncscope.measure(rows, Y)["nc1"])


def test_a_head_of_another_kind_may_be_zero() -> None:
    class OwnLinear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Parameter(torch.zeros(4, 8))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.rows.T

    model = with_weights(Net)
    model.fc = OwnLinear()
    assert measure(model, load()).dim == 8
