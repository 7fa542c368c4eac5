"""Facts of devices: chunks, copies that run beside the work, and devices without float64."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._device import _device_constructors

import ncscope
from ncscope import devices
from ncscope.data.generated import make_patterns
from ncscope.devices import HostCopy, bytes_to_keep, chunk_bytes, move_to, refuse_without_float64
from ncscope.errors import InputError
from ncscope.integrations.torchmetrics import NeuralCollapse
from ncscope.losses import batch_entropy, matrix_entropy, mutual_information, within_class_cosine
from ncscope.losses.inputs import make_zero_loss
from ncscope.stats.paths import step_length
from ncscope.stats.store import FeatureStore
from ncscope.transfer import check_downstream, nleep, parc, regularised_h_score, sfda, transrate
from ncscope.transfer.features import head_features
from ncscope.transfer.probes.logistic import fit_logistic

CPU, CUDA, MPS = (torch.device(name) for name in ("cpu", "cuda", "mps"))
ROWS, LABELS = torch.eye(4), torch.arange(4) % 2


class OnMps(Tensor):
    """A tensor that says that it is on Apple's GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return MPS


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    for module in model.modules():
        for name, value in list(module._parameters.items()):
            module._parameters[name] = nn.Parameter(value.detach().as_subclass(OnMps))
    return model


def watched() -> None:
    with ncscope.watch(network()):
        pass


THERE = ROWS.as_subclass(OnMps)
ENTRIES: dict[str, Callable[[], Any]] = {
    "measure": lambda: ncscope.measure(THERE, LABELS),
    "weight": lambda: ncscope.measure(ROWS, LABELS, THERE[:2]),
    "moments": lambda: ncscope.ClassMoments(2, 4, device="mps"),
    "update": lambda: ncscope.ClassMoments(2, 4).update(THERE, LABELS),
    "measure_model": lambda: ncscope.measure_model(network(), [(ROWS, LABELS)]),
    "watch": watched,
    "torchmetrics": lambda: NeuralCollapse(2, 4).update(THERE, LABELS),
    "information": lambda: ncscope.information_between(THERE, ROWS),
    "batch entropy": lambda: batch_entropy(THERE),
    "matrix entropy": lambda: matrix_entropy(THERE, 4),
    "mutual information": lambda: mutual_information(THERE, THERE),
    "cosine": lambda: within_class_cosine(THERE, LABELS),
    "probe": lambda: fit_logistic(THERE, LABELS, 1.0),
    "transfer": lambda: head_features(network(), [(ROWS, LABELS)]),
}


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_device_without_float64_is_refused_in_one_line(entry: str) -> None:
    with pytest.raises(InputError, match=r"found 'mps'|with float64, found mps.*cpu\(\)") as caught:
        ENTRIES[entry]()
    assert "\n" not in str(caught.value)


def test_other_devices_are_not_refused() -> None:
    for device in (CPU, CUDA):
        refuse_without_float64(device, "features")


def test_chunks_are_for_the_cache_of_a_cpu_and_for_the_launches_of_others() -> None:
    assert chunk_bytes(CPU) == 2 * 2**20
    assert chunk_bytes(CUDA) == 256 * 2**20
    assert bytes_to_keep(CPU) == 2**30


class Queue:
    """Work of a pretended CUDA device: copies end when their event is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pending: list[tuple[Tensor, Tensor]] = []
        queue = self

        class Event:
            def record(self, stream: object) -> None:
                self.work, queue.pending = queue.pending, []

            def synchronize(self) -> None:
                for pinned, tensor in self.work:
                    pinned.copy_(tensor)

        def start_copy(tensor: Tensor) -> Tensor:
            pinned = torch.full_like(torch.empty(tensor.shape, dtype=tensor.dtype), -1)
            self.pending.append((pinned, tensor.clone()))
            return pinned

        monkeypatch.setattr(devices, "_start_copy", start_copy)
        monkeypatch.setattr(devices, "_can_copy_aside", lambda tensor: True)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)


def test_a_copy_is_read_after_its_end_and_its_memory_is_free_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Queue(monkeypatch)
    source = {"a": torch.arange(3.0), "b": torch.ones(2)}
    copy = HostCopy(source)
    assert not copy.complete
    source["a"].zero_()  # behind the copy in the queue
    assert copy._copies["a"].tolist() == [-1] * 3
    found = copy.wait()
    assert found["a"].tolist() == [0, 1, 2]
    assert found["b"].tolist() == [1, 1]
    assert found["a"].data_ptr() != copy._copies["a"].data_ptr()


@pytest.mark.parametrize("budget", [0, 100, 10**6])
def test_a_store_yields_batches_whose_copies_ran_beside_the_next(
    monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    Queue(monkeypatch)
    with FeatureStore(budget) as store:
        for number in range(4):
            store.append({"last": torch.full((2, 3), float(number))}, torch.full((2,), number))
        for _ in range(2):
            found = [(rows["last"].tolist(), labels.tolist()) for rows, labels in store]
            assert found == [([[number] * 3] * 2, [number] * 2) for number in range(4)]


def test_tensors_on_the_device_are_not_copied() -> None:
    assert move_to(ROWS, CPU) is ROWS
    assert HostCopy({"rows": ROWS}).wait()["rows"] is ROWS


@pytest.mark.gpu
def test_copies_to_and_from_a_device_are_complete() -> None:
    rows = torch.randn(1000, 1000)
    there = [move_to(rows + number, CUDA) for number in range(8)]
    copies = [HostCopy({"rows": each * 2}) for each in there]
    assert not any(copy.complete for copy in copies)
    for number, copy in enumerate(copies):
        assert torch.equal(copy.wait()["rows"], (rows + number) * 2)


@pytest.mark.slow
def test_a_default_device_of_the_user_changes_nothing() -> None:
    """On the device ``"meta"`` any tensor that the user did not make would have no values."""
    torch.manual_seed(0)
    features, labels = torch.randn(400, 6), torch.arange(400) % 4
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    batches = [(features[:240], labels[:240]), (features[240:], labels[240:])]
    options = {"baseline": True, "uncertainty": True}
    ood = features.flip(1)

    def results() -> list[dict[str, float]]:
        moments = ncscope.ClassMoments()
        moments.update(features, labels)
        samples = check_downstream(features, labels)
        scores = [nleep, transrate, sfda, parc, regularised_h_score]
        return [
            dict(ncscope.measure(features.numpy(), labels.tolist(), ood=ood, **options)),
            dict(ncscope.measure_model(model, batches, ood=[ood], progress=False, **options)),
            dict(ncscope.measure_moments(moments)),
            {score.__name__: float(score(samples)) for score in scores},
            {"mir": float(mutual_information(features, features.flip(1)))},
            dict(ncscope.measure([features[:100], features[100:]], [labels[:100], labels[100:]])),
            {"cka": ncscope.cka([features[:100], features[100:]], features[:, :3])},
            {"patterns": float(make_patterns(2, 4, 4)[0].pictures.sum())},
        ]

    wanted = results()
    with torch.device("meta"):
        found = results()
    assert repr(found) == repr(wanted)


def test_each_tensor_is_made_on_a_named_device() -> None:
    names = {make.__name__ for make in _device_constructors()}
    names.add("linspace")  # transformers replaces it by a function of another name
    assert {"zeros", "as_tensor", "randperm", "fft_fftfreq"} <= names
    names |= {name.removeprefix("fft_") for name in names}
    unnamed = []
    for path in sorted(Path(ncscope.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            module, _, name = ast.unparse(node.func).rpartition(".")
            given = {word.arg for word in node.keywords if ast.unparse(word.value) != "None"}
            if module in ("torch", "torch.fft") and name in names and not given & {"device", None}:
                unnamed.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert not unnamed, "\n".join(unnamed)


def test_a_loss_of_no_rows_stays_on_its_device() -> None:
    assert make_zero_loss(torch.zeros(1, 4, device="meta")).is_meta


def test_layers_on_two_devices_are_subtracted_on_the_later_ones() -> None:
    assert step_length(torch.ones(2, 3), torch.ones(2, 3, device="meta")).is_meta
