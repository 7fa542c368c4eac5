"""What users do on a GPU gives the values of the CPU, and leaves the device as it was."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ncscope
from ncscope import losses, transfer
from ncscope.integrations.torchmetrics import NeuralCollapse
from ncscope.metrics.names import GROUPS
from ncscope.metrics.ood import OodScorer

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
K = 4
EACH = [group for group in GROUPS if group != "ood"]


def assert_close(found: Any, wanted: Any, rel: float, zero: float) -> None:
    """Fail with every value that is not as on the CPU, or not there."""
    assert list(found) == list(wanted)
    far = [
        f"{key}: {found[key]} on the device, {value} on the CPU"
        for key, value in wanted.items()
        if found[key] != pytest.approx(value, rel=rel, abs=zero, nan_ok=True)
    ]
    assert not far, "\n" + "\n".join(far)


@pytest.fixture(autouse=True)
def float32_products() -> Iterator[None]:
    """Convolutions in float32 and not in TF32, so that the passes agree with the CPU's."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def rows(dim: int = 12, count: int = 96, seed: int = 0) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % K
    return torch.randn(count, dim, generator=draws) + 2 * torch.eye(K, dim)[labels], labels


def images(size: int = 32) -> TensorDataset:
    features, labels = rows(3 * size * size, 48)
    return TensorDataset(features.view(-1, 3, size, size), labels)


def resnet18() -> nn.Module:
    from torchvision.models import resnet18

    return resnet18(num_classes=K)


def vit() -> nn.Module:
    timm = pytest.importorskip("timm")
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}
    return timm.create_model("vit_tiny_patch16_224", num_classes=K, **sizes)


def convnext() -> nn.Module:
    timm = pytest.importorskip("timm")
    return timm.create_model("convnext_atto", num_classes=K, depths=(1, 1, 1, 1))


def deit_of_transformers() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, num_labels=K,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": resnet18,
    "vit": vit,
    "convnext": convnext,
    "transformers": deit_of_transformers,
}


def measured(model: nn.Module, **options: Any) -> ncscope.ModelReport:
    inputs, labels = images().tensors
    data = TensorDataset(inputs.to(next(model.parameters()).dtype), labels)
    loader = DataLoader(data, 16, pin_memory=options.pop("pin", False))
    return ncscope.measure_model(model, loader, progress=False, **options)


def seeded(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().eval()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_measures_as_on_the_cpu(name: str) -> None:
    wanted = measured(seeded(name).double())
    before = torch.cuda.get_rng_state()
    found = measured(seeded(name).double().to(CUDA), pin=True)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert_close(found, wanted, rel=1e-6, zero=1e-8)
    assert list(found.layers) == list(wanted.layers)
    assert found.notes == wanted.notes


@pytest.mark.parametrize("name", ["resnet18", "vit"])
@pytest.mark.parametrize(
    "way", ["float32", "channels_last", "compiled", "bfloat16", "float16", "autocast"]
)
def test_a_model_measures_in_each_way_that_it_is_run(name: str, way: str) -> None:
    wanted = measured(seeded(name))
    model = seeded(name).to(CUDA)
    close = 2e-3
    if way == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    elif way == "compiled":
        model = torch.compile(model)
    elif way in ("bfloat16", "float16"):
        model, close = model.to(getattr(torch, way)), 0.1
    if way == "autocast":
        close = 0.1
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = measured(model)
    else:
        found = measured(model)
    assert_close(found, wanted, rel=close, zero=0.1 if close == 0.1 else 1e-4)


def test_batches_of_the_device_and_dictionaries() -> None:
    wanted = measured(seeded("transformers").double())
    batches = [
        {"pixel_values": x.to(CUDA, torch.float64), "labels": y.to(CUDA)}
        for x, y in DataLoader(images(), 16)
    ]
    model = seeded("transformers").double().to(CUDA)
    found = ncscope.measure_model(model, batches, progress=False)
    assert_close(found, wanted, rel=1e-6, zero=1e-8)


@pytest.mark.parametrize("first", ["fc", "conv1"])
def test_a_model_split_over_devices(first: str) -> None:
    options = {"layers": ["layer3", "layer4"], "ood": images()}
    wanted = measured(seeded("resnet18"), **options)
    similar = ncscope.compare_layers(seeded("resnet18"), DataLoader(images(), 16), progress=False)
    model = seeded("resnet18").to(CUDA)
    model.get_submodule(first).to("cpu")
    if first == "conv1":
        model.conv1.register_forward_pre_hook(lambda it, args: (args[0].cpu(),))
        model.conv1.register_forward_hook(lambda it, args, out: out.to(CUDA))
    else:
        model.fc.register_forward_pre_hook(lambda it, args: (args[0].cpu(),))
    assert_close(measured(model, **options), wanted, rel=2e-3, zero=1e-4)
    found = ncscope.compare_layers(model, DataLoader(images(), 16), progress=False)
    assert found.values == pytest.approx(similar.values, rel=2e-3)


@pytest.mark.parametrize("precision", ["float64", "blocked"])
def test_all_groups_of_a_model(precision: str) -> None:
    options = {"groups": list(GROUPS), "layers": ["layer3", "layer4"], "precision": precision}
    options |= {"uncertainty": True, "baseline": True, "ood": images()}
    wanted = measured(seeded("resnet18"), **options)
    found = measured(seeded("resnet18").to(CUDA), **options)
    assert_close(found, wanted, rel=1e-2, zero=1e-3)


def test_measuring_what_is_on_the_device() -> None:
    x, y = rows()
    weight, bias = torch.randn(K, 12), torch.randn(K)
    there = [each.to(CUDA) for each in (x, y, weight, bias)]
    for options in ({"groups": EACH}, {"uncertainty": True}, {"baseline": True}):
        wanted = ncscope.measure(x, y, weight, bias, **options)
        found = ncscope.measure(*there, **options)
        assert_close(found, wanted, rel=1e-7, zero=1e-9)
        mixed = ncscope.measure(there[0], y, weight, there[3], **options)
        assert_close(mixed, wanted, rel=1e-7, zero=1e-9)
    assert ncscope.cka(x.to(CUDA), x[:, :5].to(CUDA)) == pytest.approx(ncscope.cka(x, x[:, :5]))
    targets = torch.nn.functional.one_hot(y, K)
    targets[::3, 0] = 1
    wanted = ncscope.measure_multilabel(x, targets, weight, bias)
    found = ncscope.measure_multilabel(there[0], targets.to(CUDA), there[2], there[3])
    assert_close(found, wanted, rel=1e-7, zero=1e-9)
    wanted = ncscope.measure_regression(x, x[:, :2], weight[:2], bias[:2])
    found = ncscope.measure_regression(there[0], there[0][:, :2], there[2][:2], there[3][:2])
    assert_close(found, wanted, rel=1e-7, zero=1e-9)
    wanted = ncscope.batch_information(x, y, weight, batch_size=16)
    found = ncscope.batch_information(*there[:3], batch_size=16)
    assert found == wanted or found.mir == pytest.approx(wanted.mir, rel=1e-6)
    wanted = ncscope.information_between(x, x.roll(1, 0))
    found = ncscope.information_between(there[0], there[0].roll(1, 0))
    assert found.mir == pytest.approx(wanted.mir, rel=1e-6)


def test_accumulators_on_the_device() -> None:
    x, y = rows()
    weight, bias = torch.randn(K, 12), torch.randn(K)
    on = {}
    for device in ("cpu", "cuda"):
        metric = NeuralCollapse(K, 12, keep_features=True).to(device)
        moments = ncscope.ClassMoments(K, 12, device=device)
        for part in range(0, 96, 32):
            batch = x[part : part + 32].to(device), y[part : part + 32].to(device)
            metric.update(*batch, weight.to(device), bias.to(device))
            moments.update(*batch)
        on[device] = {name: float(value) for name, value in metric.compute().items()}
        on[device] |= dict(ncscope.measure_moments(moments, weight.to(device), bias.to(device)))
        scorer = OodScorer(ncscope.measure(x.to(device), y).statistics, weight, bias)
        on[device]["score"] = float(scorer(x.to(device)).sum())
    assert_close(on["cuda"], on["cpu"], rel=1e-6, zero=1e-8)


SCORES = [
    transfer.regularised_h_score,
    transfer.transrate,
    transfer.gbc,
    transfer.gbc_diagonal,
    transfer.sfda,
    transfer.nleep,
    transfer.parc,
]
LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "squared_error": lambda z, y, h, w: losses.squared_error(z, y),
    "rescaled_squared_error": lambda z, y, h, w: losses.rescaled_squared_error(
        z, y, factor=5.0, target=2.0
    ),
    "temperature_cross_entropy": lambda z, y, h, w: losses.temperature_cross_entropy(
        z, y, temperature=0.5
    ),
    "smoothed_cross_entropy": lambda z, y, h, w: losses.smoothed_cross_entropy(z, y, smoothing=0.1),
    "within_class_cosine": lambda z, y, h, w: losses.within_class_cosine(h, y),
    "batch_entropy": lambda z, y, h, w: losses.batch_entropy(h),
    "matrix_entropy": lambda z, y, h, w: losses.matrix_entropy(h @ h.T / 96, 12),
    "head_mutual_information": lambda z, y, h, w: losses.head_mutual_information(h, y, w),
    "head_entropy_difference": lambda z, y, h, w: losses.head_entropy_difference(h, y, w),
    "mutual_information": lambda z, y, h, w: losses.mutual_information(h, h.roll(1, 0)),
    "entropy_difference": lambda z, y, h, w: losses.entropy_difference(h, h.roll(1, 0)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_gradient(name: str) -> None:
    results = []
    for device in ("cpu", "cuda"):
        x, y = rows()
        torch.manual_seed(0)
        weight = torch.randn(K, 12).to(device).requires_grad_()
        features = x.to(device).requires_grad_()
        loss = LOSSES[name](features @ weight.T, y.to(device), features, weight)
        loss.sum().backward()
        results.append((loss.detach().cpu().double(), features.grad.cpu().double()))
    for here, there in zip(*results, strict=True):
        torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-5)


def test_scores_of_transfer() -> None:
    x, y = rows(seed=3)
    chances = torch.randn(96, 7).softmax(1)
    found = []
    for device in ("cpu", "cuda"):
        samples = transfer.check_downstream(x.to(device), y.to(device))
        scores = {score.__name__: float(score(samples)) for score in SCORES}
        scores["leep"] = float(transfer.leep(samples, chances.to(device)))
        scores["nce"] = float(transfer.nce(samples, chances.argmax(1).to(device)))
        parts = [part.to(device) for part in (x[:48], y[:48], x[48:], y[48:])]
        choice = transfer.choose_probe(*parts, strengths=[1e-3, 1e-1, 10.0])
        found.append(scores | {"probe": max(choice.validation.values())})
    assert_close(found[1], found[0], rel=1e-5, zero=1e-8)


def test_a_default_device_is_the_users_own() -> None:
    """``torch.set_default_device("cuda")`` is how many scripts begin."""
    x, y = rows()
    wanted = ncscope.measure(x, y, groups=EACH, uncertainty=True)
    model = seeded("vit").double()
    batches = [(pixels.double(), labels) for pixels, labels in DataLoader(images(), 16)]
    of_model = ncscope.measure_model(model, batches, progress=False)
    torch.set_default_device("cuda")
    try:
        for data in ((x, y), (x.to(CUDA), y.to(CUDA)), (x.numpy(), y.numpy())):
            found = ncscope.measure(*data, groups=EACH, uncertainty=True)
            assert_close(found, wanted, rel=1e-7, zero=1e-9)
        for device in ("cuda", "cpu"):
            found = ncscope.measure_model(model.to(device), batches, progress=False)
            assert_close(found, of_model, rel=1e-6, zero=1e-8)
    finally:
        torch.set_default_device(None)


def test_lightning_on_the_device() -> None:
    lightning_runs = pytest.importorskip("tests.integrations.lightning_runs")
    from ncscope.integrations.lightning import NeuralCollapseCallback

    found = {}
    for device in ("cpu", "gpu"):
        callback = NeuralCollapseCallback()
        lightning_runs.fit(callback, accelerator=device)
        found[device] = {
            key: callback.history[key][-1] for key in ("nc1", "nc2_etf", "accuracy", "vci")
        }
    assert_close(found["gpu"], found["cpu"], rel=1e-3, zero=1e-6)


def test_a_batch_waits_for_the_device_four_times_at_most() -> None:
    model = seeded("resnet18").to(CUDA)
    batches = [(x.to(CUDA), y.to(CUDA)) for x, y in DataLoader(images(), 8)]
    with torch.no_grad(), ncscope.watch(model) as seen:
        for x, y in batches[:2]:  # what is made once is made here
            model(x)
            seen.labels(y)
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            for x, y in batches[2:]:
                model(x)
                seen.labels(y)
            torch.cuda.set_sync_debug_mode("default")
        assert seen.report()["nc1"] > 0
    told = [each for each in waits if "synchronizing" in str(each.message)]
    assert 0 < len(told) <= 4 * len(batches[2:])
