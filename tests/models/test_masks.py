"""Padding is never averaged: each layer has the mask that the module around it was given."""

import os
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ncscope
from ncscope.errors import InputError
from ncscope.models.masks import PassMasks

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

N = 16
LABELS = torch.arange(N) % 3
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "num_labels": 3,
}


def values(model: nn.Module, batches: Any, **settings: Any) -> dict[str, tuple[int, float]]:
    report = ncscope.measure_model(model, batches, groups=["nc1"], progress=False, **settings)
    return {name: (layer.dim, layer["pfc1"]) for name, layer in report.layers.items()}


def close(found: dict[str, tuple[int, float]]) -> dict[str, Any]:
    return {name: (dim, pytest.approx(value, rel=1e-4)) for name, (dim, value) in found.items()}


def sounds(extra: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    waves = torch.randn(N, 1600, generator=generator)
    lengths = torch.randint(800, 1601, (N, 1), generator=generator)
    kept, more = (torch.arange(1600) < lengths).long(), torch.zeros(N, extra)
    return {
        "input_values": torch.cat([waves * kept, more], 1),
        "attention_mask": torch.cat([kept, more.long()], 1),
        "labels": LABELS,
    }


def texts(length: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 40, (N, 6), generator=generator)
    kept = (torch.arange(length) < torch.randint(3, 7, (N, 1), generator=generator)).long()
    ids = torch.cat([ids, torch.ones(N, length - 6, dtype=torch.long)], 1)
    return {"input_ids": ids * kept + 1 - kept, "attention_mask": kept, "labels": LABELS}


def wav2vec2() -> nn.Module:
    convolutions = {"conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 8)}
    config = transformers.Wav2Vec2Config(
        **SIZES,
        **convolutions,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=8,
        feat_extract_norm="layer",
        do_stable_layer_norm=True,
    )
    return transformers.Wav2Vec2ForSequenceClassification(config)


def longformer() -> nn.Module:
    return transformers.LongformerForSequenceClassification(
        transformers.LongformerConfig(
            **SIZES, vocab_size=50, pad_token_id=1, attention_window=4, max_position_embeddings=64
        )
    )


def bert() -> nn.Module:
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(**SIZES, vocab_size=50)
    )


PADDED = {
    "Wav2Vec2": (wav2vec2, sounds(0), sounds(400)),
    "Longformer": (longformer, texts(6), texts(10)),
    "BERT": (bert, texts(6), texts(9)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pool", [pytest.param(None, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("name", PADDED)
def test_more_padding_changes_nothing(name: str, pool: bool | None) -> None:
    make, short, long = PADDED[name]
    torch.manual_seed(0)
    model = make().eval()
    found = values(model, [short], pool=pool)
    assert [dim for dim, _ in found.values()][:-1] == [16, 16]
    assert values(model, [long], pool=pool) == close(found)
    assert len(values(model, [short, long], pool=pool)) == len(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_layers_after_pooling_are_left_out_or_refused_and_the_advice_holds() -> None:
    torch.manual_seed(0)
    config = transformers.FunnelConfig(
        vocab_size=50, block_sizes=[1, 1], d_model=16, n_head=2, d_head=8, d_inner=32, num_labels=3
    )
    model = transformers.FunnelForSequenceClassification(config).eval()
    report = ncscope.measure_model(model, [texts(6)], groups=["nc1"], progress=False)
    assert list(report.layers) == ["funnel.encoder.blocks.0.0", "head input"]
    assert any(note.startswith("layers left out: funnel.encoder.b") for note in report.notes)
    layer = "funnel.encoder.blocks.1.0"
    with pytest.raises(InputError, match=rf"padding in layer '{layer}'.*a mask of 6 tokens.*pool="):
        values(model, [texts(6)], layers=[layer])
    assert values(model, [texts(6)], layers=[layer], pool=False)[layer][0] > 16
    whole = {**texts(6), "attention_mask": torch.ones(N, 6, dtype=torch.long)}
    assert values(model, [whole], layers=[layer])[layer][0] == 3 * 16  # there is no padding
    assert list(values(model, [whole])) == ["funnel.encoder.blocks.0.0", "head input"]
    with pytest.raises(InputError, match="tells the padding"):
        values(model, [whole, texts(6)], layers=[layer])
    without = {name: value for name, value in whole.items() if name != "attention_mask"}
    assert len(values(model, [without])) == 3  # the model makes a mask of ones


def translations(length: int) -> dict[str, Tensor]:
    """A source of three tokens and padding, and six tokens to predict, of which one is marked."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(2, 30, (8, 3), generator=generator)
    source = torch.cat([source, torch.zeros(8, length - 3, dtype=torch.long)], 1)
    labels = torch.randint(2, 30, (8, 6), generator=generator)
    labels[0, 5] = -100
    mask = (torch.arange(length) < 3).long().repeat(8, 1)
    return {"input_ids": source, "attention_mask": mask, "labels": labels}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_mask_of_the_source_hides_no_token_of_the_target() -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=30, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
        decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval()
    found = {}
    for length in (6, 7):
        batch = translations(length)
        shown = model._shift_right(batch["labels"].masked_fill(batch["labels"] == -100, 0))
        for given in ({}, {"decoder_input_ids": shown}):
            report = ncscope.measure_model(model, [batch | given], groups=["nc1"], progress=False)
            assert report.num_samples == 47
            assert list(report.layers) == ["decoder.block.0", "decoder.block.1", "head input"]
            found[length, bool(given)] = report["nc1"]
            with torch.no_grad(), ncscope.watch(model, groups=["nc1"]) as seen:
                model(**batch, **given)
                seen.labels(batch["labels"])
            assert seen.report()["nc1"] == pytest.approx(report["nc1"], rel=1e-9)
    assert len({round(value, 4) for value in found.values()}) == 1
    batch = translations(6) | {"decoder_attention_mask": (torch.arange(6) < 4).long().repeat(8, 1)}
    report = ncscope.measure_model(model, [batch], groups=["nc1"], progress=False)
    assert report.num_samples == 8 * 4
    with pytest.raises(InputError, match=r"'encoder\.block\.0' .* a layer of the encoder"):
        values(model, [translations(6)], layers=["encoder.block.*"])


@pytest.mark.filterwarnings("ignore")
def test_a_decoder_with_a_mask_of_its_own_is_averaged_by_it() -> None:
    torch.manual_seed(0)
    config = transformers.BartConfig(
        vocab_size=50, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_labels=3,
        max_position_embeddings=32, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        decoder_start_token_id=2, forced_eos_token_id=2,
    )  # fmt: skip
    model = transformers.BartForSequenceClassification(config).eval()
    batch = texts(6)
    batch["input_ids"] = batch["input_ids"].clamp(min=3)
    batch["input_ids"][:, 2] = 2
    encoder = ["model.encoder.layers.0", "model.encoder.layers.1"]
    assert list(values(model, [batch])) == [*encoder, "head input"]
    with pytest.raises(InputError, match="decoder_attention_mask") as error:
        values(model, [batch], layers=["model.decoder.layers.0"])
    assert "no mask of its own" in error.value.found
    both = batch | {"decoder_attention_mask": batch["attention_mask"]}
    found = values(model, [both], layers=["model.*coder.layers.0"])
    assert {dim for dim, _ in found.values()} == {16}


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize(
    ("mask", "kept"),
    [
        (torch.tensor([[1, 1, 0]]), [True, True, False]),
        (torch.tensor([[True, False, True]]), [True, False, True]),
        (torch.tensor([[1.0, 0.0, 1.0]]), [True, False, True]),
        (torch.tensor([[0.0, -1e4, 0.0]]), [True, False, True]),
        (torch.tensor([[1e4, 0.0, -torch.inf]]), [True, True, False]),
        (torch.zeros(1, 3), [True, True, True]),
        (None, None),
    ],
)
def test_what_a_mask_keeps(mask: Tensor | None, kept: list[bool] | None) -> None:
    model = Around()
    masks = PassMasks(model, ["layer"])
    with masks.record():
        model(torch.zeros(1, 3, 2), mask)
    found = masks.mask_of("layer")
    assert (None if found is None else found[0].tolist()) == kept
    assert masks.has_any == (mask is not None)
    masks.forget()
    assert masks.mask_of("layer") is None
