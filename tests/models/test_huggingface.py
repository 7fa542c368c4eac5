"""Classifiers of Hugging Face on images, text and sound, and models that classify every token."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.forward import forward
from ncscope.models.heads import Rows
from ncscope.models.layers import find_repeated_blocks
from ncscope.models.taps import HEAD_INPUT, Taps
from ncscope.models.tracing import trace

# Importing the library takes longer than all of the tests.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
]

K, N, VOCABULARY = 5, 6, 40
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
TINY_GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 1}
SOUND = {
    "conv_dim": (8, 8),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 8,
}
Inputs = dict[str, Tensor]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def pictures() -> Inputs:
    return {"pixel_values": drawn(N, 3, 32, 32)}


def sound() -> Inputs:
    return {"input_values": drawn(N, 400)}


def sentences() -> Inputs:
    """Of different lengths, padded on the right."""
    ids = torch.randint(2, VOCABULARY, (N, 9), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(9) < torch.arange(9, 9 - N, -1)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def built(name: str, **options: object) -> nn.Module:
    """A model of the library with random weights; its configuration's class is named alike."""
    import transformers

    family = name.split("For")[0].removesuffix("LMHeadModel")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**options)
    return getattr(transformers, name)(config)


def text(name: str, **options: object) -> Callable[[], nn.Module]:
    return lambda: built(name, vocab_size=VOCABULARY, pad_token_id=0, num_labels=K, **options)


def seen(name: str, **options: object) -> Callable[[], nn.Module]:
    return lambda: built(name, num_labels=K, **options)


PATCHES = {"image_size": 32, "patch_size": 8}
STAGES = {"hidden_sizes": [8, 16], "depths": [2, 1]}
# Model, inputs, head, what it is applied to.
CASES = {
    "ViT": (seen("ViTForImageClassification", **PATCHES, **TINY), pictures, "classifier"),
    "BERT": (text("BertForSequenceClassification", **TINY), sentences, "classifier"),
    "HuBERT": (seen("HubertForSequenceClassification", **SOUND, **TINY), sound, "classifier"),
    "GPT-2": (text("GPT2ForSequenceClassification", **TINY_GPT2), sentences, "score"),
    "ResNet": (
        seen("ResNetForImageClassification", embedding_size=8, layer_type="basic", **STAGES),
        pictures,
        "classifier.1",
    ),
    "ConvNeXt": (
        seen("ConvNextForImageClassification", num_stages=2, **STAGES),
        pictures,
        "classifier",
    ),
    "Swin": (
        seen(
            "SwinForImageClassification",
            image_size=32,
            embed_dim=8,
            depths=[2, 2],
            num_heads=[2, 2],
            window_size=4,
        ),
        pictures,
        "classifier",
    ),
    "DistilBERT": (
        text("DistilBertForSequenceClassification", dim=16, n_layers=2, n_heads=2, hidden_dim=24),
        sentences,
        "classifier",
    ),
    "RoBERTa": (text("RobertaForSequenceClassification", **TINY), sentences, "classifier.out_proj"),
    "Wav2Vec2": (seen("Wav2Vec2ForSequenceClassification", **SOUND, **TINY), sound, "classifier"),
    "Llama": (text("LlamaForSequenceClassification", **TINY), sentences, "score"),
}
TOKENS = {
    "GPT-2, tied": (text("GPT2LMHeadModel", **TINY_GPT2), sentences, "lm_head"),
    "Llama": (text("LlamaForCausalLM", tie_word_embeddings=False, **TINY), sentences, "lm_head"),
    "Llama, tied": (
        text("LlamaForCausalLM", tie_word_embeddings=True, **TINY),
        sentences,
        "lm_head",
    ),
    "BERT, masked": (text("BertForMaskedLM", **TINY), sentences, "cls.predictions.decoder"),
    "BERT, tokens": (text("BertForTokenClassification", **TINY), sentences, "classifier"),
}
CHOOSING = {"GPT-2", "Llama"}


def cases() -> Iterator:
    for name, case in CASES.items():
        rows = "chosen token" if name in CHOOSING else "sample"
        yield pytest.param(*case, rows, id=f"{name}, a {rows} a row")
    for name, case in TOKENS.items():
        yield pytest.param(*case, "token", id=f"{name}, a token a row")


@pytest.mark.parametrize(("make", "inputs", "name", "rows"), list(cases()))
def test_the_head_is_found(
    make: Callable[[], nn.Module], inputs: Callable[[], Inputs], name: str, rows: Rows
) -> None:
    """Traced features times the head are the logits to 1e-5, and the blocks have as many rows."""
    model, batch = make().train(), inputs()
    found, blocks = trace(model, batch), find_repeated_blocks(model)
    head = found.head
    assert (head.name, head.rows, head.gives_logits) == (name, rows, True)
    with evaluation_mode(model), found.taps(model) as taps:
        logits = forward(model, batch).logits
    assert torch.equal(taps.logits, logits)
    assert len(blocks) > 1
    assert found.layers == tuple(blocks)
    assert len({len(features) for features in taps.features.values()}) == 1
    outputs = nn.functional.linear(taps.features[HEAD_INPUT], head.weight, head.bias)
    torch.testing.assert_close(
        outputs, logits.flatten(0, -2), rtol=0, atol=1e-5 * logits.abs().max().item()
    )


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_last_token_before_the_padding_is_chosen(side: str) -> None:
    model, batch = CASES["GPT-2"][0](), sentences()
    last = batch["attention_mask"].sum(dim=1) - 1
    if side == "left":
        batch = {name: value.flip(1) for name, value in batch.items()}
        last = torch.full((N,), 8)
    with (
        evaluation_mode(model),
        Taps(model, ["transformer.h.1"], "score", rows="chosen token") as taps,
    ):
        model(**batch)
    with evaluation_mode(model):
        states = model.transformer(**batch).last_hidden_state
        before = model.transformer.ln_f(taps.features["transformer.h.1"])
    assert torch.equal(taps.features[HEAD_INPUT], states[range(N), last])
    torch.testing.assert_close(before, taps.features[HEAD_INPUT])


SHARED = "albert.encoder.albert_layer_groups.0.albert_layers.0"
# Models whose layers are sequence-first, or share their weights, with their default layers.
UNUSUAL = {
    "XLNet": (
        text("XLNetForSequenceClassification", d_model=16, n_layer=3, n_head=2, d_inner=24),
        [f"transformer.layer.{i}" for i in range(3)],
    ),
    "ALBERT": (
        text("AlbertForSequenceClassification", embedding_size=8, **TINY),
        [SHARED, f"{SHARED}#2"],
    ),
    "Perceiver": (
        text(
            "PerceiverForSequenceClassification",
            d_latents=16,
            d_model=16,
            num_latents=N,
            num_blocks=2,
            num_self_attends_per_block=2,
            num_self_attention_heads=2,
            num_cross_attention_heads=2,
            max_position_embeddings=9,
        ),
        [
            "perceiver.encoder.cross_attention",
            *(f"perceiver.encoder.self_attends.{call}" for call in ("0", "1", "0#2", "1#2")),
        ],
    ),
}


@pytest.mark.parametrize("tokens", [N, 9])
@pytest.mark.parametrize(("make", "layers"), UNUSUAL.values(), ids=UNUSUAL)
def test_default_layers_are_the_hidden_states(
    make: Callable[[], nn.Module], layers: list[str], tokens: int
) -> None:
    """Batch-first, as the library returns them, also with as many tokens as samples."""
    model = make()
    batch = {name: value[:, :tokens] for name, value in sentences().items()}
    found = trace(model, batch, pool=False)
    with evaluation_mode(model), found.taps(model, pool=False) as taps:
        states = forward(model, batch | {"output_hidden_states": True}).hidden_states
    assert list(taps.features) == [*layers, HEAD_INPUT]
    # Perceiver repeats a state between its blocks of layers.
    changed = [b for a, b in pairwise(states) if a.shape != b.shape or not torch.equal(a, b)]
    outputs = [states[0], *changed][-len(layers) :]
    for layer, output in zip(layers, outputs, strict=True):
        torch.testing.assert_close(taps.features[layer], output.flatten(1))
