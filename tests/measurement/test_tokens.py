"""Token by token: every token of a model that classifies each is a sample."""

import pytest
import torch
from torch import Tensor, nn

import ncscope
from ncscope.array_checks import IGNORED
from ncscope.errors import InputError

from ..closeness import assert_agree

K, D, N, T = 7, 5, 12, 6


class Language(nn.Module):
    """A causal language model: its head is the embedding's weight."""

    def __init__(self, tokens: int = K, dim: int = D) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, dim)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.Tanh(), nn.Linear(2 * dim, dim)) for _ in "ab"
        )
        self.lm_head = nn.Linear(dim, tokens, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        h = self.embedding(input_ids)
        for block in self.blocks:
            h = h + block(h).cumsum(dim=1)
        return {"logits": self.lm_head(h), "states": h}


@pytest.fixture
def model() -> Language:
    torch.manual_seed(0)
    return Language()


def texts(lengths: tuple[int, ...] = (6, 6, 4)) -> list[dict[str, Tensor]]:
    """Batches of texts of other lengths, the last two tokens of each first text padding."""
    torch.manual_seed(1)
    batches = []
    for length in lengths:
        ids = torch.randint(K, (4, length))
        labels = ids.clone()
        labels[0, -2:] = IGNORED
        batches.append({"input_ids": ids, "labels": labels})
    return batches


def measured(model: nn.Module, batches: object, **options: object) -> ncscope.ModelReport:
    return ncscope.measure_model(model, batches, progress=False, **options)


def test_the_next_token_is_the_class_of_each(model: Language) -> None:
    report = measured(model, texts(), next_token=True)
    features, classes = [], []
    with torch.no_grad():
        for batch in texts():
            states, labels = model(batch["input_ids"])["states"], batch["labels"]
            for text, classes_of_text in zip(states, labels, strict=True):
                for index in range(len(text) - 1):
                    if classes_of_text[index + 1] != IGNORED:
                        features.append(text[index])
                        classes.append(int(classes_of_text[index + 1]))
    by_hand = ncscope.measure(torch.stack(features), classes, model.lm_head.weight)
    assert report.num_samples == 4 * (5 + 5 + 3) - 3 * 2
    assert_agree(report, dict(by_hand))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("next_token", [False, True])
def test_padding_that_the_mask_hides_is_not_measured(
    model: Language, left: bool, next_token: bool
) -> None:
    hidden, ignored = texts((6, 6)), texts((6, 6))
    for batch, other in zip(hidden, ignored, strict=True):
        batch["labels"] = (batch["input_ids"] + 1) % K
        other["labels"] = batch["labels"].clone()
        batch["attention_mask"] = torch.ones(4, 6, dtype=torch.int64)
        batch["attention_mask"][1, slice(2) if left else slice(4, 6)] = 0
        # With padding on the left, the first token has none before it that could predict it.
        other["labels"][1, slice(2 + next_token) if left else slice(4, 6)] = IGNORED
    found, expected = (measured(model, data, next_token=next_token) for data in (hidden, ignored))
    assert found.num_samples == 2 * (4 * (6 - next_token) - 2)
    assert dict(found) == dict(expected)


def test_labels_of_the_tokens_themselves(model: Language) -> None:
    batches = [batch | {"labels": (batch["input_ids"] + 1) % 4} for batch in texts()]
    batches[1]["labels"][2] = IGNORED
    report = measured(model, batches, layers=["blocks.*"])
    kept = torch.cat([batch["labels"].flatten() for batch in batches]) != IGNORED
    seen: list[Tensor] = []
    hook = model.blocks[0].register_forward_hook(lambda _, __, out: seen.append(out.flatten(0, 1)))
    with torch.no_grad():
        states = [model(batch["input_ids"])["states"].flatten(0, 1) for batch in batches]
    hook.remove()
    labels = torch.cat([batch["labels"].flatten() for batch in batches])[kept]
    by_hand = ncscope.measure(torch.cat(states)[kept], labels, model.lm_head.weight)
    assert_agree(report, dict(by_hand))
    block = ncscope.measure(torch.cat(seen)[kept], labels, num_classes=K, groups=["pfc"])
    assert_agree(report.layers["blocks.0"], dict(block))


def test_a_batch_of_ignored_tokens_changes_nothing(model: Language) -> None:
    ignored = {"input_ids": torch.zeros(2, 5, dtype=torch.long)}
    ignored["labels"] = torch.full((2, 5), IGNORED)
    expected = measured(model, texts(), next_token=True)
    for batches in ([*texts(), ignored], [ignored, *texts()]):
        assert_agree(measured(model, batches, next_token=True), dict(expected))


def test_what_would_measure_something_else_is_refused(model: Language) -> None:
    with pytest.raises(InputError, match="those of the tokens that it is shown; pass next_token"):
        measured(model, texts())
    batch = texts()[0]
    with pytest.raises(InputError, match=r"a label for each of 4 x 6 tokens, found .*\(4,\)"):
        measured(model, [batch | {"labels": batch["labels"][:, 0]}])
    with pytest.raises(InputError, match="logits of every token for next_token"):
        measured(nn.Linear(3, 2), [(torch.randn(4, 3), torch.arange(4) % 2)], next_token=True)


def test_tokens_without_labels_are_measured_as_the_message_says(model: Language) -> None:
    tokens = [{"input_ids": each["input_ids"]} for each in texts()]
    with pytest.raises(InputError, match="for next_token=True that is split_batch='input_ids'"):
        ncscope.measure_model(model, tokens, next_token=True, progress=False)
    named = {"split_batch": "input_ids", "next_token": True, "progress": False}
    labelled = [each | {"labels": each["input_ids"]} for each in tokens]
    wanted = ncscope.measure_model(model, labelled, next_token=True, progress=False)
    assert_agree(dict(ncscope.measure_model(model, tokens, **named)), dict(wanted))
