"""The callback in real runs of transformers' trainer logs what `measure_model` measures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    default_data_collator,
)
from transformers.utils import logging

import ncscope
from ncscope.integrations.huggingface import NeuralCollapseTrainerCallback

from ..pace import others_slow

SIZE = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "num_labels": 4,
}
NAMES = ("ant", "bee", "cat", "dog")
Rows = list[dict[str, Any]]
logging.set_verbosity_error()


def images(count: int, seed: int) -> Rows:
    noise = torch.randn(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return [{"pixel_values": noise[i] + i % 4, "labels": i % 4} for i in range(count)]


def sentences(count: int, seed: int) -> Rows:
    """Of 1 to 7 words."""
    words = torch.randint(1, 10, (count, 7), generator=torch.Generator().manual_seed(seed))
    return [
        {"input_ids": (words[i] + 10 * (i % 4)).tolist()[: i % 7 + 1], "labels": i % 4}
        for i in range(count)
    ]


def padded(rows: Rows) -> dict[str, Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    ids = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows]
    return {
        "input_ids": torch.tensor(ids),
        "attention_mask": (torch.arange(longest) < lengths[:, None]).long(),
        "labels": torch.tensor([row["labels"] for row in rows]),
    }


def vision() -> nn.Module:
    return ViTForImageClassification(ViTConfig(**SIZE, image_size=4, patch_size=2))


def language() -> nn.Module:
    return BertForSequenceClassification(
        BertConfig(**SIZE, vocab_size=50, max_position_embeddings=8)
    )


KINDS = {
    "images": (vision, images, default_data_collator, "vit.layers.0"),
    "sequences": (language, sentences, padded, "bert.encoder.layer.0"),
}


def run(
    folder: Path,
    make: Callable[[], nn.Module],
    data: Callable[..., Rows],
    collate: Any,
    callbacks: Sequence[Any] = (),
    **settings,
) -> Trainer:
    torch.manual_seed(0)
    arguments = TrainingArguments(
        str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        learning_rate=1e-2,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        **settings,
    )
    train, held_out = data(24, 0), data(40, 1)
    return Trainer(
        make(),
        arguments,
        train_dataset=train,
        eval_dataset=held_out,
        data_collator=collate,
        callbacks=list(callbacks),
    )


def counted(model: nn.Module) -> list[int]:
    passes: list[int] = []
    model.register_forward_pre_hook(lambda module, args: passes.append(1))
    return passes


@pytest.mark.parametrize("kind", others_slow(KINDS, "sequences"))
@pytest.mark.usefixtures("capsys")
def test_evaluations_are_measured(kind, tmp_path):
    make, data, collate, layer = KINDS[kind]
    alone, followed = (run(tmp_path, make, data, collate) for _ in range(2))
    callback = NeuralCollapseTrainerCallback(log="all", by_class=True)
    followed.add_callback(callback)
    passes = counted(alone.model), counted(followed.model)
    for trainer in (alone, followed):
        torch.manual_seed(1)
        trainer.train()
    # To find the head, batch axes, and the order of rows, in each of two evaluations.
    assert len(passes[1]) == len(passes[0]) + 2 * 4
    after = followed.model.state_dict(), alone.model.state_dict()
    torch.testing.assert_close(*after, rtol=0, atol=0)

    loader = DataLoader(data(40, 1), batch_size=16, collate_fn=collate)
    report = ncscope.measure_model(followed.model, loader, progress=False)
    assert callback.latest["eval"] == report.model_record
    assert [each.step for each in callback.history] == [3, 6]
    assert callback.history["nc1"].tolist()[-1] == report["nc1"]
    logs = [log for log in followed.state.log_history if "eval_nc/nc1" in log]
    assert [log["epoch"] for log in logs] == [1, 2]
    assert logs[-1][f"eval_nc/{layer}/pfc1"] == report.layers[layer]["pfc1"]
    keys = [key for key in report if not key.startswith(("pfc", "seli_logits"))]
    assert {key: logs[-1][f"eval_nc/{key}"] for key in keys} == {key: report[key] for key in keys}

    followed.predict(data(16, 2))  # leaves nothing behind
    returned = followed.evaluate(metric_key_prefix="again")
    assert returned["again_nc/nc1"] == report["nc1"]
    followed.remove_callback(callback)
    assert "eval_nc/nc1" not in followed.evaluate()
    hooked = [name for name, module in followed.model.named_modules() if module._forward_hooks]
    assert hooked == []


@pytest.mark.usefixtures("capsys")
def test_passes_outside_of_an_evaluation_leave_nothing_behind(tmp_path):
    callback = NeuralCollapseTrainerCallback(groups=["nc1"], layers=[])
    trainer = run(tmp_path, vision, images, default_data_collator, [callback])
    before = trainer.evaluate()["eval_nc/nc1"]
    for count in (16, 5):  # of the evaluation's batches, and of none of them
        with torch.no_grad():
            inputs = default_data_collator(images(count, 3))
            trainer.model.eval()(inputs["pixel_values"], labels=3 - inputs["labels"])
        assert trainer.evaluate()["eval_nc/nc1"] == before


@pytest.mark.usefixtures("capsys")
def test_an_evaluation_that_was_interrupted_does_not_count(tmp_path):
    class Interrupting(TrainerCallback):
        def on_prediction_step(self, args, state, control, **kwargs):
            raise KeyboardInterrupt

    callback = NeuralCollapseTrainerCallback(groups=["nc1"], layers=[])
    trainer = run(tmp_path, vision, images, default_data_collator, [callback, Interrupting])
    with pytest.raises(KeyboardInterrupt):
        trainer.evaluate()
    trainer.remove_callback(Interrupting)
    trainer.evaluate()
    assert callback.latest["eval"].layers[-1].num_samples == 40


@pytest.mark.usefixtures("capsys")
def test_a_model_that_is_not_given_the_labels_is_refused(tmp_path):
    callback = NeuralCollapseTrainerCallback(groups=["nc1"], on_error="raise")
    smooth = {"label_smoothing_factor": 0.1}
    trainer = run(tmp_path, vision, images, default_data_collator, [callback], **smooth)
    with pytest.raises(ncscope.InputError, match=r"expected 'labels' among .*found none"):
        trainer.evaluate()


@pytest.mark.usefixtures("capsys")
def test_marks_are_left_out_and_names_come_along(tmp_path):
    def named():
        config = ViTConfig(**SIZE, image_size=4, patch_size=2, id2label=dict(enumerate(NAMES)))
        return ViTForImageClassification(config)

    def marked(count, seed):  # the loss of the model leaves out -100 too
        rows = enumerate(images(count, seed))
        return [row | {"labels": -100 if at % 5 == 0 else row["labels"]} for at, row in rows]

    def turn(batch):
        return batch, torch.where(batch["labels"] < 0, -100, 3 - batch["labels"])

    some = {"groups": ["nc1", "nc3"], "layers": [], "ignore_index": -100}
    rows = default_data_collator([row for row in marked(40, 1) if row["labels"] >= 0])
    for options, labels in (({}, rows["labels"]), ({"split_batch": turn}, 3 - rows["labels"])):
        callback = NeuralCollapseTrainerCallback(**some, **options)
        trainer = run(tmp_path, named, marked, default_data_collator, [callback])
        trainer.evaluate()
        batches = [rows | {"labels": labels}]
        report = ncscope.measure_model(trainer.model, batches, progress=False, **some)
        last = callback.latest["eval"].layers[-1]
        assert last.metrics == pytest.approx(dict(report), rel=1e-4)  # other batches, in float32
        assert last.notes[0] == "8 of 40 samples left out: labelled -100"
        assert callback.history.provenance.class_names == NAMES


class Replacing(TrainerCallback):
    def on_epoch_begin(self, args, state, control, model, **kwargs):
        if state.epoch and state.epoch >= 1:
            torch.manual_seed(5)
            model.classifier = nn.Linear(model.classifier.in_features, 7)
            model.num_labels = model.config.num_labels = 7


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("capsys")
def test_a_head_that_is_replaced_within_a_training_is_found_again(kind, tmp_path):
    make, data, collate, _ = KINDS[kind]
    callback = NeuralCollapseTrainerCallback(groups=["nc1", "nc3"])
    trainer = run(tmp_path, make, data, collate, [callback, Replacing()])
    before = trainer.model.config.num_labels
    trainer.train()
    assert [m.model_record.layers[-1].num_classes for m in callback.history] == [before, 7]
    batches = trainer.get_eval_dataloader()
    report = ncscope.measure_model(trainer.model, batches, groups=["nc1", "nc3"], progress=False)
    found = callback.latest["eval"].layers[-1].metrics
    assert found == pytest.approx(dict(report), rel=1e-6)
