"""Weights are found in whatever is saved around them, and never guessed among several."""

from typing import Any

import pytest
import torch

from ncscope.errors import InputError
from ncscope.models.weights import find_weights, match_head, match_names, weights_notes

W, V = torch.ones(2, 3), torch.zeros(2)
NET = {"fc.weight": W, "fc.bias": V}
OPTIMIZER = {"state": {0: {"exp_avg": W, "step": V}}, "param_groups": [{"lr": 0.1}]}

FOUND: dict[str, tuple[dict[str, Any], str]] = {
    "a state dict": (NET, ""),
    "a checkpoint": ({"epoch": 1, "state_dict": NET, "optimizer": OPTIMIZER}, "state_dict"),
    "a checkpoint within": ({"model": {"state_dict": NET}, "step": V}, "model.state_dict"),
    "settings under a usual name": ({"model": {"depth": 18}, "net": NET}, "net"),
    "a usual name among others": ({"rng": {"cpu": V}, "model": NET}, "model"),
    "an unusual name": ({"encoder": NET, "optimizer": OPTIMIZER}, "encoder"),
    "an average beside": ({"model_ema": NET, "ema": {"w": V}, "model": NET}, "model"),
    "an average beside an unusual name": ({"encoder_ema": NET, "encoder": NET}, "encoder"),
    "extra states of modules": (
        {"state_dict": NET | {"fc._extra_state": {"scale": W}, "x._extra_state": None}},
        "state_dict",
    ),
    "an extra state in a plain file": (NET | {"_extra_state": {"weight": W}}, ""),
    "an average alone": ({"ema_state_dict": NET, "optimizer": OPTIMIZER}, "ema_state_dict"),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_entry_that_holds_the_weights(name: str) -> None:
    content, key = FOUND[name]
    found = find_weights(content, "a.pt")
    assert (found.key, list(found.tensors)) == (key, list(NET))
    if key:
        assert find_weights(content, "a.pt", key) == found


SEVERAL: dict[str, tuple[dict[str, Any], str]] = {
    "usual names": ({"model": NET, "net": NET}, "'model', 'net'"),
    "unusual names": ({"gen": NET, "disc": NET, "epoch": 1}, "'gen', 'disc'"),
    "averages": ({"ema": NET, "swa": NET}, "'ema', 'swa'"),
    "nested": ({"model": {"a": NET, "b": NET}}, "'model.a', 'model.b'"),
    # Lightning's WeightAveraging writes the average under the usual name.
    "an average of Lightning": (
        {"state_dict": NET, "current_model_state": NET, "averaging_state": {"n_averaged": V}},
        "'state_dict', 'current_model_state'",
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_models(name: str) -> None:
    content, names = SEVERAL[name]
    with pytest.raises(InputError) as refused:
        find_weights(content, "a.pt")
    assert str(refused.value) == (
        f"expected weights of one model in a.pt, found weights under {names}; "
        "choose one with --weights-key"
    )


def test_keys_with_dots_and_beginnings_of_names() -> None:
    content = {"a.b": {"c": NET}, "a": {"x": V}, "teacher.fc.weight": W}
    assert list(find_weights(content, key="a.b.c").tensors) == list(NET)
    assert list(find_weights(content, key="a").tensors) == ["x"]
    assert list(find_weights(content, key="teacher").tensors) == ["teacher.fc.weight"]
    with pytest.raises(InputError, match=r"weights under 'a\.z' in .*, found weights under 'a.b'"):
        find_weights(content, key="a.z")


def test_named_tensors_are_not_passed_over_for_what_is_beside_them() -> None:
    with pytest.raises(InputError, match=r"by name in a\.pt, found something else under 'x'"):
        find_weights(NET | {"x": {"scale": W}}, "a.pt")


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model._orig_mod.", "module." * 99])
def test_a_prefix_is_removed(prefix: str) -> None:
    fitted = match_names({prefix + name: value for name, value in NET.items()}, list(NET))
    assert list(fitted.tensors) == list(NET)
    assert fitted.unused == ()
    assert fitted.prefix + ("_orig_mod." if fitted.had_wrappers else "") == prefix


def test_names_inside_a_plain_file_are_kept() -> None:
    """Nothing is left out of a larger model of the same names, so that it is refused later."""
    larger = NET | {"block.fc.weight": W, "block.fc.bias": V, "train_accuracy.total": V}
    fitted = match_names(larger, list(NET))
    assert (fitted.tensors, fitted.prefix, fitted.unused) == (larger, "", ())
    assert match_names({"conv.weight": W}, list(NET)).tensors == {"conv.weight": W}


def prefixed(*prefixes: str, of: dict[str, Any] = NET) -> dict[str, torch.Tensor]:
    return {prefix + name: value for prefix in prefixes for name, value in of.items()}


def test_one_prefix_of_several() -> None:
    assert match_names(prefixed("model.", "model_ema.module."), list(NET)).prefix == "model."
    assert match_names(prefixed("ema."), list(NET)).prefix == "ema."
    assert match_names(prefixed("model.") | {"old.fc.bias": V}, list(NET)).prefix == "model."
    with pytest.raises(InputError, match="weights under 'student', 'teacher'; choose one with"):
        match_names(prefixed("student.", "teacher."), list(NET))


def test_notes() -> None:
    def notes(content: dict[str, Any]) -> tuple[str, ...]:
        saved = find_weights(content, "a.pt")
        return weights_notes(saved, match_names(saved.tensors, list(NET)))

    assert notes({"state_dict": NET}) == ()
    assert notes(prefixed("ema.")) == (
        "weights: a.pt holds a running average (EMA)",
        "weights: prefix 'ema.' removed",
    )
    many = {f"loss.{index}": V for index in range(20)}
    assert notes(prefixed("net.") | many)[1].endswith("'loss.7' and 12 more")


BODY = {f"body.{name}": torch.ones(3) for name in ("weight", "bias", "running_mean")}


@pytest.mark.parametrize(
    ("file", "source"),
    [
        (BODY | {"head.weight": W, "head.bias": V}, "head"),
        (prefixed("model.", of=BODY) | {"head.weight": W, "head.bias": V}, "head"),
        (BODY | {"fc.bias": V, "head.weight": W}, ""),  # the bias is there
        (BODY | {"head.weight": W}, ""),
        (prefixed("model.", of=BODY) | {"head.weight": W, "head.bias": V, "queue": W}, ""),
        (prefixed("model.", of=BODY) | {"criterion.weight": W, "h.weight": W, "h.bias": V}, ""),
        (prefixed("model.", of=BODY) | {"ema.fc.weight": W, "ema.fc.bias": V}, ""),
        (prefixed("model_ema.", of=BODY) | {"ema.h.weight": W, "ema.h.bias": V}, "ema.h"),
    ],
)
def test_a_head_is_renamed_only_if_nothing_else_can_be_meant(
    file: dict[str, Any], source: str
) -> None:
    shapes = {name: tuple(value.shape) for name, value in (BODY | NET).items()}
    fitted = match_head(match_names(file, shapes), file, shapes)
    assert fitted.head == ((source, "fc") if source else ())
    assert (fitted.tensors.keys() == shapes.keys()) == bool(source)
