"""Passes that somebody else runs measure what a pass over the loader measures."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import ncscope
from ncscope.errors import InputError
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.measurement.watching import Watch
from ncscope.models.networks.residual import ResidualNet

GENERATOR = torch.Generator().manual_seed(0)
LABELS = torch.arange(50) % 4
INPUTS = torch.randn(50, 6, generator=GENERATOR) + 2 * torch.eye(6)[LABELS]
LOADER = list(zip(INPUTS.split(16), LABELS.split(16), strict=True))
MODES = (torch.inference_mode, torch.no_grad, torch.enable_grad, torch.inference_mode)
HEAD = Options(layers=(), groups=("nc1", "nc3"))


def network() -> ResidualNet:
    torch.manual_seed(0)
    return ResidualNet(in_features=6, width=8, depth=2, num_classes=4)


class MaskedMean(nn.Module):
    """A classifier of sequences: layers on every token, the head on the average of those kept."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.tokens = nn.Embedding(9, 5), nn.Linear(5, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        kept = attention_mask[:, :, None].float()
        return self.head((self.tokens(self.embed(ids)) * kept).sum(1) / kept.sum(1))


def test_what_is_watched_is_what_is_probed():
    model = network().eval()
    expected = measure_layers(model, LOADER)
    with Watch(model) as seen:
        for mode, (inputs, labels) in zip(MODES, LOADER, strict=True):
            with mode():
                model(inputs)
                seen.labels(labels.tolist())
        probed = seen.measure()
    assert probed.record == expected.record
    last = [list(found.statistics.values())[-1].means for found in (probed, expected)]
    torch.testing.assert_close(*last, rtol=0, atol=0)


def test_nothing_is_computed_in_the_precision_of_the_passes():
    model, options = network().eval(), Options(groups=("nc4",), layer_groups=("nc4",))
    inputs, labels = torch.randn(4000, 6, generator=GENERATOR), torch.arange(4000) % 4
    expected = measure_layers(model, [(inputs, labels)], options)
    with Watch(model, options) as seen:
        model(inputs)
        with torch.autocast("cpu", torch.bfloat16):
            seen.labels(labels)
            assert seen.measure().record == expected.record


def test_the_first_pass_is_read_with_its_mask():
    model, options = MaskedMean().eval(), Options(layers=["tokens"], pool=True)
    ids = torch.randint(9, (12, 4), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(4) < torch.arange(12)[:, None] % 4 + 1).long()
    labels = torch.arange(12) % 3
    expected = measure_layers(model, [({"ids": ids, "attention_mask": mask}, labels)], options)
    with Watch(model, options) as seen:
        model(ids, attention_mask=mask)  # one by position, one by name
        seen.labels(labels)
        probed = seen.measure()
    assert probed.record == expected.record
    plain, pooled = probed.record.layers[0].metrics, probed.record.layers[-1].metrics
    assert plain["pfc1"] == pytest.approx(pooled["pfc1"])  # the head's input is the same average


class SequenceFirst(nn.Module):
    """A block with shared weights on T x B x d, run again in the backward pass if checkpointed."""

    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.block = nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh()))
        self.head, self.checkpointed = nn.Linear(6, 4), checkpointed

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        for _ in range(2):
            x = (
                checkpoint(self.block, x, use_reentrant=False)
                if self.checkpointed
                else self.block(x)
            )
        return self.head(x[-1])


@pytest.mark.parametrize("checkpointed", [False, True])
def test_sequence_first_layers_of_as_many_tokens_as_samples(checkpointed: bool):
    inputs, labels = torch.randn(8, 8, 6, generator=GENERATOR), torch.arange(8) % 4
    options = Options(layers=["block"], groups=("nc1",))
    expected = measure_layers(SequenceFirst(), [(inputs, labels)], options)
    model = SequenceFirst(checkpointed)
    with Watch(model, options) as seen:
        model(inputs).sum().backward()
        seen.labels(labels)
        probed = seen.measure()
    assert [layer.layer for layer in probed.record.layers] == ["block", "block#2", "head input"]
    assert probed.record == expected.record


def test_passes_without_labels_do_not_count():
    model = network().eval()
    with Watch(model, HEAD) as seen:
        for inputs, labels in LOADER:
            model(inputs)
            model(inputs + 100)
            model(inputs)
            seen.labels(labels)
            model(inputs)
        assert seen.measure().record == measure_layers(model, LOADER, HEAD).record


def test_every_result_is_of_what_came_since_the_last():
    model = network().eval()
    with Watch(model, HEAD) as seen:
        for count in (1, 3):
            for inputs, labels in LOADER[:count]:
                model(inputs)
                seen.labels(labels)
            assert seen.measure().record == measure_layers(model, LOADER[:count], HEAD).record
        with pytest.raises(InputError, match=r"expected forward passes .* found none"):
            seen.measure()


@pytest.mark.usefixtures("unchecked_signatures")
def test_labels_belong_to_one_pass():
    model = network()
    with Watch(model, HEAD) as seen:
        with pytest.raises(InputError, match="found none; call the watched model itself"):
            seen.labels(LABELS)
        model(INPUTS)
        with pytest.raises(InputError, match="one label a sample"):
            seen.labels(LABELS[:3])
        with pytest.raises(
            InputError, match="names of classes that are known, found 'cat'; pass class_names"
        ):
            seen.labels(["cat"] * len(LABELS))
        with pytest.raises(InputError, match=r"found label -1 at row 0, one of 13 outside"):
            seen.labels(LABELS - 1)
        seen.labels(LABELS)
        with pytest.raises(InputError, match="found the labels of that pass twice"):
            seen.labels(LABELS)


class Counter(nn.Module):
    """Counts its calls in a buffer, in evaluation mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, rows: Tensor) -> Tensor:
        self.calls += 1
        return rows


def trained(watched: bool) -> tuple[nn.Module, float | None]:
    """Three steps with dropout, batch norm and a moving head, watched or not."""
    torch.manual_seed(0)
    body = (nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), Counter())
    model = nn.Sequential(*body, nn.Linear(8, 4))
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    seen = Watch(model, HEAD)
    if watched:
        seen.attach()
    for inputs, labels in LOADER:
        nn.functional.cross_entropy(model(inputs), labels).backward()
        if watched:
            seen.labels(labels)
        optimiser.step()
        optimiser.zero_grad()
    seen.detach()
    found = seen.measure().record.layers[-1].metrics["nc3_self_duality"] if watched else None
    return model, found


def test_training_goes_as_if_nobody_watched():
    alone, _ = trained(watched=False)
    model, _ = trained(watched=True)
    torch.testing.assert_close(model.state_dict(), alone.state_dict(), rtol=0, atol=0)
    assert all(module.training for module in model.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_the_head_is_taken_as_it_is_when_asked_for():
    model = network().eval()
    with Watch(model, HEAD) as seen:
        for inputs, labels in LOADER:
            model(inputs)
            seen.labels(labels)
        with torch.no_grad():
            model.classifier.weight.normal_()
        probed = seen.measure()
    assert probed.record == measure_layers(model, LOADER, HEAD).record


class Apart(nn.Module):
    """A backbone and a head that only the loop joins; the backbone takes a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = network().double(), nn.Linear(4, 3).double()
        self.backbone.classifier = nn.Identity()
        self.head = nn.Linear(8, 4).double()

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.backbone(rows))


def test_parts_are_measured_as_the_whole():
    model = Apart().eval()
    loader = [(inputs.double(), labels) for inputs, labels in LOADER]
    expected = measure_layers(model, loader)
    assert len(expected.record.layers) == 2
    with Watch(model) as seen:
        for number, (inputs, labels) in enumerate(loader):
            model.head(model.backbone(inputs + 100))  # without labels
            model.head(model.backbone(inputs))
            seen.labels(labels)
            if number == 1:
                seen.detach()
                model.head(model.backbone(inputs))
                seen.attach()
        assert seen.calls_model is False
        probed = seen.measure()
    with Watch(model) as seen:
        model.head(model.backbone(loader[0][0]))
    seen.labels(loader[0][1])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert probed.record == expected.record


@pytest.mark.parametrize("checkpointed", [False, True])
def test_parts_in_training_with_weights_that_move(checkpointed: bool):
    torch.manual_seed(0)
    block, head = SequenceFirst(checkpointed).block, nn.Linear(6, 4)
    model = nn.ModuleDict({"block": block, "head": head})
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    kept = []
    with Watch(model, Options(layers=["block"], groups=("nc1",))) as seen:
        for inputs, labels in LOADER:
            rows = inputs.clone().requires_grad_()
            hidden = checkpoint(block, rows, use_reentrant=True) if checkpointed else block(rows)
            kept.append((hidden.detach(), labels))
            nn.functional.cross_entropy(head(hidden), labels).backward()
            optimiser.step()
            optimiser.zero_grad()
            seen.labels(labels)
        (layer,) = seen.measure().record.layers
    expected = ncscope.measure(*map(torch.cat, zip(*kept, strict=True)), groups=("nc1",))
    assert (layer.layer, layer.num_samples) == ("block", 50)
    assert layer.metrics["nc1"] == pytest.approx(expected["nc1"], rel=1e-6)


def test_a_model_that_returns_features_for_a_head_outside_is_no_whole():
    class Embedding(Apart):
        def forward(self, rows: Tensor) -> Tensor:
            return self.backbone(rows)

    model, whole = Embedding().eval(), Apart().eval()
    whole.load_state_dict(model.state_dict())
    loader = [(inputs.double(), labels) for inputs, labels in LOADER]
    with Watch(model) as seen:
        for inputs, labels in loader:
            model.head(model(inputs))
            seen.labels(labels)
        assert seen.measure().record == measure_layers(whole, loader).record


@pytest.mark.usefixtures("unchecked_signatures")
def test_an_error_in_a_hook_waits_for_the_labels():
    model = MaskedMean()
    with Watch(model, Options(layers=["embed"])) as seen:
        ids = torch.randint(9, (12, 4))
        out = [model(ids, attention_mask=torch.ones(12, 4)), model.head(torch.randn(12, 5))]
        out += [model(ids, attention_mask=torch.ones(12, 4)) for _ in range(2)]
        assert all(len(each) == 12 for each in out)
    two_heads = nn.ModuleDict({"one": nn.Linear(4, 3), "both": nn.Identity()})
    with Watch(two_heads) as seen:
        two_heads["both"](two_heads["one"](torch.randn(6, 4).reshape(2, 3, 4)))
        for _ in range(2):
            with pytest.raises(InputError, match=r"one vector a sample .* 'one' on tokens"):
                seen.labels(torch.zeros(2))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in two_heads.modules())


class InPlace(nn.Module):
    """Scales its input in place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(6, 4)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(rows.div_(2))


def test_inputs_that_the_model_changes_are_changed_once():
    model, inputs = InPlace(), INPUTS.clone()
    with Watch(model, HEAD), torch.no_grad():
        out = model(inputs)
    assert torch.equal(inputs, INPUTS / 2)
    assert torch.equal(out, model.head(inputs))


@pytest.mark.parametrize("part", ["model", "child"])
def test_a_compiled_model_is_measured(part: str):
    torch.manual_seed(0)
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(2)))
    plain = nn.Sequential()
    plain.blocks, plain.head = blocks, nn.Linear(6, 4)
    options = Options(layers=["blocks.*"])
    expected = measure_layers(plain, LOADER, options)
    model: nn.Module = plain
    if part == "model":
        model = torch.compile(plain, backend="eager")
    else:
        plain.blocks.compile(backend="eager")
    model(INPUTS)  # compiled before anybody watches
    with Watch(model, options) as seen:
        for inputs, labels in LOADER:
            model(inputs)
            seen.labels(labels)
        assert seen.measure().record == expected.record
