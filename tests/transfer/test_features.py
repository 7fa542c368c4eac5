"""Features of a model over a loader, against the network's own parts."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ncscope.errors import InputError
from ncscope.stats.moments import ClassMoments
from ncscope.transfer.features import head_features, head_moments, head_readings


@pytest.fixture
def model():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.ReLU())
    return nn.Sequential(body, nn.Linear(3, 7)).double()


@pytest.fixture
def samples():
    draws = torch.Generator().manual_seed(1)
    return torch.randn(23, 4, generator=draws, dtype=torch.float64), torch.arange(23) % 3


def test_features_are_what_the_head_reads_and_the_model_stays_as_it_was(model, samples):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batches = []
    loader = DataLoader(TensorDataset(*samples), 5)
    features, labels = head_features(model, loader, on_batch=lambda: batches.append(1))
    assert (features.dtype, len(batches)) == (torch.float32, 5)
    assert torch.equal(labels, samples[1])
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    known = model.eval()[0](samples[0]).detach()
    torch.testing.assert_close(features, known.float(), rtol=0, atol=0)


def test_without_a_head_outputs_are_features(model, samples):
    loader = DataLoader(TensorDataset(*samples), 5)
    whole, _ = head_features(model, loader, has_head=False)
    torch.testing.assert_close(whole, model.eval()(samples[0]).detach().float())


def test_moments_are_those_of_the_features(model, samples):
    loader = DataLoader(TensorDataset(*samples), 5)
    found = head_moments(model, loader, 4)
    known = ClassMoments(4, 3)
    known.update(model.eval()[0](samples[0]).detach(), samples[1])
    assert torch.equal(found.counts, known.counts)
    for name in ("means", "traces", "scatter", "unit_means", "unit_traces"):
        torch.testing.assert_close(getattr(found, name), getattr(known, name))


def test_a_head_on_every_token_is_refused():
    tokens = TensorDataset(torch.randn(6, 5, 4), torch.zeros(6, 5, dtype=torch.int64))
    with pytest.raises(InputError, match="one row a sample, found one a token"):
        head_features(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), DataLoader(tokens, 3))


def test_probabilities_are_those_of_the_head(model, samples):
    loader = DataLoader(TensorDataset(*samples), 5)
    _, _, probabilities = head_readings(model, loader)
    known = model.eval()(samples[0]).detach().softmax(1)
    torch.testing.assert_close(probabilities, known.float())
    assert head_readings(model, loader, has_head=False)[2] is None
    with torch.no_grad():
        model[1].weight[3] = 1e300  # overflows in the last batch only
    rows = torch.cat([samples[0][:20], 1e10 * torch.ones(3, 4, dtype=torch.float64)])
    loader = DataLoader(TensorDataset(rows, samples[1]), 5)
    assert head_readings(model, loader)[2] is None


def test_a_backbone_that_ends_in_a_relu_is_told_from_a_classifier() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU())
    batches = [(torch.randn(8, 4), torch.arange(8) % 2)]
    with pytest.raises(InputError, match=r"ends in the ReLU of the outputs of '2'; pass has_head="):
        head_features(body, batches)
    features, _ = head_features(body, batches, has_head=False)
    torch.testing.assert_close(features, body(batches[0][0]).detach())
