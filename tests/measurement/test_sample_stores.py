"""The second pass on stored, on recomputed and on drawn samples."""

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import ncscope
from ncscope import InputError
from ncscope.integrations.recording import Recorder
from ncscope.measurement.evaluation import ModelResult
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.metrics.registry import METRICS
from ncscope.models.networks.residual import ResidualNet
from ncscope.stats.store import FeatureStore

from .test_ranks import on_ranks, plain

K, N, D = 5, 600, 12
LABELS = torch.arange(N) % K
MEANS = 1.5 * torch.randn(K, D, generator=torch.Generator().manual_seed(9))
INPUTS = MEANS[LABELS] + torch.randn(N, D, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(INPUTS, LABELS)
SHARES = ("nc4_disagreement", "ncc_accuracy")
GROUPS = ("nc1", "nc2", "nc3", "nc4", "mse", "pfc")


def network() -> nn.Module:
    torch.manual_seed(0)
    return ResidualNet(in_features=D, width=8, depth=3, num_classes=K)


def probed(options: Options | None = None, loader: Any = None, **fields: Any) -> ModelResult:
    options = replace(options or Options(groups=GROUPS), **fields)
    loader = DataLoader(DATA, batch_size=64) if loader is None else loader
    return measure_layers(network(), loader, options)


def test_recomputing_is_storing_to_the_last_count() -> None:
    stored, again = probed(), probed(second_pass="recompute")
    assert again.record == stored.record
    assert again.record.geodesic is not None
    assert "nc4_disagreement" in again.record.layers[-1].metrics


def test_recomputing_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("stored")

    expected = plain(probed().record)
    monkeypatch.setattr(FeatureStore, "append", refuse)
    loader = DataLoader(DATA, batch_size=50, shuffle=True)
    found = plain(probed(loader=loader, second_pass="recompute").record)
    assert found == pytest.approx(
        expected, rel=1e-4, abs=1e-6, nan_ok=True
    )  # float32 of other batches
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6, nan_ok=True)  # other batches


@pytest.mark.slow
def test_entropies_by_recomputing() -> None:
    options = Options(groups=("information",), layers=[])
    for n in (35, N):  # from samples, which are read twice in one order, and from moments
        data = TensorDataset(INPUTS[:n], LABELS[:n])
        loader = DataLoader(data, batch_size=16, shuffle=True)
        stored = probed(options, loader).record.layers[-1].metrics
        again = probed(options, loader, second_pass="recompute").record.layers[-1].metrics
        assert again == pytest.approx(stored, rel=1e-4)
        assert again.keys() >= {"mir", "hdr", "entropy_features"}
    for second in ("recompute", 50):
        record = probed(second_pass=second, groups=None).record.layers[-1]
        assert "mir" not in record.metrics
        assert sum("second_pass='store'" in note for note in record.notes) == 1
        assert not any("at this size" in note for note in record.notes)


class Augmented(TensorDataset):
    """Inputs with fresh noise at each reading."""

    noise = 0.1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, label = super().__getitem__(index)
        return inputs + self.noise * torch.randn(D), label


class Growing:
    """Batches of which each reading has one more."""

    def __init__(self) -> None:
        self.read = 5

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.read += 1
        yield from zip(INPUTS.split(50)[: self.read], LABELS.split(50), strict=False)


def relabelled() -> Iterator[Any]:
    turned = LABELS.clone()
    turned[[0, 5]] = 1
    yield from ([(INPUTS, LABELS)], [(INPUTS, turned)])


def spoiled() -> Iterator[Any]:
    yield from ([(INPUTS, LABELS)], [(INPUTS / 0, LABELS)])


class Turning:
    """Other samples at the second reading: by default, another label for two of them."""

    def __init__(self, readings: Iterator[Any] | None = None) -> None:
        self.readings = readings or relabelled()

    def __iter__(self) -> Iterator[Any]:
        return iter(next(self.readings))


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        (DataLoader(Augmented(INPUTS, LABELS), batch_size=64), "leave random augmentation out"),
        ((pair for pair in [(INPUTS, LABELS)]), "found a generator, which can be read only once"),
        (iter([(INPUTS, LABELS)]), "found a generator, which can be read only once"),
        (Growing(), "300 samples in the first pass and 350 in the second"),
        (Turning(), "120 and 118 samples of class 0 in the two passes"),
        (Turning(spoiled()), "that changed by nan of their length"),
        (DataLoader(DATA, 70, shuffle=True, drop_last=True), "without drop_last beside shuffle"),
    ],
    ids=["augmented", "generator", "iterator", "growing", "relabelled", "spoiled", "dropping"],
)
def test_other_samples_are_refused(loader: Any, said: str) -> None:
    torch.manual_seed(3)
    with pytest.raises(InputError, match=said) as raised:
        probed(loader=loader, second_pass="recompute")
    assert "\n" not in str(raised.value)


class Narrow:
    """A loader whose inputs are bfloat16."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((inputs.bfloat16(), labels) for inputs, labels in self.loader)


def test_rounding_in_16_bits_is_no_augmentation() -> None:
    options = Options(groups=("nc4",), second_pass="recompute")
    other = DataLoader(Augmented(INPUTS, LABELS), 64)
    same = DataLoader(DATA, 64, shuffle=True)
    measure_layers(network().bfloat16(), Narrow(same), options)
    with pytest.raises(InputError, match="changed by"):
        measure_layers(network().bfloat16(), Narrow(other), options)


def shares_of(found: ModelResult) -> dict[str, float]:
    return {key: found.record.layers[-1].metrics[key] for key in SHARES}


def test_a_sample_of_all_is_storing() -> None:
    found, expected = (probed(second_pass=second).record for second in (N, "store"))
    assert plain(found) == pytest.approx(plain(expected), rel=1e-12, nan_ok=True)
    assert not any(layer.standard_errors for layer in found.layers)


@pytest.mark.slow
def test_a_drawn_sample_is_unbiased_and_knows_its_error() -> None:
    n, runs = 60, 30
    exact = probed().record
    everything = asdict(exact.layers[-1])["metrics"]
    options = Options(groups=("nc4",), layers=[], second_pass=n)
    layers = [probed(options, sample_seed=seed).record.layers[-1] for seed in range(runs)]
    for key in SHARES:
        p = everything[key]
        error = math.sqrt(p * (1 - p) / n * (N - n) / (N - 1))
        values = torch.tensor([layer.metrics[key] for layer in layers])
        assert len(set(values.tolist())) > 5
        assert float((values - p).abs().max()) < 4 * error
        assert float(values.mean() - p) == pytest.approx(0, abs=3 * error / runs**0.5)
        assert float(values.std()) == pytest.approx(error, rel=0.4)
        given = [layer.standard_errors[key] for layer in layers if key in layer.standard_errors]
        assert sum(given) / len(given) == pytest.approx(error, rel=0.1)
    one = layers[0]
    assert one.metrics["accuracy"] == everything["accuracy"]
    assert one.standard_errors.keys() == {*SHARES, "pfc3"}  # the accuracy is counted on all samples
    assert one.bias_corrected == {key: one.metrics[key] for key in one.standard_errors}
    assert any("a random sample of 60 of the 600 samples" in note for note in one.notes)
    assert probed(options).record.layers[-1] == one


def test_a_drawn_sample_gives_every_layer_and_the_line() -> None:
    exact, found = probed().record, probed(second_pass=200).record
    for layer, wanted in zip(found.layers, exact.layers, strict=True):
        error = layer.standard_errors["pfc3"]
        assert abs(layer.metrics["pfc3"] - wanted.metrics["pfc3"]) < 4 * error
    assert found.geodesic is not None
    assert exact.geodesic is not None
    assert found.geodesic.pfc1 == exact.geodesic.pfc1
    assert found.geodesic.pfc3 == pytest.approx(exact.geodesic.pfc3, abs=0.15)
    assert found.geodesic.pfc3[-1] == pytest.approx(found.layers[-1].metrics["pfc3"])


def test_too_few_decisions_have_no_error() -> None:
    inputs = 20 * torch.eye(D)[LABELS] + 0.01 * INPUTS
    loader = DataLoader(TensorDataset(inputs, LABELS), 64)
    layer = probed(loader=loader, second_pass=50).record.layers[-1]
    assert layer.metrics["ncc_accuracy"] == 1
    assert "ncc_accuracy" not in layer.standard_errors
    assert any(note.startswith("no standard error of ") for note in layer.notes)


@pytest.mark.parametrize("second", ["recompute", 100])
@pytest.mark.parametrize("asked", [{"baseline": True}, {"uncertainty": True}])
def test_resampling_needs_stored_features(second: Any, asked: dict[str, bool]) -> None:
    with pytest.raises(InputError, match=f"expected second_pass='store' for {next(iter(asked))}"):
        probed(second_pass=second, **asked)
    assert probed(second_pass=second, baseline=None).record.layers[-1].baseline == {}


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("second", ["disk", 0, 1, True, 2.5, None])
def test_other_second_passes_are_refused(second: Any) -> None:
    with pytest.raises(InputError, match="'recompute' or an integer of at least 2"):
        probed(second_pass=second)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("name", ["memory", "disk"])
@pytest.mark.parametrize("size", ["2GB", -1, float("nan"), True])
def test_a_size_that_is_no_number_of_bytes_is_refused(name: str, size: Any) -> None:
    with pytest.raises(InputError, match=f"expected {name} as an integer of at least 0"):
        probed(**{name: size})


def test_a_loop_of_the_user_cannot_be_run_again() -> None:
    for refused in (
        lambda: ncscope.watch(network(), second_pass="recompute"),
        lambda: Recorder(
            prefix="",
            log="all",
            reference=None,
            on_error="raise",
            save=None,
            second_pass="recompute",
        ),
    ):
        with pytest.raises(InputError, match="found passes that your own loop runs") as raised:
            refused()
        assert "\n" not in str(raised.value)


def test_watching_draws_a_sample() -> None:
    model = network().eval()
    with torch.no_grad(), ncscope.watch(model, second_pass=100, groups=GROUPS) as seen:
        for inputs, labels in DataLoader(DATA, batch_size=64):
            model(inputs)
            seen.labels(labels)
        watched = seen.report().model_record
    found = probed(second_pass=100).record
    assert shares_of(ModelResult(watched, {})) == shares_of(ModelResult(found, {}))
    # The accuracy is that of the head at the time of the report, so it is of the sample too.
    assert watched.layers[-1].standard_errors.keys() == {*SHARES, "pfc3", "accuracy"}


def test_what_does_not_fit_is_refused_at_the_first_batch() -> None:
    read: list[int] = []

    class Counted:
        def __iter__(self) -> Iterator[Any]:
            for batch in DataLoader(DATA, batch_size=50):
                read.append(1)
                yield batch

        def __len__(self) -> int:
            return N // 50

    row = 4 * 8 * 3 + 8  # three layers of 8 float32, and a label
    with pytest.raises(InputError) as raised:
        probed(loader=Counted(), memory=100 * row, disk=300 * row)
    said = str(raised.value)
    assert len(read) == 1
    assert f"found about {550 * row:,} bytes for 12 batches" in said
    assert f"{100 * row:,} bytes of memory and {300 * row:,} bytes of disk" in said
    assert "second_pass='recompute'" in said
    assert "second_pass=100_000" in said
    probed(loader=Counted(), memory=100 * row, disk=500 * row)


class Stream(IterableDataset):
    """Samples without a length."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(INPUTS, LABELS, strict=True))


def test_a_stream_without_length_is_refused_where_it_is_full() -> None:
    row = 4 * 8 * 3 + 8
    loader = DataLoader(Stream(), batch_size=50)
    with pytest.raises(InputError, match=f"found {450 * row:,} bytes after 9 batches"):
        probed(loader=loader, memory=100 * row, disk=300 * row)
    model = network().eval()
    with torch.no_grad(), ncscope.watch(model, memory=0, disk=0) as seen:
        model(INPUTS)
        with pytest.raises(InputError, match="pass second_pass=100_000"):
            seen.labels(LABELS)


def test_half_of_the_free_space_is_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("ncscope.stats.store.shutil.disk_usage", lambda _: Usage)
    with FeatureStore(0, tmp_path) as store:
        rows = torch.zeros(50, dtype=torch.float64)
        store.append({"last": rows[:31, None]}, rows[:31].long())  # 496 bytes
        with pytest.raises(InputError, match="0 bytes of memory and 500 bytes of disk"):
            store.append({"last": rows[:1, None]}, rows[:1].long())


def test_the_accuracy_of_the_logits_needs_no_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("stored")

    expected = probed().record.layers[-1].metrics["accuracy"]
    monkeypatch.setattr(FeatureStore, "append", refuse)
    options = Options(groups=("nc2", "accuracy"), layer_groups=("nc1_quotient",))
    record = probed(options).record
    assert record.layers[-1].metrics["accuracy"] == expected
    with torch.no_grad():
        hits = network().eval()(INPUTS).argmax(1) == LABELS
    assert expected == float(hits.double().mean())
    assert record.layers[0].metrics.keys() == {"nc1_quotient", "pfc1"}
    assert record.geodesic is None


class Spoiling(nn.Linear):
    """A head whose logits are NaN for batches of three samples."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if len(x) != 3 else super().forward(x).fill_(torch.nan)


def note_on(model: nn.Module, loader: Any) -> str:
    record = measure_layers(model.eval(), loader, Options(groups=["accuracy"])).record
    return " ".join(record.layers[-1].notes)


def test_samples_that_the_logits_do_not_decide_are_noted() -> None:
    said = "accuracy: {} of {} samples have several equal greatest logits, or NaN"
    exact, coarse = network().eval(), network().bfloat16().eval()
    assert note_on(exact, [(INPUTS, LABELS)]) == ""
    with torch.no_grad():
        coarse.classifier.bias += 64  # rounds the logits to multiples of 1/2
        best = coarse(INPUTS.bfloat16()).topk(2).values
    ties = int((best[:, 0] == best[:, 1]).sum())
    assert ties > 10
    assert note_on(coarse, [(INPUTS.bfloat16(), LABELS)]).startswith(said.format(ties, N))
    batches = [(INPUTS, LABELS), (INPUTS[:3], LABELS[:3])]
    spoils = network()
    spoils.classifier = Spoiling(spoils.classifier.in_features, spoils.classifier.out_features)
    assert note_on(spoils, batches).startswith(said.format(3, N + 3))


class Scaled(nn.Module):
    """A network that masks the outputs of its head."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).index_fill(1, torch.tensor([4]), -torch.inf)


def test_a_head_whose_outputs_are_changed_decides_by_itself() -> None:
    options = Options(groups=("nc4",), head="net.classifier")
    found = measure_layers(Scaled(), [(INPUTS, LABELS)], options).record.layers[-1].metrics
    assert found["accuracy"] == probed().record.layers[-1].metrics["accuracy"]


class Tokens(nn.Module):
    """Logits of every token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(K, 8), nn.Linear(8, K)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.embed(input_ids))


def test_the_accuracy_of_tokens_is_that_of_those_measured() -> None:
    ids = torch.randint(K, (8, 15), generator=torch.Generator().manual_seed(2))
    labels = ids.where(torch.rand(8, 15, generator=torch.Generator().manual_seed(3)) > 0.3, -100)
    batch = {"input_ids": ids, "labels": labels}
    options = Options(groups=("accuracy",), layers=[], next_token=True)
    found = measure_layers(Tokens(), [batch], options).record.layers[-1]
    predicted, wanted = Tokens()(ids).argmax(2)[:, :-1], labels[:, 1:]
    kept = wanted != -100
    assert found.num_samples == int(kept.sum())
    assert found.metrics == {"accuracy": float((predicted == wanted)[kept].double().mean())}


def test_single_metrics_by_their_keys() -> None:
    record = probed(groups=("cdnv", "pfc1", "nc3"), layers=[]).record.layers[-1]
    nc3 = [row for row in METRICS.values() if row.group == "nc3"]
    keys = {key for row in nc3 for key in (row.key, *row.aliases)}
    assert record.metrics.keys() == {"cdnv", "nc1_quotient", "pfc1", *keys}
    assert record.metrics.keys() == {
        *("cdnv", "nc1_quotient", "pfc1", "nc3_self_duality", "nc3_alignment", "nc3_etf"),
        *("seli_logits", "nc0", "nc0_norm", "unc3", "unc3_mean"),
    }
    with pytest.raises(InputError, match="for 'nc1_quotent' pass nc1_quotient"):
        probed(groups=("nc1_quotent",))


@pytest.mark.slow
def test_several_processes(tmp_path: Path) -> None:
    sizes = (450, 150, 0)

    def program(rank: int) -> Any:
        rows = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        data = [(INPUTS[rows], LABELS[rows])] if sizes[rank] else []
        again = probed(loader=data, second_pass="recompute").record
        drawn = probed(loader=data, second_pass=100).record.layers[-1]
        noisy = DataLoader(Augmented(INPUTS[:50], LABELS[:50])) if rank == 1 else data
        try:
            said = str(probed(loader=noisy, second_pass="recompute"))
        except InputError as error:
            said = str(error)
        return [plain(again), drawn.metrics, drawn.standard_errors, drawn.notes, said]

    found = on_ranks(3, tmp_path, program)
    exact = probed().record
    for rank, (again, drawn, errors, notes, said) in enumerate(found):
        assert again == pytest.approx(plain(exact), rel=1e-4, abs=1e-6, nan_ok=True)
        for key in SHARES:
            p = exact.layers[-1].metrics[key]
            # 100 of 450 and 100 of 150 samples, of shares close to p
            strata = (450, 150)
            expected = sum((m / N) ** 2 * p * (1 - p) / 99 * (1 - 100 / m) for m in strata) ** 0.5
            assert errors[key] == pytest.approx(expected, rel=0.3)
            assert abs(drawn[key] - p) < 4 * errors[key]
        assert any("a random sample of 200 of the 600 samples" in note for note in notes)
        assert "random augmentation" in said
        assert "on rank 1" in said or rank == 1
    assert found[0][1] == found[1][1] == found[2][1]
