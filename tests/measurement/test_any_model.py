"""In any kind of model the numbers are those of its own head and features, or there are none."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import ncscope
from ncscope.errors import InputError

N, K, D = 60, 4, 8
LABELS = torch.arange(N) % K
INPUTS = torch.randn(N, 6, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(6)[LABELS]
BATCHES = list(zip(INPUTS.split(25), LABELS.split(25), strict=True))
GROUPS = ["nc1", "nc3", "nc4", "accuracy"]


class Net(nn.Module):
    """A classifier whose test decides what becomes of features and logits."""

    def __init__(
        self,
        after: Callable[[Tensor, Tensor], Any] = lambda h, z: z,
        head: nn.Module | None = None,
        classes: int = K,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.embed = nn.Linear(16, D)
        self.fc = nn.Linear(D, classes) if head is None else head
        self.after = after

    def features(self, x: Tensor) -> Tensor:
        return self.embed(self.body(x))

    def forward(self, x: Tensor) -> Any:
        h = self.features(x)
        return self.after(h, self.fc(h))


def numbers(report: Any) -> dict[str, float]:
    return {
        "K": report.num_classes,
        "d": report.dim,
        "n": report.num_samples,
        **{key: report[key] for key in ("nc1", "nc3_self_duality", "nc4_disagreement", "accuracy")},
    }


def truth(model: Net, weight: Tensor, bias: Tensor | None, labels: Tensor = LABELS) -> dict:
    with torch.no_grad():
        features = model.eval().features(INPUTS)
    given = None if bias is None else bias.detach()
    return numbers(ncscope.measure(features, labels, weight.detach(), given, groups=GROUPS))


def measured(model: nn.Module, batches: Any = BATCHES, **settings: Any) -> Any:
    return ncscope.measure_model(model, batches, groups=GROUPS, progress=False, **settings)


def watched(model: nn.Module, batches: Any = BATCHES, **settings: Any) -> Any:
    model.eval()
    with torch.no_grad(), ncscope.watch(model, groups=GROUPS, **settings) as seen:
        for inputs, labels in batches:
            model(inputs)
            seen.labels(labels)
    return seen.report()


def close(wanted: dict[str, float]) -> Any:
    return pytest.approx(wanted, rel=1e-5, abs=1e-7)


@dataclass
class Output:
    features: Tensor
    score: Tensor


AFTER: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "features first": lambda h, z: (h, z),
    "logits first": lambda h, z: (z, h),
    "features after a ReLU": lambda h, z: (h.relu(), z),
    "unit features": lambda h, z: (z, functional.normalize(h)),
    "dictionary": lambda h, z: {"embedding": h, "out": z},
    "dataclass": Output,
    "nested": lambda h, z: [h, {"a": (None, z)}],
    "with an index": lambda h, z: (z.argmax(1), z),
    "with a map": lambda h, z: (h[:, :, None, None].expand(-1, -1, 3, 3), z),
    "with a loss": lambda h, z: (z, z.square().mean()),
    "with probabilities": lambda h, z: (z.softmax(1), h, z),
    "log-softmax": lambda h, z: z.log_softmax(1),
    "softmax": lambda h, z: z.softmax(1),
    "sigmoid": lambda h, z: z.sigmoid(),
    "log-sigmoid": lambda h, z: functional.logsigmoid(z),
    "soft cap": lambda h, z: 2 * (z / 2).tanh(),
    "ReLU": lambda h, z: z.relu(),
    "saturated softmax": lambda h, z: z.softmax(1),
}


@pytest.mark.parametrize("kind", AFTER)
@pytest.mark.parametrize("run", [measured, watched])
def test_the_head_is_found_whatever_is_returned(kind: str, run: Callable) -> None:
    model = Net(AFTER[kind])
    if kind == "ReLU":
        model.fc.bias.data += torch.tensor([5.0, 5, 0, 0])
    if kind == "saturated softmax":
        model.fc.weight.data *= 400
    report = run(model)
    assert numbers(report) == close(truth(model, model.fc.weight, model.fc.bias))
    choice = kind not in ("with an index", "with a map", "with a loss")
    assert choice == any(note.startswith("head") and "'fc'" in note for note in report.notes)


@pytest.mark.parametrize(
    ("factor", "shift"),
    [
        (1 / 9, None),
        (-3.0, None),
        (1.0, torch.arange(4.0)),
        (1.0, torch.full((4,), 5.0)),
        (torch.arange(1.0, 5), torch.ones(4)),
    ],
    ids=["temperature", "negative", "shift", "one shift", "of each class"],
)
def test_scale_and_shift_belong_to_the_logits(factor: Any, shift: Tensor | None) -> None:
    model = Net(lambda h, z: factor * z + (0 if shift is None else shift))
    scale = torch.as_tensor(factor).expand(K)
    bias = model.fc.bias * scale + (0 if shift is None else shift)
    report = measured(model)
    assert numbers(report) == close(truth(model, model.fc.weight * scale[:, None], bias))
    settings = {"groups": ["mse"], "layers": [], "progress": False}
    whole = ncscope.measure_model(model, [(INPUTS, LABELS)], **settings)["mse_loss"]
    with torch.no_grad():
        errors = model(INPUTS) - functional.one_hot(LABELS, K)
    assert whole == pytest.approx(float(errors.square().sum(1).mean() / 2), rel=1e-5)


def test_features_narrower_than_classes_are_features_all_the_same() -> None:
    torch.manual_seed(0)
    model = Net(lambda h, z: (h, z), nn.Linear(D, 12))
    assert measured(model).num_classes == 12


@pytest.mark.parametrize("order", [1, -1])
def test_two_heads_are_refused_by_name_and_the_name_picks_one(order: int) -> None:
    model = Net(lambda h, z: (z, model.other(h))[::order])
    model.other = nn.Linear(D, K)
    with pytest.raises(
        InputError, match=r"'fc' \(output '\d'\) and 'other' \(output '\d'\)"
    ) as error:
        measured(model)
    for name in ("fc", "other"):
        assert f'head="{name}"' in error.value.fix
        layer = getattr(model, name)
        wanted = truth(model, layer.weight, layer.bias)
        assert numbers(measured(model, head=name)) == close(wanted)
        assert numbers(watched(model, head=name)) == close(wanted)


def test_an_output_of_no_known_layer_beside_another_is_refused_and_the_advice_holds() -> None:
    model = Net(lambda h, z: (z, functional.normalize(h) @ torch.eye(D)[:, :K].exp()))
    with pytest.raises(InputError, match=r"output '1' of shape 25x4, of which no linear") as error:
        measured(model)
    assert "pass head=\"fc\" if output '0' is the logits" in error.value.fix
    assert numbers(measured(model, head="fc")) == close(
        truth(model, model.fc.weight, model.fc.bias)
    )


def test_the_output_need_not_be_read_where_the_head_is_named() -> None:
    model = Net(lambda h, z: None)
    with pytest.raises(InputError, match="found NoneType; pass head="):
        measured(model)
    report = measured(model, head="fc")
    assert numbers(report) == close(truth(model, model.fc.weight, model.fc.bias))
    assert "given by name" in "".join(report.warnings)


def test_a_hidden_layer_is_no_head_even_by_name() -> None:
    model = Net()
    with pytest.raises(InputError, match="found a layer of 16 outputs, beside 'fc'") as error:
        measured(model, head="body.0")
    assert error.value.fix.startswith("leave head out")
    assert numbers(measured(model)) == close(truth(model, model.fc.weight, model.fc.bias))


class Adapted(nn.Module):
    """A low-rank adapter that shows the weight of the layer inside, as PEFT's."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = nn.Linear(D, K)
        self.down, self.up = nn.Linear(D, 2, bias=False), nn.Linear(2, K, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.base_layer.weight

    @property
    def bias(self) -> Tensor:
        return self.base_layer.bias

    def forward(self, h: Tensor) -> Tensor:
        return self.base_layer(h) + 2 * self.up(self.down(h))

    def acts(self) -> tuple[Tensor, Tensor]:
        return self.weight + 2 * self.up.weight @ self.down.weight, self.bias


class Turned(nn.Module):
    """A matrix of d x K under a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(D, K))

    def forward(self, h: Tensor) -> Tensor:
        return h @ self.kernel

    def acts(self) -> tuple[Tensor, None]:
        return self.kernel.T, None


class PerFeature(nn.Linear):
    """Factors of the features before the product, as IA3's."""

    def __init__(self) -> None:
        super().__init__(D, K)
        self.factors = nn.Parameter(torch.rand(D))

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(h * self.factors)

    def acts(self) -> tuple[Tensor, Tensor]:
        return self.weight * self.factors, self.bias


@pytest.mark.parametrize("make", [Adapted, Turned, PerFeature])
@pytest.mark.parametrize("name", [None, "fc"])
def test_heads_of_other_kinds_are_measured_as_they_act(make: type, name: str | None) -> None:
    torch.manual_seed(1)
    model = Net(head=make())
    weight, bias = model.fc.acts()
    assert numbers(measured(model, head=name)) == close(truth(model, weight, bias))
    assert numbers(watched(model, head=name)) == close(truth(model, weight, bias))


def test_an_adapter_in_training_enters_with_its_present_weight() -> None:
    torch.manual_seed(1)
    model = Net(head=Adapted()).eval()
    with ncscope.watch(model, groups=GROUPS) as seen:
        loss = functional.cross_entropy(model(INPUTS), LABELS)
        seen.labels(LABELS)
        before = truth(model, *model.fc.acts())
        loss.backward()
        torch.optim.SGD(model.fc.parameters(), lr=1.0).step()
    found = numbers(seen.report())
    assert found == close(truth(model, *model.fc.acts()))
    assert found["nc3_self_duality"] != close(before["nc3_self_duality"])


@pytest.mark.parametrize("wrap", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_normalised_weights(wrap: Callable) -> None:
    torch.manual_seed(2)
    model = Net(head=wrap(nn.Linear(D, K))).eval()
    assert numbers(measured(model)) == close(truth(model, model.fc.weight, model.fc.bias))


@pytest.mark.parametrize("kind", ["Linear8bitLt", "Linear4bit"])
def test_heads_of_bitsandbytes_are_dequantised(kind: str) -> None:
    library = pytest.importorskip("bitsandbytes")
    torch.manual_seed(2)
    model = Net()
    plain = model.fc.weight.detach().clone()
    made = getattr(library.nn, kind)
    options = {"has_fp16_weights": False} if kind == "Linear8bitLt" else {}
    head = made(D, K, **options)
    head.load_state_dict(model.fc.state_dict())
    head.support_avx512bf16_for_cpu = False  # where a CPU has it, 4 bits need multiples of 32 rows
    model.fc = head.to("cpu")
    with torch.no_grad():
        zero, unit = model.fc(torch.zeros(1, D)), model.fc(torch.eye(D))
    weight = (unit - zero).T
    step = float(plain.abs().max()) / (100 if kind == "Linear8bitLt" else 3)
    torch.testing.assert_close(weight, plain, rtol=0, atol=step)
    assert numbers(measured(model)) == close(truth(model, weight, zero[0]))


class Matrix(nn.Module):
    """Logits that are the product of a layer's output and a fixed simplex, or end in a softmax."""

    def __init__(self, turned: bool = True, after: Callable = lambda z: z) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f = nn.Sequential(nn.Linear(6, D), nn.ReLU())
        simplex = (torch.eye(K) - 1 / K) * (K / (K - 1)) ** 0.5
        frame = torch.linalg.qr(torch.randn(D, K))[0] @ simplex
        self.register_buffer("M", frame if turned else frame.T.contiguous())
        self.turned, self.after = turned, after

    def features(self, x: Tensor) -> Tensor:
        return self.f(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.f(x) @ (self.M if self.turned else self.M.T))


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("after", [lambda z: z, lambda z: z / 7, lambda z: z.log_softmax(1)])
@pytest.mark.parametrize("run", [measured, watched])
def test_a_matrix_of_the_model_is_its_head(turned: bool, after: Callable, run: Callable) -> None:
    model = Matrix(turned, after)
    weight = model.M.T if turned else model.M
    report = run(model, layers=[])
    scale = 1 / 7 if float(after(torch.ones(1, 1))) == pytest.approx(1 / 7) else 1.0
    assert numbers(report) == close(truth(model, weight * scale, None))
    assert any("matrix 'M', which multiplies the outputs of 'f" in note for note in report.notes)


class Cosine(nn.Linear):
    def forward(self, h: Tensor) -> Tensor:
        return functional.normalize(h) @ functional.normalize(self.weight).T


@pytest.mark.parametrize("name", [None, "fc"])
def test_a_cosine_head_is_refused_and_the_advice_gives_the_numbers(name: str | None) -> None:
    model = Net(head=Cosine(D, K))
    with pytest.raises(InputError, match=r"call ncscope\.measure\(features, labels\)"):
        measured(model, head=name)
    kept = []
    hook = model.fc.register_forward_pre_hook(lambda _, args: kept.append(args[0]))
    with torch.no_grad():
        for inputs, _ in BATCHES:
            model.eval()(inputs)
    hook.remove()
    wanted = ncscope.measure(model.features(INPUTS).detach(), LABELS, groups=["nc1"])
    found = ncscope.measure(torch.cat(kept), LABELS, groups=["nc1"])
    assert found["nc1"] == pytest.approx(wanted["nc1"], rel=1e-6)


class NeedsLabels(Net):
    """A model whose forward pass takes the labels, as those with a loss of centres."""

    def forward(self, x: Tensor, labels: Tensor) -> Any:
        h = self.features(x)
        return self.fc(h), functional.cross_entropy(self.fc(h.detach()) * 0, labels)


class Margin(Net):
    """A head that subtracts a margin from the logit of the label, as ArcFace."""

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return self.fc(self.features(x)) - 3 * functional.one_hot(labels, K)


def test_a_model_that_needs_labels_gets_them() -> None:
    class Once(Net):
        def forward(self, x: Tensor, target: Tensor) -> Any:
            h = self.features(x)
            z = self.fc(h)
            return functional.cross_entropy(z, target), z

    model = Once()
    report = measured(model)
    assert numbers(report) == close(truth(model, model.fc.weight, model.fc.bias))
    assert "the model is given the labels as 'target'" in report.notes
    with pytest.raises(InputError, match="once in a forward pass, found 2 calls"):
        measured(NeedsLabels())


def test_logits_that_depend_on_the_labels_are_refused() -> None:
    with pytest.raises(InputError, match="found none"):
        measured(Margin())


@pytest.mark.parametrize("squeezed", [False, True])
@pytest.mark.parametrize("step", [lambda z: z, torch.sigmoid])
@pytest.mark.parametrize("run", [measured, watched])
def test_one_logit(squeezed: bool, step: Callable, run: Callable) -> None:
    model = Net(lambda h, z: step(z).squeeze(1) if squeezed else step(z), classes=1)
    labels = LABELS % 2
    batches = list(zip(INPUTS.split(25), labels.split(25), strict=True))
    weight = torch.cat([-model.fc.weight, model.fc.weight]) / 2
    bias = torch.cat([-model.fc.bias, model.fc.bias]) / 2
    report = run(model, batches)
    assert numbers(report) == close(truth(model, weight, bias, labels))
    assert "one logit" in "".join(report.notes)
    every = ncscope.measure_model(model, batches, progress=False)
    assert not {"mse_loss", "mse_nc1"} & every.keys()
    with torch.no_grad():
        positive = model.fc(model.features(INPUTS)).squeeze(1) > 0
    assert report["accuracy"] == pytest.approx(float((positive == labels.bool()).double().mean()))


def test_one_row_of_weights_and_boolean_labels() -> None:
    features = torch.randn(40, 3, dtype=torch.float64)
    labels = torch.arange(40) % 2
    features += labels[:, None]
    row, offset = torch.tensor([[1.0, -2.0, 0.5]]).double(), torch.tensor([0.3]).double()
    both = torch.cat([-row, row]) / 2, torch.cat([-offset, offset]) / 2
    wanted = dict(ncscope.measure(features, labels, *both))
    for key in ("mse_loss", "mse_nc1", "mse_nc23", "mse_off_path"):
        del wanted[key]
    for given in (labels, labels.bool()):
        found = ncscope.measure(features, given, row, offset)
        assert dict(found) == pytest.approx(wanted, nan_ok=True)
    moments = ncscope.ClassMoments(2, 3)
    moments.update(features, labels)
    by_moments = ncscope.measure_moments(moments, row, offset)
    assert by_moments["nc3_self_duality"] == pytest.approx(wanted["nc3_self_duality"])
    assert "mse_loss" not in by_moments


def test_collapsed_features_look_collapsed_to_one_logit() -> None:
    labels = torch.arange(40) % 2
    features = torch.tensor([[1.0, 2.0], [-1.0, -2.0]]).double()[labels]
    report = ncscope.measure(features, labels, [[-1.0, -2.0]], groups=["nc3"])
    assert report["nc3_self_duality"] == pytest.approx(0, abs=1e-12)


LENGTHS = torch.randint(1, 8, (N,), generator=torch.Generator().manual_seed(1))
TOKENS = torch.randint(0, 20, (N, 7), generator=torch.Generator().manual_seed(2))
SEQUENCES = [
    ((TOKENS[at], LENGTHS[at]), LABELS[at]) for at in (slice(0, 25), slice(25, 50), slice(50, 60))
]


def packed(rows: Tensor, lengths: Tensor) -> PackedSequence:
    return pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)


class Recurrent(nn.Module):
    """An LSTM on packed sequences; the head reads its last state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.lstm = nn.Embedding(20, 8), nn.LSTM(8, 6, batch_first=True, num_layers=2)
        self.head = nn.Linear(6, K)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(packed(self.embed(tokens), lengths))
        return self.head(hidden[-1])


def test_packed_sequences_are_averaged_over_their_own_lengths() -> None:
    model = Recurrent()
    settings = {"layers": ["lstm"], "layer_groups": ["nc1"], "groups": ["nc1"], "progress": False}
    report = ncscope.measure_model(model, SEQUENCES, **settings)
    with torch.no_grad():
        out, _ = model.lstm(packed(model.embed(TOKENS), LENGTHS))
        padded, lengths = pad_packed_sequence(out, batch_first=True)
    means = torch.stack([padded[i, : lengths[i]].mean(0) for i in range(N)])
    wanted = ncscope.measure(means, LABELS, groups=["nc1"])
    assert report.layers["lstm"].dim == 6
    assert report.layers["lstm"]["nc1"] == pytest.approx(wanted["nc1"], rel=1e-5)
    assert any("layer 'lstm' returns several tensors" in note for note in report.notes)
    with torch.no_grad(), ncscope.watch(model, layers=["lstm"], layer_groups=["nc1"]) as seen:
        for (tokens, lengths), labels in SEQUENCES:
            model(tokens, lengths)
            seen.labels(labels)
    assert seen.report().layers["lstm"]["nc1"] == pytest.approx(wanted["nc1"], rel=1e-5)


class Quantiser(nn.Module):
    """Returns indices and vectors, in the order asked for."""

    def __init__(self, order: int) -> None:
        super().__init__()
        self.linear, self.order = nn.Linear(6, 6), order
        self.codes = nn.Parameter(torch.randn(32, 6))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        index = torch.cdist(self.linear(x), self.codes).argmin(1)
        return (index, self.codes[index])[:: self.order]


class Quantised(nn.Module):
    def __init__(self, order: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Quantiser(order), Quantiser(order)])
        self.head = nn.Linear(6, K)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            parts = block(x)
            x = next(part for part in parts if part.is_floating_point())
        return self.head(x)


class Indices(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(1)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("layers", [None, ["blocks.0"]])
def test_indices_are_no_features(order: int, layers: list[str] | None) -> None:
    model = Quantised(order)
    report = measured(model, layers=layers, layer_groups=["nc1"])
    with torch.no_grad():
        vectors = next(part for part in model.blocks[0](INPUTS) if part.is_floating_point())
    wanted = ncscope.measure(vectors, LABELS, groups=["nc1"])["nc1"]
    assert report.layers["blocks.0"].dim == 6
    assert report.layers["blocks.0"]["nc1"] == pytest.approx(wanted, rel=1e-5)


def test_a_layer_of_integers_alone_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(6, D), nn.ReLU(), nn.Linear(D, K))
    model.add_module("3", nn.Identity())

    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.index = model, Indices()

        def forward(self, x: Tensor) -> Tensor:
            self.index(x)
            return self.net(x)

    with pytest.raises(InputError, match=r"'index' to return one row a sample, .* of int64"):
        measured(Beside(), layers=["index"])


def test_sizes_that_vary_end_in_one_sentence_whose_advice_holds() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()),
        nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    labels = torch.arange(16) % 3
    small, large = torch.randn(16, 3, 8, 8), torch.randn(16, 3, 12, 12)
    batches = [(small, labels), (large, labels)]
    with pytest.raises(
        InputError, match=r"layer '0' .* found 288 in .* and 800 .*; pass pool=True"
    ):
        measured(model, batches, layers=["0", "1"])
    report = measured(model, batches, layers=["0", "1"], layer_groups=["nc1"], pool=True)
    with torch.no_grad():
        rows = torch.cat([model[0](images).mean((2, 3)) for images in (small, large)])
    wanted = ncscope.measure(rows, torch.cat([labels, labels]), groups=["nc1"])["nc1"]
    assert report.layers["0"]["nc1"] == pytest.approx(wanted, rel=1e-5)
    assert list(measured(model, batches, layers=[]).layers) == ["head input"]


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        block = [nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6))) for _ in range(2)]
        self.stage, self.head = nn.Sequential(*block), nn.Linear(6, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stage(x))


def test_names_of_wrappers_vanish_at_every_depth() -> None:
    plain = measured(Blocks(), layers=["stage.*", "stage.0.1"])
    model = Blocks()
    model.stage[0] = nn.DataParallel(model.stage[0])
    model.stage[1] = torch.compile(model.stage[1], backend="eager")
    model.stage = torch.optim.swa_utils.AveragedModel(model.stage)
    model.head = torch.compile(model.head, backend="eager")
    found = measured(model, layers=["stage.*", "stage.0.1"])
    assert list(found.layers) == list(plain.layers)
    assert found.model_record == plain.model_record
    with pytest.raises(InputError, match=r"did you mean .*'stage\.0'"):
        measured(model, layers=["stage.module.0"])


def test_the_head_is_found_again_when_it_is_replaced_or_grows() -> None:
    model = Net().eval()
    labels, history = LABELS, ncscope.History(unit="epoch")
    with torch.no_grad(), ncscope.watch(model, groups=GROUPS) as seen:
        for epoch, classes in enumerate([K, K, K + 3]):
            if epoch:
                torch.manual_seed(epoch)
                model.fc = nn.Linear(D, classes)
            for inputs, given in BATCHES:
                model(inputs)
                seen.labels(given)
            report = seen.report()
            assert numbers(report) == close(truth(model, model.fc.weight, model.fc.bias, labels))
            history.add(report, step=epoch)
    assert [entry.model_record.layers[-1].num_classes for entry in history] == [K, K, K + 3]


def test_another_head_of_the_same_model_is_found_again() -> None:
    class Tasks(Net):
        task = 0

        def forward(self, x: Tensor) -> Tensor:
            return self.heads[self.task](self.features(x))

    model = Tasks().eval()
    model.heads = nn.ModuleList([nn.Linear(D, K), nn.Linear(D, K)])
    with torch.no_grad(), ncscope.watch(model, groups=GROUPS) as seen:
        for task in (0, 1, 0):
            model.task = task
            for inputs, given in BATCHES:
                model(inputs)
                seen.labels(given)
            head = model.heads[task]
            assert numbers(seen.report()) == close(truth(model, head.weight, head.bias))


def test_a_head_that_is_replaced_within_a_report_is_refused_and_the_advice_holds() -> None:
    model = Net().eval()
    with torch.no_grad(), ncscope.watch(model, groups=GROUPS) as seen:
        model(INPUTS)
        seen.labels(LABELS)
        model.fc = nn.Linear(D, K)
        model(INPUTS)
        with pytest.raises(InputError, match="report before the head is replaced"):
            seen.labels(LABELS)
    model = Net().eval()
    with torch.no_grad(), ncscope.watch(model, groups=GROUPS) as seen:
        for _ in range(2):
            model(INPUTS)
            seen.labels(LABELS)
            report = seen.report()
            assert numbers(report) == close(truth(model, model.fc.weight, model.fc.bias))
            model.fc = nn.Linear(D, K)


def test_logits_that_another_layer_makes_in_the_end_are_refused() -> None:
    model = Net(lambda h, z: z if model.own else h[:, :K] * 2).eval()
    model.own = True
    with torch.no_grad(), ncscope.watch(model, groups=GROUPS) as seen:
        model(INPUTS)
        seen.labels(LABELS)
        model.own = False
        model(INPUTS)
        seen.labels(LABELS)
        with pytest.raises(InputError, match="found other logits in some"):
            seen.report()


def test_a_bare_linear_layer_is_watched() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, K)
    with torch.no_grad(), ncscope.watch(layer, groups=GROUPS) as seen:
        for inputs, labels in BATCHES:
            layer(inputs)
            seen.labels(labels)
    weight, bias = layer.weight.detach(), layer.bias.detach()
    wanted = numbers(ncscope.measure(INPUTS, LABELS, weight, bias, groups=GROUPS))
    assert numbers(seen.report()) == close(wanted)
    assert numbers(measured(layer)) == close(wanted)


def test_reports_after_the_block_and_again() -> None:
    model = Net().eval()
    with torch.no_grad(), ncscope.watch(model, groups=GROUPS) as seen:
        for inputs, labels in BATCHES:
            model(inputs)
            seen.labels(labels)
    first = seen.report()
    assert numbers(first) == close(truth(model, model.fc.weight, model.fc.bias))
    assert seen.report() is first
    with torch.no_grad(), seen:  # passes whose labels were forgotten are no reason for the old one
        model(INPUTS)
    with pytest.raises(InputError, match="and their labels, found none"):
        seen.report()
    hooks = [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert not hooks


@pytest.mark.parametrize("size", [1, 2, 3])
def test_last_batches_of_few_samples(size: int) -> None:
    for after in (AFTER["log-softmax"], AFTER["sigmoid"], lambda h, z: z / 3 + torch.arange(4.0)):
        model = Net(after)
        rows = 57 + size
        batches = [(INPUTS[:57], LABELS[:57]), (INPUTS[57:rows], LABELS[57:rows])]
        assert measured(model, batches).num_samples == rows
        assert watched(model, batches).num_samples == rows


@pytest.mark.parametrize(
    "after", [lambda z: z - z.amax(1, keepdim=True), lambda z: z - z.mean(1)[:, None]]
)
def test_a_shift_of_each_row_keeps_the_order(after: Callable) -> None:
    model = Net(lambda h, z: after(z))
    assert numbers(measured(model)) == close(truth(model, model.fc.weight, model.fc.bias))


@pytest.mark.parametrize("order", [1, -1])
def test_features_after_a_step_of_their_own_are_features(order: int) -> None:
    class Hidden(Net):
        def features(self, x: Tensor) -> Tensor:
            return self.embed(self.body(x)).tanh()

    model = Hidden(lambda h, z: (h, z)[::order])
    assert numbers(measured(model)) == close(truth(model, model.fc.weight, model.fc.bias))


def test_a_loss_of_each_sample_beside_the_logits_needs_the_name() -> None:
    model = Net(lambda h, z: (z.square().mean(1), z))
    with pytest.raises(InputError, match="pass head=\"fc\" if output '1' is the logits"):
        measured(model)
    assert numbers(measured(model, head="fc")) == close(
        truth(model, model.fc.weight, model.fc.bias)
    )


def test_every_pass_is_checked_not_the_last_alone() -> None:
    class Switching(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.features(x)
            one, other = self.fc(h), self.second(h)
            return torch.where(x[:, :1] > self.above, other, one)

    model = Switching().eval()
    model.second, model.above = nn.Linear(D, K), 1e9
    for bounds in ([1e9, -1e9, 1e9], [1e9, 1.0, 1e9]):
        for again in (False, True):  # the callbacks attach to every pass anew
            with torch.no_grad(), ncscope.watch(model, groups=GROUPS) as seen:
                for bound in bounds:
                    model.above = bound
                    if again:
                        seen.detach()
                        seen.attach()
                    model(INPUTS)
                    seen.labels(LABELS)
                with pytest.raises(InputError, match="found other logits in some"):
                    seen.report()


def test_a_head_that_is_replaced_between_attachments_is_refused() -> None:
    model = Net().eval()
    seen = ncscope.watch(model, groups=GROUPS)
    with torch.no_grad():
        for _ in range(2):
            with seen:
                model(INPUTS)
                seen.labels(LABELS)
        model.fc = nn.Linear(D, K)
        with pytest.raises(InputError, match="report before the head is replaced"), seen:
            pass


def test_a_watch_goes_on_after_an_error() -> None:
    model = Net().eval()
    seen = ncscope.watch(model, groups=GROUPS)

    def replacing() -> None:
        with seen:
            for _ in range(2):
                model(INPUTS)
                seen.labels(LABELS)
                model.fc = nn.Linear(D, K)

    with torch.no_grad():
        with pytest.raises(InputError, match="report before the head is replaced"):
            replacing()
        with seen:
            model(INPUTS)
            seen.labels(LABELS)
    assert numbers(seen.report()) == close(truth(model, model.fc.weight, model.fc.bias))


def test_a_matrix_that_is_not_used_for_all_samples_is_refused() -> None:
    class Both(Matrix):
        def forward(self, x: Tensor) -> Tensor:
            h = self.f(x)
            return torch.where(x[:, :1] > 2, h @ self.M, h @ self.M.roll(1, 1))

    with pytest.raises(InputError, match=r"found none|other logits in some"):
        measured(Both())


@pytest.mark.parametrize("reported", [False, True])
def test_a_head_that_grows_in_place_is_refused_within_a_report(reported: bool) -> None:
    model = Net().eval()
    with torch.no_grad(), ncscope.watch(model, groups=GROUPS) as seen:
        model(INPUTS)
        seen.labels(LABELS)
        if reported:
            seen.report()
        for name in ("weight", "bias"):
            old = getattr(model.fc, name)
            setattr(model.fc, name, nn.Parameter(torch.cat([old, old[:2] - 9])))
        if reported:
            model(INPUTS)
            seen.labels(LABELS)
            wanted = truth(model, model.fc.weight, model.fc.bias)
            assert numbers(seen.report()) == close(wanted)
        else:
            with pytest.raises(InputError, match="report before the head grows"):
                seen.report()


def test_a_learned_factor_enters_as_the_last_pass_had_it() -> None:
    model = Net(lambda h, z: z * model.factor).train()
    model.factor = nn.Parameter(torch.ones(()))
    with ncscope.watch(model, groups=["mse"], layers=[]) as seen:
        for factor in (1.0, 5.0):
            model.factor.data.fill_(factor)
            model(INPUTS)
            seen.labels(LABELS)
        report = seen.report()
    with torch.no_grad():
        errors = model(INPUTS) - functional.one_hot(LABELS, K)
    assert report["mse_loss"] == pytest.approx(float(errors.square().sum(1).mean() / 2), rel=1e-5)


def test_in_training_mode_other_outputs_are_a_warning() -> None:
    model = Net(lambda h, z: z.square() if model.training else z).train()
    with ncscope.watch(model, groups=GROUPS) as seen:
        model(INPUTS)
        seen.labels(LABELS)
    warnings = "".join(seen.report().warnings)
    assert "in training mode the model did not return the outputs of head 'fc'" in warnings


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_the_weight_norm_of_old_enters_with_its_present_weight() -> None:
    model = Net(head=nn.utils.weight_norm(nn.Linear(D, K))).eval()
    with ncscope.watch(model, groups=GROUPS) as seen:
        loss = functional.cross_entropy(model(INPUTS), LABELS)
        seen.labels(LABELS)
        loss.backward()
        torch.optim.SGD(model.fc.parameters(), lr=1.0).step()
    found = numbers(seen.report())
    with torch.no_grad():
        model(INPUTS)
    assert found == close(truth(model, model.fc.weight, model.fc.bias))


def test_a_report_does_no_step_of_spectral_normalisation() -> None:
    model = Net(head=parametrizations.spectral_norm(nn.Linear(D, K))).train()
    with ncscope.watch(model, groups=["nc3"]) as seen:
        model(INPUTS)
        seen.labels(LABELS)
        before = {name: value.clone() for name, value in model.named_buffers()}
        seen.report()
    assert before
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_packed_sequences_as_inputs() -> None:
    class Reads(Recurrent):
        def forward(self, rows: PackedSequence) -> Tensor:
            return self.head(self.lstm(rows)[1][0][-1])

    model = Reads()
    with torch.no_grad():
        batches = [(packed(model.embed(t), n), y) for (t, n), y in SEQUENCES]
    settings = {"layers": ["lstm"], "layer_groups": ["nc1"], "progress": False}
    report = ncscope.measure_model(model, batches, groups=["nc1"], **settings)
    plain = ncscope.measure_model(Recurrent(), SEQUENCES, groups=["nc1"], **settings)
    del settings["progress"]
    with torch.no_grad(), ncscope.watch(model.eval(), groups=["nc1"], **settings) as seen:
        for rows, labels in batches:
            model(rows)
            seen.labels(labels)
    for name in ("lstm", "head input"):
        for found in (report, seen.report()):
            assert found.layers[name]["nc1"] == pytest.approx(plain.layers[name]["nc1"], rel=1e-5)


class Parts(nn.Module):
    """A backbone, a head and an auxiliary head, which the loop calls."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone, self.head, self.aux = nn.Linear(6, D), nn.Linear(D, K), nn.Linear(D, 7)

    def features(self, x: Tensor) -> Tensor:
        return self.backbone(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x))


@pytest.mark.parametrize("order", [("head", "aux"), ("aux", "head")])
def test_of_two_heads_that_a_loop_calls_the_name_picks_one(order: tuple[str, str]) -> None:
    model = Parts().eval()

    def loop(**settings: Any) -> Any:
        with torch.no_grad(), ncscope.watch(model, groups=GROUPS, **settings) as seen:
            for inputs, labels in BATCHES:
                hidden = model.backbone(inputs)
                for name in order:
                    getattr(model, name)(hidden)
                seen.labels(labels)
        return seen.report()

    with pytest.raises(InputError, match="found 'aux' and 'head'") as error:
        loop()
    for name in ("head", "aux"):
        assert f'head="{name}"' in error.value.fix
        layer = getattr(model, name)
        assert numbers(loop(head=name)) == close(truth(model, layer.weight, layer.bias))


def test_an_extra_call_of_a_part_beside_the_model_changes_nothing() -> None:
    model = Parts().eval()
    with torch.no_grad(), ncscope.watch(model, groups=GROUPS) as seen:
        for inputs, labels in BATCHES:
            model(inputs)
            model.head(torch.randn(len(inputs), D))
            seen.labels(labels)
    assert numbers(seen.report()) == close(truth(model, model.head.weight, model.head.bias))


class Blocked(nn.Module):
    """Attention blocks under a mask of a name of its own; the head reads the first token."""

    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.layer, self.head, self.name = layer, nn.Linear(8, K), name


class Hiding(Blocked):
    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        return self.head(self.layer(x, src_key_padding_mask=key_padding_mask)[:, 0])


class Keeping(Blocked):
    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head(self.layer(x, src_key_padding_mask=attention_mask == 0)[:, 0])


@pytest.mark.parametrize("pool", [None, True])
@pytest.mark.parametrize("kind", [Hiding, Keeping])
def test_masks_by_position_and_of_both_meanings(kind: type, pool: bool | None) -> None:
    rows = torch.randn(N, 7, 8, generator=torch.Generator().manual_seed(3))
    kept = torch.arange(7) < LENGTHS[:, None]
    mask = ~kept if kind is Hiding else kept.long()
    model = kind("mask").eval()
    batches = [((rows, mask), LABELS)]
    settings = {"layers": ["layer"], "layer_groups": ["nc1"], "groups": ["nc1"], "pool": pool}
    report = ncscope.measure_model(model, batches, progress=False, **settings)
    with torch.no_grad():
        out = model.layer(rows, src_key_padding_mask=~kept)
    means = torch.stack([out[i, : LENGTHS[i]].mean(0) for i in range(N)])
    wanted = ncscope.measure(means, LABELS, groups=["nc1"])["nc1"]
    assert report.layers["layer"]["nc1"] == pytest.approx(wanted, rel=1e-4)


def test_the_mask_of_the_source_is_none_of_the_target() -> None:
    class Translates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Transformer(8, 2, 1, 1, 12, dropout=0.0, batch_first=True)
            self.head = nn.Linear(8, K)

        def forward(self, source: Tensor, target: Tensor, padding: Tensor) -> Tensor:
            return self.head(self.net(source, target, src_key_padding_mask=padding)[:, -1])

    rows = torch.randn(N, 7, 8, generator=torch.Generator().manual_seed(3))
    batches = [((rows, rows.flip(1), torch.arange(7) >= LENGTHS[:, None]), LABELS)]
    model = Translates()
    encoder, decoder = "net.encoder.layers.0", "net.decoder.layers.0"
    assert measured(model, batches, layers=[encoder]).layers[encoder].dim == 8
    with pytest.raises(InputError, match=r"layer 'net\.decoder.*no mask of its own.*pool=False"):
        measured(model, batches, layers=[decoder])
    report = measured(model, batches, layers=[decoder], pool=False, layer_groups=["nc1"])
    assert report.layers[decoder].dim == 7 * 8


class Generates(nn.Module):
    """The forward pass of nanoGPT: the last token alone, unless targets are given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.lm_head = nn.Embedding(10, D), nn.Linear(D, 10, bias=False)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Any]:
        x = self.embed(idx).cumsum(1)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        return logits, loss


def test_the_batches_of_nanogpt_get_the_form_that_works() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 10, (20, 9), generator=generator)
    shown, following = ids[:, :-1], ids[:, 1:]
    model = Generates()
    with pytest.raises(InputError, match="logits of one token a sample") as error:
        measured(model, [(shown, following)], layers=[])
    form = error.value.fix.partition("batches ")[2]
    batch = eval(form, {"X": shown, "Y": following})
    found = measured(model, [batch], layers=[])
    with torch.no_grad():
        rows = model.embed(shown).cumsum(1).flatten(0, 1)
    weight = model.lm_head.weight.detach()
    wanted = ncscope.measure(rows, following.flatten(), weight, groups=GROUPS)
    assert numbers(found) == close(numbers(wanted))
    marked = following.clone()
    marked[:, ::2] = -1
    batches = [{"idx": shown, "targets": marked, "labels": marked}]
    with pytest.raises(InputError, match=r"leave these samples out: ignore_index=-1$"):
        measured(model, batches, layers=[])
    found = measured(model, batches, layers=[], ignore_index=-1)
    kept = (marked != -1).flatten()
    some = ncscope.measure(rows[kept], marked.flatten()[kept], weight, groups=GROUPS)
    assert numbers(found) == close(numbers(some))


def test_a_language_model_that_is_shown_its_labels_by_position_is_refused() -> None:
    class Every(Generates):
        def forward(self, idx: Tensor) -> Tensor:
            return self.lm_head(self.embed(idx))

    ids = torch.randint(0, 10, (20, 9), generator=torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match="pass next_token=True"):
        measured(Every(), [(ids, ids)], layers=[])
    found = measured(Every(), [(ids, ids)], layers=[], next_token=True)
    assert found.num_samples == 20 * 8


def test_a_column_of_labels_is_taken_by_one_logit() -> None:
    model = Net(classes=1)
    labels = LABELS % 2
    report = measured(model, [(INPUTS, labels[:, None].float())])
    assert dict(report) == dict(measured(model, [(INPUTS, labels)]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["lora", "features", "outputs"])
def test_adapters_of_peft_are_the_head_before_and_after_they_are_merged(kind: str) -> None:
    peft = pytest.importorskip("peft")
    model = Net()
    if kind == "lora":
        options = {"r": 2, "init_lora_weights": False}
        config = peft.LoraConfig(target_modules=["fc"], **options)
    else:
        scaled = ["fc"] if kind == "features" else []
        config = peft.IA3Config(
            target_modules=["fc"], feedforward_modules=scaled, init_ia3_weights=False
        )
    adapted = peft.get_peft_model(model, config).eval()
    if kind != "lora":
        for name, parameter in adapted.named_parameters():
            if "ia3" in name:
                parameter.data.uniform_(0.2, 2)
    with_adapter = measured(adapted, layers=[])
    merged = adapted.merge_and_unload()
    assert numbers(with_adapter) == close(truth(merged, merged.fc.weight, merged.fc.bias))
    assert numbers(measured(merged, layers=[])) == close(numbers(with_adapter))


def test_a_hidden_layer_is_no_head_of_a_cosine_classifier() -> None:
    model = Net(head=Cosine(D, K))
    with pytest.raises(InputError, match="found a layer of 16 outputs, and 4 of the model"):
        measured(model, head="body.0")


def test_logits_with_batch_and_tokens_in_one_axis_get_the_form_that_works() -> None:
    class Flat(Generates):
        def forward(self, idx: Tensor) -> Tensor:
            return self.lm_head(self.embed(idx)).view(-1, 10)

    class Shaped(Flat):
        def forward(self, idx: Tensor) -> Tensor:
            return super().forward(idx).view(len(idx), -1, 10)  # as the advice says

    ids = torch.randint(0, 10, (20, 9), generator=torch.Generator().manual_seed(0))
    batches = [(ids, ids.roll(-1, 1))]
    with pytest.raises(
        InputError, match=r"found 180 rows, .*return logits\.view\(batch, tokens, -1\)"
    ):
        measured(Flat(), batches, layers=[])
    assert measured(Shaped(), batches, layers=[]).num_samples == 180


def test_labels_that_are_shifted_already_need_no_next_token() -> None:
    class Every(Generates):
        def forward(self, idx: Tensor) -> Tensor:
            return self.lm_head(self.embed(idx))

    ids = torch.randint(0, 10, (20, 9), generator=torch.Generator().manual_seed(0))
    batches = [(ids[:, :-1], ids[:, 1:])]
    with pytest.raises(InputError, match="leave next_token out"):
        measured(Every(), batches, layers=[], next_token=True)
    assert measured(Every(), batches, layers=[]).num_samples == 160


def test_a_name_inside_of_a_wrapper_is_suggested() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_model = Net()

        def forward(self, x: Tensor) -> Tensor:
            return self.base_model(x)

    with pytest.raises(InputError, match=r"did you mean 'base_model\.fc'\?"):
        measured(Wrapper(), head="fc")


def test_classes_that_a_reference_lacks_are_a_warning() -> None:
    model, few = Net(), LABELS < 2
    reference = measured(model, [(INPUTS[few], LABELS[few])])
    report = measured(model, reference=reference)
    said = "the reference has no samples of classes 2, 3: ncc_accuracy and nc4_disagreement"
    assert any(warning.startswith(said) for warning in report.warnings)
    features = model.features(INPUTS).detach()
    train = ncscope.measure(features[few], LABELS[few], num_classes=K, groups=["nc1"])
    found = ncscope.measure(features, LABELS, reference=train)
    assert any(warning.startswith(said) for warning in found.warnings)
    assert not measured(model, reference=measured(model)).warnings[0].startswith("the reference")


def test_labels_beside_one_row_are_two() -> None:
    features, row = torch.randn(40, 3), torch.ones(1, 3)
    labels = torch.arange(40) % 2
    for given in (labels + 1, 3 + 4 * labels, 2 * labels):
        with pytest.raises(InputError, match="labels 0 and 1 beside a weight of one row") as error:
            ncscope.measure(features, given, row, groups=["nc1"])
        code = error.value.fix.partition("= ")[2]
        classes = eval(code, {"np": np, "labels": given})
        found = ncscope.measure(features, classes, row, groups=["nc3"])
        assert dict(found) == dict(ncscope.measure(features, labels, row, groups=["nc3"]))
    notes = ncscope.measure(features, labels, row, groups=["mse", "nc1"]).notes
    assert "left out, because the classifier has one logit: mse" in notes


class Remembers(Net):
    """Adds the mean features of its last batch, also in evaluation mode."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind in ("buffer", "in place"):
            self.register_buffer("memory", torch.zeros(D))
        elif kind == "plain tensor":
            self.memory = torch.zeros(D)
        else:
            self.memory, self.memories = None, {"last": 0.0}

    def forward(self, x: Tensor) -> Tensor:
        last = self.memories["last"] if self.kind == "dictionary" else self.memory
        h = self.features(x) + (0 if last is None else last)
        mean = h.detach().mean(0)
        if self.kind == "dictionary":
            self.memories["last"] = mean
        elif self.kind in ("in place", "plain tensor"):
            self.memory.copy_(mean)
        else:
            self.memory = mean
        return self.fc(h)


@pytest.mark.parametrize("kind", ["buffer", "in place", "plain tensor", "attribute", "dictionary"])
@pytest.mark.parametrize("run", [measured, watched])
def test_a_model_with_a_memory_starts_from_its_own(kind: str, run: Callable) -> None:
    def run_alone(model: nn.Module) -> tuple[Tensor, Tensor]:
        rows = []
        hook = model.fc.register_forward_pre_hook(lambda _, args: rows.append(args[0]))
        with torch.no_grad():
            logits = [model.eval()(inputs) for inputs, _ in BATCHES]
        hook.remove()
        return torch.cat(rows), logits[-1]

    features, _ = run_alone(Remembers(kind))
    model = Remembers(kind)
    weight, bias = model.fc.weight.detach(), model.fc.bias.detach()
    wanted = numbers(ncscope.measure(features, LABELS, weight, bias, groups=GROUPS))
    assert numbers(run(model, layers=["embed"])) == close(wanted)
    if run is measured:  # leaves the model as it was
        assert torch.equal(run_alone(model)[1], run_alone(Remembers(kind))[1])


def test_a_cache_and_the_length_that_it_is_valid_for_stay_one() -> None:
    """Rotary embeddings keep both; one without the other would fail in the user's next pass."""

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.fc = nn.Linear(D, D), nn.Linear(D, K)
            self.length, self.angles = None, None

        def forward(self, x: Tensor) -> Tensor:
            if self.length != x.shape[1]:
                self.length, self.angles = x.shape[1], torch.linspace(0, 1, x.shape[1])
            return self.fc(self.body(x) * self.angles.cos())

    model, x, labels = Cached(), torch.randn(30, D), torch.arange(30) % K
    expected = model(x)
    model.length, model.angles = None, None
    ncscope.measure_model(model, [(x, labels)], layers=[], progress=False)
    assert torch.equal(model(x), expected)


def test_the_state_of_a_recurrent_model_is_the_users_own() -> None:
    class Stateful(nn.Module):
        """An LSTM that goes on from its last state, which has a row a sample."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.lstm, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, K)
            self.state = None

        def forward(self, x: Tensor) -> Tensor:
            out, self.state = self.lstm(x, self.state)
            return self.head(out[:, -1])

    rows = torch.randn(N, 7, 8, generator=torch.Generator().manual_seed(3))
    batches = list(zip(rows.split(20), LABELS.split(20), strict=True))
    alone, model, read = Stateful(), Stateful(), []
    alone.head.register_forward_pre_hook(lambda _, args: read.append(args[0]))
    with torch.no_grad():
        for inputs, _ in batches:
            alone(inputs)
    head = model.head.weight.detach(), model.head.bias.detach()
    wanted = numbers(ncscope.measure(torch.cat(read), LABELS, *head, groups=GROUPS))
    assert numbers(measured(model, batches, layers=["lstm"])) == close(wanted)
    assert model.state is None
    assert numbers(watched(model, batches, layers=["lstm"])) == close(wanted)


@pytest.mark.parametrize("step", ["scale", "softmax", "sigmoid"])
@pytest.mark.parametrize("run", [measured, watched])
def test_logits_that_are_changed_in_place(step: str, run: Callable) -> None:
    def change(z: Tensor) -> Tensor:
        if step == "scale":
            return z.div_(3).add_(1)
        return z.sigmoid_() if step == "sigmoid" else z.copy_(z.softmax(1))

    model = Net(lambda h, z: change(z), classes=1 if step == "sigmoid" else K)
    labels, weight, bias = LABELS, model.fc.weight, model.fc.bias
    if step == "scale":
        weight, bias = weight / 3, bias / 3 + 1
    if step == "sigmoid":
        labels, weight, bias = LABELS % 2, torch.cat([-weight, weight]), torch.cat([-bias, bias])
    batches = list(zip(INPUTS.split(25), labels.split(25), strict=True))
    assert numbers(run(model, batches)) == close(truth(model, weight, bias, labels))


def test_a_matrix_under_two_names_is_one() -> None:
    model = Matrix()
    model.embedding = nn.Embedding(K, D)
    model.M = nn.Parameter(model.M)
    model.of_tokens = model.M
    assert numbers(measured(model, layers=[])) == close(truth(model, model.M.T, None))


def test_logits_that_are_cut_in_some_batches_are_refused() -> None:
    model = Net(lambda h, z: z.clamp(-bound, bound))
    with torch.no_grad():
        largest = [float(model.fc(model.features(x)).abs().max()) for x, _ in BATCHES]
    bound = min(largest)
    batches = [BATCHES[at] for at in sorted(range(3), key=largest.__getitem__)]
    said = r"found other logits in some.* cuts or mixes logits, collect the features"
    with pytest.raises(InputError, match=said):
        measured(model, batches)


@pytest.mark.filterwarnings("ignore")
def test_scripted_parts_are_no_layers_and_a_scripted_model_is_refused() -> None:
    model = Net()
    wanted = close(truth(model, model.fc.weight, model.fc.bias))
    whole = torch.jit.script(nn.Sequential(nn.Linear(6, D), nn.Linear(D, K)))
    for run in (measured, watched):
        with pytest.raises(InputError, match="pass the model from which"):
            run(whole)
        model.body = torch.jit.script(Net().body)
        assert numbers(run(model, layers=["embed"])) == wanted


def test_a_layer_or_output_of_another_type_is_refused_with_its_type() -> None:
    model = Net(head=nn.Linear(D, K, dtype=torch.cfloat))
    model.embed = nn.Sequential(nn.Linear(16, D), Complex())
    with pytest.raises(InputError, match="found Tensor with 25x4 of complex64"):
        measured(model)
    model.after = lambda h, z: model.other(h.abs())
    model.other = nn.Linear(D, K)
    with pytest.raises(InputError, match=r"'embed' to return one row .*\(25, 8\) of complex64"):
        measured(model, layers=["embed"])


class Complex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.cfloat)


def test_a_backbone_that_ends_in_a_relu_is_no_classifier() -> None:
    """Its last linear layer looks like a head whose last step is the ReLU."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
    with pytest.raises(
        InputError,
        match=r"found one that ends in the ReLU of the 16 outputs of '2', and labels of 4",
    ):
        ncscope.measure_model(body, BATCHES, progress=False)
    assert ncscope.measure_model(body, BATCHES, head="2", progress=False).num_classes == 16
    classifier = nn.Sequential(*body, nn.Linear(16, K), nn.ReLU())
    nn.init.constant_(classifier[4].bias, 5.0)  # no row is cut
    assert ncscope.measure_model(classifier, BATCHES, progress=False).num_classes == K
