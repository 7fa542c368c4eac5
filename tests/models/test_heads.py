"""Heads are found by their output, whatever they are called, made of or wrapped in."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from ncscope.errors import InputError
from ncscope.models.heads import find_head
from ncscope.models.networks.residual import ResidualNet


class Wrapped(nn.Module):
    """A linear classifier whose output is handed on by a function of the test's choice."""

    def __init__(self, after, head: nn.Module | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
        self.head = head or nn.Linear(5, 3)
        self.after = after

    def forward(self, x: Tensor):
        return self.after(self.head(self.body(x)))


class Cosine(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        unit = nn.functional.normalize
        return nn.functional.linear(unit(x, dim=1), unit(self.weight, dim=1))


class OwnLinear(nn.Module):
    """Not an ``nn.Linear``, but acts like one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 5))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class Delegating(nn.Module):
    """Has a ``weight`` of its own that is its inner layer's, like an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(5, 3)

    @property
    def weight(self) -> Tensor:
        return self.base.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x)


@dataclass
class Output:
    loss: None
    logits: Tensor


def batch(rows: int = 7) -> Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(1))


def check_head(model: nn.Module, x: Tensor, expected: str, **options) -> None:
    """The head has the expected name, and its features give its outputs to 1e-5."""
    seen = []
    head = find_head(model, x, **options)
    assert head.name == expected
    assert head.module is model.get_submodule(expected)
    hook = head.module.register_forward_hook(lambda _, args, out: seen.append((args[0], out)))
    model.eval()(x)
    hook.remove()
    features, outputs = (tensor.detach().flatten(1) for tensor in seen[0])
    product = features @ head.weight.T + (0 if head.bias is None else head.bias)
    torch.testing.assert_close(product, outputs, rtol=0, atol=1e-5 * float(outputs.abs().max()))
    assert outputs.abs().max() > 0.01
    assert not head.weight.requires_grad


@pytest.mark.parametrize(
    "after",
    [
        lambda y: y,
        lambda y: (y, y.sum()),
        lambda y: [None, y],
        lambda y: {"loss": y.sum(), "logits": y},
        lambda y: Output(None, y),
        lambda y: y.clone().double(),
        lambda y: y[:, :, None, None],
    ],
    ids=["tensor", "tuple", "list", "dict", "object", "cast", "singleton dimensions"],
)
def test_whatever_the_model_returns(after) -> None:
    check_head(Wrapped(after), batch(), "head")


def l1_pruned() -> nn.Module:
    layer = nn.Linear(5, 3)
    prune.l1_unstructured(layer, "weight", amount=0.4)
    return layer


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(5, 3, bias=False),
        l1_pruned,
        lambda: parametrizations.weight_norm(nn.Linear(5, 3)),
        lambda: parametrizations.spectral_norm(nn.Linear(5, 3)),
        lambda: parametrizations.orthogonal(nn.Linear(5, 3)),
        OwnLinear,
    ],
    ids=["no bias", "pruned", "weight norm", "spectral norm", "orthogonal", "own class"],
)
def test_whatever_the_head_is_made_of(make) -> None:
    check_head(Wrapped(lambda y: y, make()), batch(), "head")


def test_pruned_weight_is_the_one_used() -> None:
    head = find_head(Wrapped(lambda y: y, l1_pruned()), batch())
    assert int((head.weight == 0).sum()) == 6


def test_innermost_module_is_the_head() -> None:
    check_head(Wrapped(lambda y: y, Delegating()), batch(), "head.base")


def test_model_may_be_its_own_head() -> None:
    check_head(nn.Linear(6, 3), batch(), "")


def test_sequential_and_residual_net() -> None:
    check_head(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), batch(), "2")
    check_head(ResidualNet(6, 5, 2, 3), batch(), "classifier")


@pytest.mark.parametrize("kernel", [1, 4])
def test_convolution_onto_one_pixel(kernel: int) -> None:
    pool = nn.AdaptiveAvgPool2d(kernel)
    model = nn.Sequential(nn.Conv2d(2, 5, 3), pool, nn.Conv2d(5, 3, kernel), nn.Flatten())
    check_head(model, torch.randn(4, 2, 9, 9), "2")


def test_dropout_and_batch_norm_before_the_head() -> None:
    head = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 3))
    check_head(Wrapped(lambda y: y, head).train(), batch(), "head.2")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions(dtype: torch.dtype) -> None:
    model = Wrapped(lambda y: y).to(dtype)
    assert find_head(model, batch().to(dtype)).weight.dtype == dtype


def test_autocast_does_not_reach_the_trace() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check = find_head(Wrapped(lambda y: y), batch())
    assert check.gives_logits


def test_weight_is_a_copy() -> None:
    model = Wrapped(lambda y: y)
    head = find_head(model, batch())
    before = head.weight.clone()
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    assert torch.equal(head.weight, before)
    assert head.bias is not None
    assert head.bias.abs().sum() > 0


def test_inputs_as_mapping_and_tuple() -> None:
    assert find_head(Wrapped(lambda y: y), {"x": batch()}).name == "head"
    assert find_head(Wrapped(lambda y: y), (batch(),)).name == "head"


def test_named_head_that_gives_the_logits() -> None:
    head = find_head(Wrapped(lambda y: y), batch(), "head")
    assert head.gives_logits


@pytest.mark.parametrize("name", [None, "head"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_scale_of_the_logits_is_in_the_weight(name: str | None, in_place: bool) -> None:
    model = Wrapped((lambda y: y.mul_(2)) if in_place else (lambda y: 2 * y))
    head = find_head(model, batch(), name)
    torch.testing.assert_close(head.weight, 2 * model.head.weight.detach())
    torch.testing.assert_close(head.bias, 2 * model.head.bias.detach())
    assert head.gives_logits
    assert head.notes == (
        "head: the model returns the outputs of 'head' times 2, included in its weight and bias",
    )


def test_inplace_change_of_the_output_is_not_mistaken_for_the_logits() -> None:
    model = Wrapped(lambda y: y.relu_())
    with torch.no_grad():
        model.head.bias -= 100  # a row of zeros has lost its order
    with pytest.raises(InputError, match="found none: neither a layer"):
        find_head(model, batch())
    with torch.no_grad():
        model.head.bias += 200
        model.head.bias[0] -= 200
    assert find_head(model, batch()).last_step.kind == "ReLU"


def test_cosine_head_is_refused() -> None:
    with pytest.raises(InputError, match=r"'head' equal to features @ weight\.T.*cosine"):
        find_head(Wrapped(lambda y: y, Cosine(5, 3)), batch())


def test_a_named_head_may_be_masked_with_infinity() -> None:
    hidden = torch.tensor([0.0, -torch.inf, 0.0])
    model = Wrapped(lambda y: y + hidden)
    head = find_head(model, batch(), "head")
    assert not head.gives_logits
    with pytest.raises(InputError, match=r"finite logits, .*pass head=... if the model masks"):
        find_head(model, batch())
    for broken in (hidden * torch.inf, -hidden):
        with pytest.raises(InputError, match="finite logits"):
            find_head(Wrapped(lambda y, broken=broken: y + broken), batch(), "head")


def test_a_linear_head_of_a_large_common_offset_is_no_other() -> None:
    torch.manual_seed(0)
    head = nn.Linear(5, 3)
    with torch.no_grad():
        head.bias.copy_(-1e5 * head.weight.sum(1))
    features = torch.randn(8, 5) + 1e5
    gap = (head(features) - head.double()(features.double())).abs().max()
    head.float()
    assert gap > 1e-4 * head(features).abs().max()
    assert find_head(nn.Sequential(nn.Identity(), head), features).name == "1"
    scaled = Wrapped(lambda y: y, Cosine(5, 3))
    scaled.body = nn.Identity()
    with pytest.raises(InputError, match="cosine"):
        find_head(scaled, features)


class TwoHeads(Wrapped):
    def __init__(self, after, zero: bool = False) -> None:
        super().__init__(after)
        self.head_dist = nn.Linear(5, 3)
        if zero:
            for parameter in (*self.head.parameters(), *self.head_dist.parameters()):
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        return self.after(self.head(h), self.head_dist(h))


def test_distilled_average_is_explained() -> None:
    model = TwoHeads(lambda a, b: (a + b) / 2)
    with pytest.raises(InputError, match="average of 'head' and 'head_dist', as in a distilled"):
        find_head(model, batch())
    check_head(model, batch(), "head_dist", name="head_dist")


def test_two_candidates_are_not_guessed_between() -> None:
    with pytest.raises(InputError, match=r"one layer .* found 'head' and 'head_dist'"):
        find_head(TwoHeads(lambda a, b: (a + b) / 2, zero=True), batch())


def test_head_of_several_is_told_apart_by_its_output() -> None:
    check_head(TwoHeads(lambda a, b: b), batch(), "head_dist")


class TwoViews(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        self.head(self.body(-x))
        return self.head(self.body(x))


@pytest.mark.parametrize("name", [None, "head"])
def test_head_that_runs_twice(name: str | None) -> None:
    with pytest.raises(InputError, match="'head' to run once in a forward pass, found 2 calls"):
        find_head(TwoViews(lambda y: y), batch(), name)


def test_unknown_name_names_near_matches() -> None:
    with pytest.raises(InputError, match="'haed'; did you mean 'head'"):
        find_head(Wrapped(lambda y: y), batch(), "haed")


@pytest.mark.parametrize("name", ["body.1", "body"])
def test_name_of_no_linear_map(name: str) -> None:
    with pytest.raises(InputError, match=f"head '{name}' equal to features @ weight"):
        find_head(Wrapped(lambda y: y), batch(), name)


def test_name_of_a_container_is_refused_and_the_advice_finds_the_head() -> None:
    model = Wrapped(lambda y: y, nn.Sequential(nn.ReLU(), nn.Linear(5, 3)))
    with pytest.raises(InputError, match="if another layer is the head, leave head out"):
        find_head(model, batch(), "head")
    check_head(model, batch(), "head.1")


def test_pooling_after_the_classifier_is_explained() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(InputError, match="pooled before and not after it"):
        find_head(model, torch.randn(4, 2, 5, 5))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_scripted_model_is_explained() -> None:
    model = torch.jit.trace(nn.Sequential(nn.Linear(6, 3)), batch(), check_trace=False)
    with pytest.raises(InputError, match="not a scripted one"):
        find_head(model, batch())


def test_nonfinite_logits() -> None:
    x = batch()
    x[2, 0] = torch.nan
    with pytest.raises(InputError, match="NaN or infinity in 1 of 7 rows"):
        find_head(Wrapped(lambda y: y), x)


def test_bias_of_another_shape() -> None:
    head = nn.Linear(5, 3)
    head.bias = nn.Parameter(torch.zeros(1))
    with pytest.raises(InputError, match=r"bias of shape \(1,\)"):
        find_head(Wrapped(lambda y: y, head), batch())


def test_no_hook_is_left_even_after_an_error() -> None:
    for model in (Wrapped(lambda y: y), Wrapped(lambda y: None)):
        try:
            find_head(model, batch())
        except InputError as error:
            assert "an output with logits" in str(error)  # noqa: PT017
        assert not any(module._forward_hooks for module in model.modules())
