"""The callback changes nothing in runs of transformers' trainer that are written as users do."""

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset
from transformers import (
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

import ncscope
from ncscope.errors import InputError
from ncscope.integrations.huggingface import NeuralCollapseTrainerCallback
from ncscope.integrations.recording import MeasurementWarning
from ncscope.measurement.naming import HEADLINE

from ..pace import others_slow
from .patterns import states
from .test_huggingface import images, language, padded, sentences, vision

pytestmark = [
    pytest.mark.usefixtures("capsys"),
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing. is deprecated"),
]


def accuracy(prediction: Any) -> dict[str, float]:
    """In percent."""
    return {
        "accuracy": 100 * float((prediction.predictions.argmax(1) == prediction.label_ids).mean())
    }


def trainer_of(
    folder: Path,
    callbacks: list[Any],
    make: Any = vision,
    data: Any = images,
    collate: Any = default_data_collator,
    compute: Any = accuracy,
    **settings: Any,
) -> Trainer:
    torch.manual_seed(0)
    arguments = TrainingArguments(
        str(folder),
        **{
            "num_train_epochs": 4,
            "eval_strategy": "epoch",
            "save_strategy": "epoch",
            "load_best_model_at_end": True,
            "metric_for_best_model": "accuracy",
            "greater_is_better": True,
            "per_device_train_batch_size": 8,
            "per_device_eval_batch_size": 16,
            "learning_rate": 1e-2,
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            "remove_unused_columns": False,
            "dataloader_pin_memory": False,
            **settings,
        },
    )
    return Trainer(
        make(),
        arguments,
        train_dataset=data(24, 0),
        eval_dataset=data(40, 1),
        data_collator=collate,
        compute_metrics=compute,
        callbacks=[EarlyStoppingCallback(2, 1.0), *callbacks],
    )


def left_behind(trainer: Trainer) -> Any:
    """The user's values in the log, the best model, and the random states."""
    logs = [
        {
            key: value
            for key, value in log.items()
            if "nc/" not in key and "per_second" not in key and "time" not in key
        }
        for log in trainer.state.log_history
    ]
    logs = [log for log in logs if set(log) - {"epoch", "step"}]
    best = trainer.state.best_metric, Path(trainer.state.best_model_checkpoint).name
    return logs, best, trainer.state.global_step, states()


def assert_unharmed(folder: Path, callback: Any, **settings: Any) -> Trainer:
    alone, followed = (
        trainer_of(folder / name, callbacks, **settings)
        for name, callbacks in (("alone", []), ("followed", [callback]))
    )
    left = []
    for trainer in (alone, followed):
        torch.manual_seed(1)
        trainer.train()
        left.append(left_behind(trainer))
    assert left[0] == left[1]
    weights = [trainer.model.state_dict() for trainer in (alone, followed)]
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    return followed


def adapted() -> nn.Module:
    """A classifier with low-rank adapters, whose head is trained too."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    return peft.get_peft_model(language(), config)


class Streamed(IterableDataset):
    """Rows without a length."""

    def __init__(self, count: int, seed: int) -> None:
        self.rows = images(count, seed)

    def __iter__(self) -> Any:
        return iter(self.rows)


PATTERNS: dict[str, dict[str, Any]] = {
    "images": {},
    "sequences": {"make": language, "data": sentences, "collate": padded},
    "adapters": {"make": adapted, "data": sentences, "collate": padded},
    "gradient accumulation": {"gradient_accumulation_steps": 3},
    "mixed precision": {"bf16": True},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "steps of a stream": {
        "data": Streamed,
        "max_steps": 9,
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "eval_steps": 3,
        "save_steps": 3,
    },
    "compiled": {"torch_compile": True, "torch_compile_backend": "eager"},
}


@pytest.mark.parametrize("pattern", others_slow(PATTERNS, "sequences", "steps of a stream"))
def test_patterns_of_training_scripts_run_as_without_the_callback(pattern, tmp_path):
    callback = NeuralCollapseTrainerCallback()
    trainer = assert_unharmed(tmp_path, callback, **PATTERNS[pattern])
    logs = [log for log in trainer.state.log_history if "eval_nc/nc1" in log]
    assert len(logs) == len(callback.history) > 1
    head = {key.removeprefix("eval_nc/") for key in logs[-1] if key.count("/") == 1}
    assert head == set(HEADLINE)
    assert callback.latest["eval"].layers[-1].num_samples == 40


def test_the_callbacks_of_the_user_get_the_metrics(tmp_path):
    """TensorBoard's and others write what `on_log` gives them, also those that come first."""
    seen: list[dict[str, float]] = []

    class Writer(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))

    callback = NeuralCollapseTrainerCallback(groups=["nc1"], layers=[], save=tmp_path / "run.html")
    trainer = trainer_of(tmp_path, [Writer, callback], num_train_epochs=1)
    before = trainer.evaluate()
    assert before["eval_nc/nc1"] == callback.history["nc1"][0] == seen[-1]["eval_nc/nc1"]
    trainer.train()
    assert sum("eval_nc/nc1" in log for log in seen) == 2
    assert "<html" in (tmp_path / "run.html").read_text()


def test_an_error_of_a_callback_of_the_user_reaches_the_user(tmp_path):
    class Broken(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if "eval_nc/nc1" in logs:
                message = "the user's own"
                raise ValueError(message)

    callback = NeuralCollapseTrainerCallback(groups=["nc1"], layers=[])
    trainer = trainer_of(tmp_path, [callback, Broken])
    with warnings.catch_warnings():
        warnings.simplefilter("error", MeasurementWarning)
        for _ in range(2):  # measuring has not ended
            with pytest.raises(ValueError, match="the user's own"):
                trainer.evaluate()


@pytest.mark.slow
def test_a_callback_that_follows_several_trainings_keeps_them_apart(tmp_path):
    callback = NeuralCollapseTrainerCallback(groups=["nc4"], layers=[], reference="train")
    for _ in range(2):
        trainer = trainer_of(
            tmp_path,
            [callback],
            num_train_epochs=1,
            save_strategy="no",
            load_best_model_at_end=False,
        )
        trainer.train()
        trainer.evaluate(trainer.train_dataset, metric_key_prefix="train")
    runs = [(each.run, each.split, each.step) for each in callback.history]
    assert runs == [(run, split, 3) for run in ("", "fit 2") for split in ("eval", "train")]
    first, second = (callback.history.run(run).split("eval") for run in ("", "fit 2"))
    # by the samples' own class means, not by those of the run before
    assert first["nc4_disagreement"].tolist() == second["nc4_disagreement"].tolist()
    assert first["ncc_accuracy"].tolist() == second["ncc_accuracy"].tolist()


def test_trust_is_measured_on_request(tmp_path):
    callback = NeuralCollapseTrainerCallback(groups=["nc1"], layers=[], baseline=True)
    trainer_of(tmp_path, [callback]).evaluate()
    assert callback.latest["eval"].layers[-1].baseline["nc1"] > 0


def test_options_are_checked_before_the_run():
    with pytest.raises(InputError, match="found foo"):
        NeuralCollapseTrainerCallback(foo=1)


def test_a_name_of_the_user_stays_the_users(tmp_path):
    callback = NeuralCollapseTrainerCallback(groups=["nc1"], layers=[])
    compute = lambda prediction: {"nc/nc1": 7.0, **accuracy(prediction)}  # noqa: E731
    trainer = trainer_of(tmp_path, [callback], compute=compute)
    with pytest.warns(MeasurementWarning, match="logs eval_nc/nc1; these values") as caught:
        found = [trainer.evaluate() for _ in range(2)]
    assert len(caught) == 1
    assert found[1]["eval_nc/nc1"] == 7
    assert "eval_nc/vci" in found[1]


def test_a_callback_that_is_added_late_says_what_it_misses(tmp_path):
    trainer = trainer_of(tmp_path, [])
    callback = NeuralCollapseTrainerCallback(groups=["nc1"], layers=[])
    trainer.add_callback(callback)
    with pytest.warns(MeasurementWarning, match="'eval' was not measured: the callback was added"):
        assert "eval_nc/nc1" not in trainer.evaluate()
    assert "eval_nc/nc1" in trainer.evaluate()
    assert callback.latest["eval"].layers[-1].num_samples == 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_smoothing_factor": 0.1}, "'labels' among the inputs of the model, found none"),
        ({"make": lambda: Cosine()}, "a linear layer whose output is the logits, found none"),
    ],
)
def test_an_error_of_measuring_ends_no_run(settings, message, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = assert_unharmed(tmp_path, NeuralCollapseTrainerCallback(), **settings)
    said = [str(each.message) for each in caught if each.category is MeasurementWarning]
    assert len(said) == 1
    assert message in said[0]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in trainer.model.modules())
    trainer = trainer_of(tmp_path, [NeuralCollapseTrainerCallback(on_error="raise")], **settings)
    with pytest.raises(InputError, match=message):
        trainer.train()


class Cosine(nn.Module):
    """A classifier without a linear head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.weight = nn.Linear(48, 8), nn.Parameter(torch.randn(4, 8))

    def forward(self, pixel_values: Any, labels: Any = None) -> dict[str, Any]:
        features = nn.functional.normalize(self.body(pixel_values.flatten(1)))
        logits = features @ nn.functional.normalize(self.weight).T
        return {"loss": nn.functional.cross_entropy(logits, labels.long()), "logits": logits}


def test_the_means_of_the_training_set(tmp_path):
    callback = NeuralCollapseTrainerCallback(reference="train", groups=["nc4"], layers=[])
    trainer = trainer_of(tmp_path, [callback])
    trainer.evaluate(trainer.train_dataset, metric_key_prefix="train")
    found = trainer.evaluate()
    with_means = [NeuralCollapseTrainerCallback(groups=["nc4"], layers=[])]
    plain = trainer_of(tmp_path, with_means).evaluate()
    loaders = [trainer.get_eval_dataloader(trainer.train_dataset), trainer.get_eval_dataloader()]
    options = {"pool": True, "groups": ["nc4"], "layers": []}
    train = ncscope.measure_model(trainer.model, loaders[0], **options)
    report = ncscope.measure_model(trainer.model, loaders[1], reference=train, **options)
    assert found["eval_nc/nc4_disagreement"] == report["nc4_disagreement"]
    assert plain["eval_nc/nc4_disagreement"] != report["nc4_disagreement"]


def test_copies_of_the_model_leave_the_callback_behind(tmp_path):
    callback = NeuralCollapseTrainerCallback(groups=["nc1"], layers=[])
    trainer = trainer_of(tmp_path, [callback])
    callback.history.unpicklable = lambda: None
    copies = copy.deepcopy(trainer.model), pickle.loads(pickle.dumps(trainer.model))
    inputs = default_data_collator(images(8, 3))
    for each in copies:
        hooks = each._forward_pre_hooks.values()
        assert [hook.__name__ for hook in hooks] == ["nothing"]
        each.eval()(**inputs)
    assert callback._batch_labels is None


def test_a_search_for_hyperparameters_keeps_its_objective(tmp_path):
    callback = NeuralCollapseTrainerCallback(groups=["nc1"], layers=[])
    trainer = trainer_of(tmp_path, [callback])
    trainer.state.is_hyper_param_search = True
    assert "eval_nc/nc1" not in trainer.evaluate()
    assert "eval_nc/nc1" in trainer.state.log_history[-1]
