"""OOD samples of a model: one pass over their loader, as features by hand give, in any process."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ncscope
from ncscope.array_checks import IGNORED
from ncscope.errors import InputError
from ncscope.metrics.registry import METRICS
from ncscope.models.networks.residual import ResidualNet

from ..closeness import assert_agree
from ..pace import others_slow
from ..ranks import joined_ranks
from .test_tokens import K, Language, texts

OOD = {key for key, row in METRICS.items() if row.group == "ood"}
LABELS = torch.arange(60) % 4
INPUTS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0)).double()
INPUTS = INPUTS + 2 * torch.eye(6)[LABELS]
OUTSIDE = 3 * torch.randn(35, 6, generator=torch.Generator().manual_seed(1)).double() + 1


def network() -> nn.Module:
    torch.manual_seed(1)
    return ResidualNet(6, 8, 2, 4).double()


def batches(inputs: Tensor = INPUTS, labels: Tensor = LABELS, size: int = 16) -> list:
    if not len(labels):
        return []
    return list(zip(inputs.split(size), labels.split(size), strict=True))


def outside(rows: slice = slice(None), size: int = 10) -> list:
    return [(rows,) for rows in OUTSIDE[rows].split(size)] if len(OUTSIDE[rows]) else []


def measured(ood: Any = None, **options: Any) -> ncscope.ModelReport:
    loader = options.pop("loader", batches())
    options = {"groups": ["ood"], "layers": [], "progress": False} | options
    return ncscope.measure_model(
        network(), loader, ood=outside() if ood is None else ood, **options
    )


def by_hand(**options: Any) -> ncscope.Report:
    model = network()
    head, read = [m for m in model.modules() if isinstance(m, nn.Linear)][-1], []
    head.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].detach()))
    with torch.no_grad():
        model.eval()(INPUTS)
        model(OUTSIDE)
    return ncscope.measure(
        read[0], LABELS, head.weight, head.bias, ood=read[1], groups=["ood"], **options
    )


@pytest.mark.parametrize("second_pass", ["store", "recompute"])
def test_equals_features_by_hand(second_pass: Any) -> None:
    assert_agree(dict(measured(second_pass=second_pass)), dict(by_hand()), rel=1e-12)


def test_only_the_layer_of_the_head_is_compared() -> None:
    report = measured(layers=["blocks.*"], groups=None, layer_groups=None)
    *before, last = report.layers.values()
    assert not any(OOD & set(layer) for layer in before)
    assert set(last) >= OOD


class Batches(list):
    """Batches that count how often they are read."""

    read = 0

    def __iter__(self):
        self.read += 1
        return super().__iter__()


FORMS = {
    "tensors": lambda rows: rows,
    "pairs": lambda rows: (rows, torch.full((len(rows),), 9)),
    "texts as labels": lambda rows: [rows, ["cat"] * len(rows)],
    "mappings": lambda rows: {"x": rows},
    "mappings with labels": lambda rows: {"x": rows, "labels": torch.zeros(len(rows))},
}


@pytest.mark.parametrize("form", FORMS)
def test_labels_are_ignored_and_the_loader_is_read_once(form: str) -> None:
    loader = Batches(FORMS[form](rows) for rows in OUTSIDE.split(10))
    loader.insert(1, FORMS[form](OUTSIDE[:0]))
    assert_agree(dict(measured(loader)), dict(by_hand()), rel=1e-12)
    assert loader.read == 1


def test_a_data_loader_of_inputs_alone() -> None:
    state = torch.random.get_rng_state()
    loader = DataLoader(TensorDataset(OUTSIDE), batch_size=10, shuffle=True)
    report = measured(loader)
    assert_agree(dict(report), dict(by_hand()), rel=1e-9)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_mode_is_restored_after_an_error_in_the_ood_pass() -> None:
    model = network().train()
    with pytest.raises(InputError, match=r"finite OOD features, found NaN or Inf .*in batch 2"):
        ncscope.measure_model(
            model, batches(), ood=[OUTSIDE[:5], OUTSIDE[:5] * torch.nan], progress=False
        )
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_reference_of_the_training_set() -> None:
    training = measured_training()
    fitted = ncscope.measure(*features_of(INPUTS[::2]), LABELS[::2])
    rows = batches(INPUTS[1::2], LABELS[1::2])
    report = measured(loader=rows, reference=training)
    head = [m for m in network().modules() if isinstance(m, nn.Linear)][-1]
    wanted = ncscope.measure(
        *features_of(INPUTS[1::2]),
        LABELS[1::2],
        head.weight,
        head.bias,
        ood=features_of(OUTSIDE)[0],
        reference=fitted,
        groups=["ood"],
    )
    assert_agree(dict(report), dict(wanted), rel=1e-9)


def measured_training() -> ncscope.ModelReport:
    rows = batches(INPUTS[::2], LABELS[::2])
    return ncscope.measure_model(network(), rows, layers=[], progress=False)


def features_of(inputs: Tensor) -> tuple[Tensor]:
    model, read = network(), []
    head = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    head.register_forward_pre_hook(lambda _, given: read.append(given[0].detach()))
    with torch.no_grad():
        model.eval()(inputs)
    return (read[0],)


@pytest.mark.slow
def test_drawn_samples_stand_for_all() -> None:
    assert_agree(dict(measured(second_pass=60)), dict(by_hand()), rel=1e-9)
    drawn = measured(second_pass=40)
    assert any("random sample of 40 of the 60" in note for note in drawn.notes)
    assert all(abs(drawn[key] - by_hand()[key]) < 0.25 for key in OOD)


def test_tokens_are_those_that_the_mask_keeps() -> None:
    torch.manual_seed(0)
    model = Language()
    ids = torch.randint(K, (3, 5))
    mask = torch.tensor([[1, 1, 1, 0, 0], [1] * 5, [0, 1, 1, 1, 1]])
    ood = [{"input_ids": ids, "attention_mask": mask, "labels": torch.full((3, 5), 99)}]
    options = {"next_token": True, "groups": ["ood"], "progress": False}
    report = ncscope.measure_model(model, texts(), ood=ood, **options)
    kept, states = [], model(ids, mask)["states"].detach()
    for row, real in enumerate(mask):
        kept += [states[row, t] for t in range(4) if real[t] and real[t + 1]]
    features, classes = [], []
    for batch in texts():
        h, labels = model(batch["input_ids"])["states"].detach(), batch["labels"][:, 1:]
        features.append(h[:, :-1][labels != IGNORED])
        classes.append(labels[labels != IGNORED])
    wanted = ncscope.measure(
        torch.cat(features),
        torch.cat(classes),
        model.lm_head.weight,
        ood=torch.stack(kept),
        groups=["ood"],
    )
    assert_agree(dict(report), dict(wanted), rel=1e-9)


BAD = {
    "expected OOD samples, found none": [],
    "finite OOD features": [OUTSIDE * torch.inf],
    "iterable of OOD batches, found Tensor; pass a DataLoader": OUTSIDE,
    "batches of OOD samples, found a sample with a single label": iter([(OUTSIDE[0], 3)]),
    "samples, found a sample with a single label": iter([(OUTSIDE[0], torch.tensor(3))]),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_loaders(said: str) -> None:
    with pytest.raises(InputError, match=said):
        measured(BAD[said])


SHARES = {
    "both in both": ([slice(0, 25), slice(25, 60)], [slice(0, 12), slice(12, 35)]),
    "no ood in the first": ([slice(0, 25), slice(25, 60)], [slice(0), slice(0, 35)]),
    "ood where there is nothing else": ([slice(60), slice(0)], [slice(0, 5), slice(5, 35)]),
}


@pytest.mark.parametrize("shares", others_slow(SHARES, "no ood in the first"))
def test_processes_measure_what_one_does(shares: str, tmp_path: Path) -> None:
    inside, beside = SHARES[shares]
    second_pass = "recompute" if shares == "no ood in the first" else "store"

    def program(rank: int) -> dict[str, float]:
        rows = batches(INPUTS[inside[rank]], LABELS[inside[rank]])
        report = measured(outside(beside[rank]), loader=rows, second_pass=second_pass)
        return json.loads(json.dumps(dict(report)))

    wanted = dict(by_hand())
    for found in joined_ranks(2, tmp_path, program):
        assert_agree(found, wanted, rel=1e-10)


def test_processes_end_together(tmp_path: Path) -> None:
    def program(rank: int) -> str:
        try:
            if rank:
                measured(outside())
            else:
                measured([OUTSIDE * torch.nan])
        except InputError as error:
            return str(error)
        return "none"

    first, second = joined_ranks(2, tmp_path, program)
    assert "finite OOD features" in first
    assert "on rank 0" in second


def test_ood_in_one_process_only_is_refused(tmp_path: Path) -> None:
    def program(rank: int) -> str:
        options = {"layers": [], "progress": False}
        try:
            ncscope.measure_model(network(), batches(), ood=outside() if rank else None, **options)
        except InputError as error:
            return str(error)
        return "none"

    assert all(
        "the same ood in every process" in said for said in joined_ranks(2, tmp_path, program)
    )


@pytest.mark.slow
def test_drawn_samples_of_processes_have_weights(tmp_path: Path) -> None:
    """The first process draws 10 of 50 equal samples, the second all of its 10."""
    equal = (INPUTS[:1].expand(50, -1), LABELS[:1].expand(50))
    others = (INPUTS[1:11], LABELS[1:11])

    def program(rank: int) -> dict[str, float]:
        rows = batches(*(others if rank else equal))
        return json.loads(json.dumps(dict(measured(loader=rows, second_pass=10))))

    whole = measured(loader=batches(*map(torch.cat, zip(equal, others, strict=True))))
    for found in joined_ranks(2, tmp_path, program):
        assert_agree(found, dict(whole), rel=1e-9)
