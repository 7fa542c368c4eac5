"""The command `ncscope measure-model --weights` on the files that training libraries really write.

Every file is measured as it was written, and must give the numbers of the plain weights.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import timm.utils
import torch
import transformers
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ncscope.cli import main
from ncscope.models.networks.catalogue import build

CALL = "--split test --groups nc1 --json"
transformers.utils.logging.disable_progress_bar()


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build("small-resnet", 10, in_channels=1, image_size=8)


def without_origin(out: str) -> str:
    """Drop the provenance, which names the file and the day."""
    report = json.loads(out) if out else {}
    return json.dumps({key: value for key, value in report.items() if key != "provenance"})


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command in a scratch folder; return standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        model = [] if words[0].startswith("hf:") else ["small-resnet", "--layers", "stages.1"]
        with pytest.raises(SystemExit) as stopped:
            main(["measure-model", *model, *words, "digits", *CALL.split()])
        captured = capsys.readouterr()
        assert stopped.value.code == code, captured.err
        assert code == 0 or captured.err.count("\n") == 1
        return without_origin(captured.out), captured.err

    return call


@pytest.fixture
def plain(run):
    """Return a function that measures weights in a plain file."""

    def measured(model: nn.Module) -> str:
        torch.save(model.state_dict(), "plain.pt")
        out, err = run("--weights", "plain.pt")
        assert err == ""
        return out

    return measured


def saver(model: nn.Module, **options: Any) -> str:
    """Write a checkpoint as timm's training script does; return its name."""
    args = argparse.Namespace(model="small-resnet", output=Path("out"), lr=np.float64(0.1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    keeper = timm.utils.CheckpointSaver(model, optimizer, args, checkpoint_dir=".", **options)
    keeper.save_checkpoint(epoch=0, metric=np.float64(0.5))
    return "model_best.pth.tar"


def averaged(model: nn.Module) -> timm.utils.ModelEmaV3:
    other = network(1)
    ema = timm.utils.ModelEmaV3(other, decay=0.5)
    ema.update(model)
    return ema


@pytest.mark.slow
def test_timm(run, plain) -> None:
    model = network()
    name = saver(model)
    assert torch.serialization.get_unsafe_globals_in_checkpoint(name)  # torch alone refuses it
    assert run("--weights", name) == (plain(model), "")


@pytest.mark.slow
def test_averages_of_timm_are_measured_if_asked_for(run, plain) -> None:
    model = network()
    ema = averaged(model)
    name = saver(model, model_ema=ema)
    weights, average = plain(model), plain(ema.module)
    assert weights != average
    assert run("--weights", name) == (weights, "")
    out, err = run("--weights", name, "--weights-key", "state_dict_ema")
    assert out == average
    assert err == f"weights: {name} holds a running average (EMA) under 'state_dict_ema'\n"
    whole = torch.load(name, weights_only=False)
    torch.save({"state_dict_ema": whole["state_dict_ema"]}, "ema.pth")
    out, err = run("--weights", "ema.pth")  # without other weights, it is said
    assert out == average
    assert err == "weights: ema.pth holds a running average (EMA) under 'state_dict_ema'\n"


@pytest.mark.slow
def test_an_averaged_model_of_torch(run, plain) -> None:
    model, average = network(), torch.optim.swa_utils.AveragedModel(network(1))
    average.update_parameters(model)
    torch.save(average.state_dict(), "swa")
    out, err = run("--weights", "swa")
    assert out == plain(average.module)
    assert err.splitlines() == [
        "weights: swa holds a running average (EMA)",
        "weights: prefix 'module.' removed",
        "weights: without this prefix, and not used: 'n_averaged'",
    ]


def ddp(model: nn.Module) -> nn.Module:
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    return nn.parallel.DistributedDataParallel(model)


@pytest.mark.parametrize(
    ("wrapped", "prefix"),
    [
        (ddp, "module."),
        pytest.param(nn.DataParallel, "module.", marks=pytest.mark.slow),
        (torch.compile, "_orig_mod."),
    ],
)
def test_wrapped_models(wrapped: Callable[[nn.Module], nn.Module], prefix: str, run, plain) -> None:
    model = network()
    try:
        torch.save(wrapped(model).state_dict(), "net.bin")
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    out, err = run("--weights", "net.bin")
    assert (out, err) == (plain(model), f"weights: prefix '{prefix}' removed\n")


class Lit(lightning.LightningModule):
    """Classifier with hyperparameters, a loss with a weight, and a compiled part."""

    def __init__(self, args: argparse.Namespace, folder: Path, compiled: bool) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = network()
        if compiled:
            self.model.stages = torch.compile(self.model.stages)
        self.loss = nn.CrossEntropyLoss(weight=torch.ones(10))

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        loss = self.loss(self.model.classifier(torch.ones(1, self.width)), batch[1][:1])
        self.log("score", loss)
        return loss

    @property
    def width(self) -> int:
        return self.model.classifier.in_features

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)


@pytest.mark.filterwarnings("ignore::")
@pytest.mark.parametrize("compiled", [pytest.param(False, marks=pytest.mark.slow), True])
def test_lightning(compiled: bool, run, plain) -> None:
    data = TensorDataset(torch.randn(4, 1, 8, 8), torch.arange(4))
    model = Lit(argparse.Namespace(lr=0.1), Path("runs"), compiled)
    saved = ModelCheckpoint(".", filename="last", monitor="score")
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[saved, EarlyStopping("score")],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(data, 2))
    assert torch.serialization.get_unsafe_globals_in_checkpoint("last.ckpt")
    out, err = run("--weights", "last.ckpt")
    lines = ["weights: prefix 'model.' removed"]
    if compiled:
        model.model.stages = model.model.stages._orig_mod
        lines += ["weights: names of wrappers, such as '_orig_mod.', removed within names"]
    lines += ["weights: without this prefix, and not used: 'loss.weight'"]
    assert (out, err.splitlines()) == (plain(model.model), lines)


class Wrapped(nn.Module):
    """Model for the trainer of Hugging Face, around a network of another library."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, pixel_values: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.net(pixel_values)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer_of(model: nn.Module, **options: Any) -> transformers.Trainer:
    settings = transformers.TrainingArguments("runs", use_cpu=True, report_to=[])
    return transformers.Trainer(model, settings, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::")
def test_the_trainer_of_hugging_face(run, plain) -> None:
    model = Wrapped()
    trainer_of(model).save_model("saved")
    expected = plain(model.net)
    for weights in ("saved/model.safetensors", "saved"):
        out, err = run("--weights", weights)
        assert (out, err) == (expected, "weights: prefix 'net.' removed\n")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::")
def test_the_trainer_of_hugging_face_and_its_own_model(run) -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
        num_labels=10,
        image_size=4,
        patch_size=2,
    )
    model = transformers.ViTForImageClassification(config)
    processor = transformers.ViTImageProcessor(size={"height": 4, "width": 4})
    trainer_of(model, processing_class=processor).save_model("saved")
    model.save_pretrained("plain")
    processor.save_pretrained("plain")
    out, err = run("hf:saved")
    assert (out, err) == run("hf:plain")
    assert "vit.layers.1" in out
    assert err == ""
    trainer_of(model).save_model("alone")
    _, err = run("hf:alone", code=2)
    assert "found none; add it with processor.save_pretrained(FOLDER); or pass --preprocess" in err
    _, err = run("hf:alone", "--preprocess", "data", code=2)
    assert "expected images that fit the input, found 1 x 8 x 8 with --preprocess data" in err
    assert "; write the image processor of the model's training beside the model" in err


@pytest.mark.slow
def test_a_folder_of_shards(run, plain) -> None:
    model = network()
    state = model.state_dict()
    shards = {"a.safetensors": list(state)[:3], "b.safetensors": list(state)[3:]}
    Path("saved").mkdir()
    for file, names in shards.items():
        save_file({name: state[name] for name in names}, Path("saved", file))
    index = {name: file for file, names in shards.items() for name in names}
    Path("saved/model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert run("--weights", "saved") == (plain(model), "")
    Path("saved/b.safetensors").unlink()
    _, err = run("--weights", "saved", code=2)
    assert err == "error: expected a file, found nothing at saved/b.safetensors; check the path\n"


@pytest.mark.slow
def test_several_models_in_one_file(run, plain) -> None:
    models = {"student": network(0), "teacher": network(1)}
    states = {name: model.state_dict() for name, model in models.items()}
    torch.save({"epoch": 1, **states}, "nested.pt")
    flat = {f"{name}.{key}": value for name, s in states.items() for key, value in s.items()}
    torch.save({"state_dict": flat}, "flat.pt")
    for file, before in (("nested.pt", ""), ("flat.pt", "state_dict.")):
        _, err = run("--weights", file, code=2)
        assert "found weights under 'student', 'teacher'; choose one with --weights-key" in err
        for name, model in models.items():
            out, _ = run("--weights", file, "--weights-key", before + name)
            assert out == plain(model)
        _, err = run("--weights", file, "--weights-key", "judge", code=2)
        assert "expected weights under 'judge' in" in err


def test_a_key_needs_a_file(run) -> None:
    _, err = run("--weights-key", "state_dict", code=2)
    assert "expected --weights with --weights-key, found none" in err


@pytest.mark.slow
def test_pooling_and_flattening(run) -> None:
    torch.save(network().state_dict(), "net.pt")
    flat, pooled, default = (
        run("--weights", "net.pt", *words)[0] for words in (["--flatten"], ["--pool"], [])
    )
    assert flat == default != pooled
