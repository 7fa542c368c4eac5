"""Models by name with weights of one's own, whose number of outputs the weights tell."""

import pytest
import torch

from ncscope.errors import InputError
from ncscope.models.libraries import ModelRequest, open_model
from ncscope.models.networks.catalogue import build

timm = pytest.importorskip("timm")
models = pytest.importorskip("torchvision.models")

SHAPE = 3, 16, 16
MADE = {
    "small-resnet": lambda outputs: build("small-resnet", outputs, image_size=16),
    "timm:test_resnet": lambda outputs: timm.create_model("test_resnet", num_classes=outputs),
    "timm:test_vit": lambda outputs: timm.create_model("test_vit", num_classes=outputs),
    "torchvision:squeezenet1_1": lambda outputs: models.squeezenet1_1(num_classes=outputs),
}


@pytest.mark.parametrize("name", MADE)
def test_the_weights_tell_how_many_outputs_there_are(name):
    for outputs in (2, 7):
        weights = MADE[name](outputs).state_dict()
        opened = open_model(ModelRequest(name, None, SHAPE, weights=weights))
        found = opened.model.state_dict()
        assert opened.has_head
        assert all(torch.equal(found[key], value) for key, value in weights.items())


def test_weights_without_a_head_make_a_model_whose_outputs_are_features():
    weights = MADE["timm:test_vit"](0).state_dict()
    opened = open_model(ModelRequest("timm:test_vit", None, SHAPE, weights=weights))
    assert not opened.has_head
    with pytest.raises(InputError, match=r"head\.\w+ of shape .*found no head"):
        open_model(ModelRequest("timm:test_vit", 3, SHAPE, weights=weights))


def test_weights_of_another_model_are_refused():
    weights = MADE["timm:test_vit"](5).state_dict()
    with pytest.raises(InputError) as refused:
        open_model(ModelRequest("small-resnet", None, SHAPE, weights=weights))
    assert refused.value.fix == "name the model that was saved"
    names = ", ".join(list(weights)[:3])
    assert refused.value.found.endswith(f", but {names} and {len(weights) - 3} more")
    with pytest.raises(InputError, match="pass small-resnet@FILE"):
        open_model(ModelRequest("small-resnet", None, SHAPE, weights_from="small-resnet@FILE"))


def test_the_number_of_outputs_is_named_where_the_heads_differ():
    weights = MADE["timm:test_vit"](5).state_dict()
    for name, hinted in (("timm:test_vit", True), ("small-resnet", False)):
        with pytest.raises(InputError) as refused:
            open_model(ModelRequest(name, 3, SHAPE, weights=weights))
        assert ("--num-classes" in refused.value.fix) == hinted


def test_weights_of_more_outputs_than_fit_into_memory_are_refused(monkeypatch):
    whole = MADE["small-resnet"](7).state_dict()
    free = 4 * (whole["classifier.weight"].shape[1] + 1) * 10**6
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: free)
    head = {name: value for name, value in whole.items() if name.startswith("classifier")}
    rows = {name: value[:1].expand(10**6 + 1, *value.shape[1:]) for name, value in head.items()}
    with pytest.raises(InputError, match="a head of small-resnet with 1,000,001 outputs"):
        open_model(ModelRequest("small-resnet", None, SHAPE, weights=whole | rows))
