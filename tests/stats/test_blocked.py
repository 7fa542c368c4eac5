"""precision="blocked": float32 products by blocks, within the stated bound, by every entry."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ncscope
from ncscope.errors import InputError
from ncscope.integrations.recording import Recorder
from ncscope.integrations.torchmetrics import NeuralCollapse
from ncscope.math import symmetric
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import finish

K, D, N = 5, 300, 4000
BOUND = 2.0**-24 * 1028
"""The bound that the documentation states, 6.2e-5."""


def samples(offset: float = 0.0, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(K, (N,), generator=generator)
    mixed = torch.randn(D, D, generator=generator).double() / D**0.5
    rows = torch.randn(N, D, generator=generator).double() @ mixed
    means = torch.randn(K, D, generator=generator).double()
    return scale * (rows + means[labels] + offset), labels


def scatter(features: Tensor, labels: Tensor, **options: Any) -> Tensor:
    moments = ClassMoments(K, D, **options)
    for rows, y in zip(features.split(1500), labels.split(1500), strict=True):
        moments.update(rows, y)
    return moments.state_dict()["scatter"]


def assert_within_bound(found: Tensor, exact: Tensor) -> None:
    length = exact.diagonal().sqrt()
    share = ((found - exact).abs() / (length[:, None] * length)).max()
    assert 1e-9 < share < BOUND


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1.0), (1e3, 1.0), (-1e3, 1e-30)])
def test_the_error_is_within_the_bound_whatever_the_offset(
    offset: float, scale: float, kind: torch.dtype
) -> None:
    """An offset of a thousand spreads would leave a float32 product of the rows no digit."""
    features, labels = samples(offset, scale)
    features = features.to(kind)
    found = scatter(features, labels, precision="blocked")
    assert_within_bound(found, scatter(features, labels))


def test_the_bound_holds_for_columns_of_any_units_and_for_constant_ones() -> None:
    features, labels = samples()
    features = features * 10.0 ** torch.linspace(-130, 130, D).double()
    features[:, 7] = 3.0
    found, exact = (scatter(features, labels, precision=p) for p in ("blocked", "float64"))
    assert (found[7] == 0).all()
    kept = torch.arange(D) != 7
    assert_within_bound(found[kept][:, kept], exact[kept][:, kept])


def test_only_the_scatter_is_rounded() -> None:
    features, labels = samples(1e3)
    found, exact = ClassMoments(K, D, precision="blocked"), ClassMoments(K, D)
    for moments in (found, exact):
        moments.update(features, labels)
    state = found.state_dict()
    for name, value in exact.state_dict().items():
        assert value.dtype == state[name].dtype
        assert torch.equal(value, state[name]) == (name != "scatter"), name
    assert_within_bound(finish(found).within, finish(exact).within)


def test_the_uniform_prior_is_blocked_too() -> None:
    features, labels = samples(1e3)
    options = {"prior": "uniform", "class_counts": labels.bincount(minlength=K)}
    found = scatter(features, labels, precision="blocked", **options)
    assert_within_bound(found, scatter(features, labels, **options))


@pytest.fixture
def reduced() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("reduced")
def test_reduced_float32_products_are_not_trusted() -> None:
    features, labels = samples()
    found, exact = (scatter(features, labels, precision=p) for p in ("blocked", "float64"))
    assert torch.equal(found, exact)


def test_autocast_does_not_reach_the_products() -> None:
    features, labels = samples()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = scatter(features, labels, precision="blocked")
    assert_within_bound(found, scatter(features, labels))


def test_a_nearly_full_block_of_equal_products_stays_within_the_bound() -> None:
    """Products of one sign and size, the worst case of a sum in float32."""
    rows = torch.full((1024, 300), 1 + 2.0**-12, dtype=torch.float64)
    total = torch.zeros(300, 300, dtype=torch.float64)
    symmetric.add_gram_in_blocks_(total, rows)
    found, exact = float(total[0, 0]), 1024 * (1 + 2.0**-12) ** 2
    assert abs(found - exact) <= BOUND * exact


def near(found: Any, exact: Any) -> None:
    assert list(found) == list(exact)
    for key, value in exact.items():
        assert found[key] == pytest.approx(value, rel=1e-4, abs=1e-6, nan_ok=True), key


def test_measure_and_its_chance_level_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = samples()
    features = features[:, :8]
    calls = 0
    plain = symmetric.add_gram_in_blocks_

    def counting(total: Tensor, rows: Tensor) -> None:
        nonlocal calls
        calls += 1
        plain(total, rows)

    monkeypatch.setattr("ncscope.stats.scatter.add_gram_in_blocks_", counting)
    exact = ncscope.measure(features, labels, baseline=True)
    assert calls == 0
    found = ncscope.measure(features, labels, baseline=True, precision="blocked")
    assert calls == 10  # the batch, and nine times with other labels
    near(found, exact)
    near(found.baseline, exact.baseline)
    assert dict(found) != dict(exact)


@pytest.mark.parametrize(("dependent", "constant"), [(False, False), (False, True), (True, False)])
def test_what_float32_cannot_invert_is_warned_of(dependent: bool, constant: bool) -> None:
    features, labels = samples()
    features = features[:, :8].clone()
    if constant:
        features[:, 3] = 2.0
    if dependent:
        features[:, 3] = features[:, :3].sum(1)
    found, exact = (ncscope.measure(features, labels, precision=p) for p in ("blocked", "float64"))
    said = [warning for warning in found.warnings if "precision" in warning]
    assert len(said) == 2 * dependent  # of inverses, and of the spectrum
    assert not any("precision" in warning for warning in exact.warnings)
    if not dependent:
        near(found, exact)
    else:
        assert "vci" in said[0]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, K)).eval()


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(40) % K
    return [(torch.randn(40, 6, generator=generator), labels) for _ in range(3)]


def test_measure_model_and_watch_take_it() -> None:
    exact = ncscope.measure_model(network(), batches(), progress=False)
    found = ncscope.measure_model(network(), batches(), progress=False, precision="blocked")
    near(found, exact)
    assert dict(found) != dict(exact)
    model = network()
    with torch.no_grad(), ncscope.watch(model, precision="blocked") as seen:
        for inputs, labels in batches():
            model(inputs)
            seen.labels(labels)
        assert dict(seen.report()) == dict(found)


@pytest.mark.parametrize("keep", [False, True])
def test_the_metric_of_torchmetrics_takes_it(keep: bool) -> None:
    features, labels = samples()
    values = []
    for precision in ("float64", "blocked"):
        metric = NeuralCollapse(K, 8, keep_features=keep, precision=precision)
        for rows, y in zip(features[:, :8].split(1500), labels.split(1500), strict=True):
            metric.update(rows, y)
        values.append({key: float(value) for key, value in metric.compute().items()})
    near(*values)
    assert values[0] != values[1]


def test_states_of_both_precisions_merge() -> None:
    features, labels = samples()
    whole = ClassMoments(K, D)
    for precision, part in (("float64", slice(2000)), ("blocked", slice(2000, None))):
        moments = ClassMoments(K, D, precision=precision)
        moments.update(features[part], labels[part])
        assert moments.like().precision == precision
        whole.merge(moments)
    assert_within_bound(whole.state_dict()["scatter"], scatter(features, labels))
    metric = NeuralCollapse(2, 3, precision="blocked")
    assert metric._class_moments().precision == "blocked"


def recorder(precision: str) -> Recorder:
    fixed: dict[str, Any] = {"log": "headline", "reference": None, "on_error": "warn"}
    return Recorder(prefix="nc", save=None, precision=precision, **fixed)


def test_callbacks_take_it() -> None:
    assert recorder("blocked").options.precision == "blocked"


@pytest.mark.usefixtures("unchecked_signatures")
def test_another_precision_is_refused() -> None:
    with pytest.raises(InputError, match="'half'"):
        recorder("half")
    with pytest.raises(InputError, match="precision as 'float64' or 'blocked', found 'half'"):
        ClassMoments(2, 3, precision="half")
    with pytest.raises(InputError, match="'half'"):
        NeuralCollapse(2, 3, precision="half")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["highest", "high"])
def test_the_bound_holds_on_cuda(precision: str) -> None:
    features, labels = samples(1e3)
    exact = scatter(features, labels)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        found = scatter(features.cuda(), labels.cuda(), precision="blocked", device="cuda").cpu()
    finally:
        torch.set_float32_matmul_precision(before)
    length = exact.diagonal().sqrt()
    assert ((found - exact).abs() / (length[:, None] * length)).max() < BOUND
