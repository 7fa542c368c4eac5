"""CKA between layers is CKA of the features that plain hooks capture, and leaves no trace."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ncscope
from ncscope.array_checks import IGNORED
from ncscope.errors import InputError
from ncscope.models.networks.residual import ResidualNet

from ..ranks import joined_ranks
from .test_model import captured, loader, residual_net, samples
from .test_tokens import Language, texts


def compared(model: nn.Module, batches: object, **options: object) -> ncscope.LayerSimilarity:
    return ncscope.compare_layers(model, batches, progress=False, **options)


def test_one_model() -> None:
    model = residual_net()
    found = compared(model, loader())
    assert model.training
    names = ["blocks.0", "blocks.1", "blocks.2"]
    assert found.rows == found.columns == names
    features = captured(model.eval(), names, samples())
    for one in names:
        for other in names:
            expected = ncscope.cka(features[one], features[other])
            assert found[one, other] == pytest.approx(expected, rel=1e-6)
    assert found.values.diagonal() == pytest.approx(1.0)
    assert found.num_samples == 48


def test_two_models_and_the_size_of_batches() -> None:
    torch.manual_seed(5)
    model, other = residual_net(), ResidualNet(12, width=6, depth=2, num_classes=5).train()
    before = {name: value.clone() for name, value in other.state_dict().items()}
    found = compared(model, loader(), other=other, layers=["blocks.1"])
    assert found.rows == ["blocks.1", "head input"]
    assert found.columns == ["blocks.0", "blocks.1"]
    assert other.training
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    one = captured(model.eval(), ["blocks.1"], samples())["blocks.1"]
    two = captured(other.eval(), ["blocks.0"], samples())["blocks.0"]
    assert found["blocks.1", "blocks.0"] == pytest.approx(ncscope.cka(one, two), rel=1e-6)
    whole = compared(model, loader(batch_size=48), other=other, layers=["blocks.1"])
    assert whole.values == pytest.approx(found.values, rel=1e-5)
    # A model beside itself: what it is alone.
    alone, twice = compared(model, loader()), compared(model, loader(), other=model)
    assert twice.values == pytest.approx(alone.values, rel=1e-9)


def test_pooling_is_that_of_measure_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.Flatten(), nn.Linear(5 * 16, 3)
    )
    images = torch.randn(20, 1, 8, 8)
    batches = DataLoader(TensorDataset(images, torch.arange(20) % 3), batch_size=7)
    maps = [model[:1](images), model[:3](images)]
    for pool, rows in (
        (True, [x.mean((2, 3)) for x in maps]),
        (None, [x.flatten(1) for x in maps]),
    ):
        found = compared(model, batches, layers=["0", "2"], pool=pool)
        assert found["0", "2"] == pytest.approx(ncscope.cka(*(x.detach() for x in rows)), rel=1e-6)


def test_tokens_that_are_ignored_are_left_out() -> None:
    torch.manual_seed(0)
    model = Language()
    found = compared(model, texts(), layers=["blocks.*"])
    kept = []
    for batch in texts():
        with torch.no_grad():
            h = model.embedding(batch["input_ids"])
            first = model.blocks[0](h)
            second = model.blocks[1](h + first.cumsum(1))
            last = model(batch["input_ids"])["states"]
        kept.append([each[batch["labels"] != IGNORED] for each in (first, second, last)])
    first, second, last = (torch.cat(part) for part in zip(*kept, strict=True))
    assert found.num_samples == len(first)
    assert found["blocks.0", "blocks.1"] == pytest.approx(ncscope.cka(first, second), rel=1e-6)
    assert found["blocks.0", "head input"] == pytest.approx(ncscope.cka(first, last), rel=1e-6)


def test_random_states_are_left_alone() -> None:
    model = residual_net()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    compared(model, loader(shuffle=True))
    assert torch.equal(torch.rand(3), expected)


class Counting(nn.Sequential):
    """A model that writes a buffer in evaluation mode too."""

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def test_buffers_are_left_alone() -> None:
    model = Counting(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
    model.register_buffer("calls", torch.zeros(()))
    compared(model, loader(), layers=["0"])
    assert model.calls == 0


def share(rank: int) -> list[list[float]]:
    data = samples()
    half = TensorDataset(*(tensor[rank::2] for tensor in data.tensors))
    return compared(residual_net(), loader(half)).values.tolist()


def test_two_processes_compare_the_samples_of_both(tmp_path) -> None:
    one, other = joined_ranks(2, tmp_path, share)
    assert one == other
    expected = compared(residual_net(), loader()).values
    assert torch.tensor(one).numpy() == pytest.approx(expected, rel=1e-4)


def test_files_table_and_picture(tmp_path) -> None:
    found = compared(residual_net(), loader())
    whole = json.loads(found.save(tmp_path / "a.json").read_text())
    assert whole["cka"] == found.values.tolist()
    assert (
        found.save(tmp_path / "a.csv").read_text().startswith("layer,blocks.0,blocks.1,blocks.2\n")
    )
    assert found.save(tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert found.to_dataframe().loc["blocks.0", "blocks.2"] == found["blocks.0", "blocks.2"]
    assert f"{found['blocks.0', 'blocks.1']:.3f}</td>" in found._repr_html_()
    texts_drawn = [text.get_text() for text in found.plot().axes[0].texts]
    assert texts_drawn[1] == f"{found['blocks.0', 'blocks.1']:.2f}"
    with pytest.raises(InputError, match=r"\.pdf"):
        found.save(tmp_path / "a.html")
    with pytest.raises(KeyError, match=r"'blocks\.9'; the layers are 'blocks\.0', 'blocks\.1'"):
        found["blocks.0", "blocks.9"]


@pytest.mark.usefixtures("unchecked_signatures")
def test_one_name_alone_is_refused() -> None:
    with pytest.raises(KeyError, match=r"'blocks\.0'; pass two layers, .*'blocks\.0', 'blocks\.2'"):
        compared(residual_net(), loader())["blocks.0"]


def test_a_matrix_prints_where_it_fits_into_a_line() -> None:
    found = compared(residual_net(), loader())
    lines = repr(found).splitlines()
    assert lines[1].split() == found.columns
    assert lines[2].split() == ["blocks.0", *(f"{value:.3f}" for value in found.values[0])]
    assert len(lines) == 2 + len(found.rows)
    names = tuple(f"block.{index}" for index in range(40))
    row = (1.0,) * len(names)
    record = replace(found.record, rows=names, columns=names, values=(row,) * len(names))
    assert repr(ncscope.LayerSimilarity(record)) == "LayerSimilarity: 40 x 40 layers, 48 samples"


def test_a_constant_layer_has_a_note() -> None:
    model = nn.Sequential(nn.Linear(12, 6), nn.Linear(6, 6), nn.Linear(6, 3))
    with torch.no_grad():
        model[1].weight.zero_()
    found = compared(model, loader(), layers=["0", "1"])
    assert any("layer '1' is constant" in note for note in found.notes)
    assert json.loads(found.to_json())["cka"][0][1] is None
    found.plot().canvas.draw()


def test_bad_input(monkeypatch) -> None:
    model = residual_net()
    with pytest.raises(InputError, match="at least 4 samples"):
        compared(model, loader(samples(n=3)))
    with pytest.raises(InputError, match="nothing"):
        compared(model, loader(), layers=["nothing"])
    with pytest.raises(InputError, match="at least two layers"):
        compared(nn.Sequential(nn.Linear(12, 3)), loader(), layers=[])
    with pytest.raises(InputError, match="batches to measure"):
        compared(model, [])
    monkeypatch.setattr("ncscope.stats.cka_moments._SMALL_STATE", 0)
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: 100)
    with pytest.raises(InputError, match=r"6 pairs of sets of up to 8 features.*pool=True"):
        compared(model, loader())
