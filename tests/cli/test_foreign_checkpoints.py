"""Checkpoints of every kind, written by the libraries that write them.

Each is measured as it is, or refused in one sentence with its kind and what to do. A program does
what the sentence says, and then the numbers are those of the plain weights.
"""

import gzip
import json
import pickle
import re
import runpy
import shlex
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ncscope.api.files import load_weights
from ncscope.cli import main
from ncscope.errors import InputError
from ncscope.file_kinds import describe_foreign
from ncscope.models.libraries import ModelRequest, open_model

HERE = "tests.cli.test_foreign_checkpoints"


class Net(nn.Module):
    """Network of a user, with batch norm and a head under a name to choose."""

    def __init__(self, width: int = 4, head: str = "fc") -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU())
        self.head_name = head
        setattr(self, head, nn.Linear(width, 3))

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self, self.head_name)(self.body(x))


class Settings:
    """Object of a user's class, as beside weights in checkpoints."""


def make_loader() -> DataLoader[Any]:
    torch.manual_seed(1)
    labels = torch.arange(30) % 3
    return DataLoader(TensorDataset(torch.randn(30, 6) + labels[:, None], labels), 10)


def make_net(**options: Any) -> Net:
    torch.manual_seed(0)
    net = Net(**options)
    net.body[1].running_mean.uniform_(-1, 1)
    return net.eval()


@pytest.fixture
def run(capsys, tmp_path, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)

    def call(*words: str, model: str = "Net") -> tuple[int, str, str]:
        capsys.readouterr()
        places = [f"{HERE}:{model}", f"{HERE}:make_loader"]
        with pytest.raises(SystemExit) as stopped:
            main(["measure-model", *places, *words, "--groups", "nc1,nc4", "--json"])
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


def metrics_of(out: str) -> Any:
    return json.loads(out)["metrics"]


@pytest.fixture
def plain(run) -> Any:
    torch.save(make_net().state_dict(), "plain.pth")
    code, out, err = run("--weights", "plain.pth")
    assert (code, err) == (0, "")
    return metrics_of(out)


def by_pace(writers: Iterable[Callable[[], str]]) -> list[Any]:
    """Mark as slow what a library of seconds writes."""
    slow = ("adapter", "exported")
    return [
        pytest.param(w, id=w.__name__, marks=pytest.mark.slow if w.__name__ in slow else ())
        for w in writers
    ]


# Files and folders that load as they are


def without_counts() -> str:
    state = {k: v for k, v in make_net().state_dict().items() if "num_batches" not in k}
    torch.save(state, "old.pth")
    return "old.pth"


def renamed_head() -> str:
    state = make_net(head="classifier").state_dict()
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, "head.ckpt")
    return "head.ckpt"


def encoder_and_head() -> str:
    state = make_net().state_dict()
    names = {k: k if k.startswith("fc") else f"backbone.{k}" for k in state}
    torch.save({names[k]: v for k, v in state.items()}, "parts.pt")
    return "parts.pt"


def index_of_shards() -> str:
    state = make_net().state_dict()
    Path("saved").mkdir()
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for file, keys in zip(names, (list(state)[:3], list(state)[3:]), strict=True):
        save_file({key: state[key] for key in keys}, f"saved/{file}")
    index = {key: names[number >= 3] for number, key in enumerate(state)}
    Path("saved/model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 0}, "weight_map": index})
    )
    return "saved"


LOADED = {
    without_counts: "",
    renamed_head: "weights: 'classifier' taken as 'fc', the only layers without a partner",
    encoder_and_head: "weights: 'fc' taken as 'fc'",
    index_of_shards: "",
}


@pytest.mark.slow
@pytest.mark.parametrize("write", by_pace(LOADED))
def test_weights_that_load_as_they_are(write: Callable[[], str], run, plain) -> None:
    code, out, err = run("--weights", write())
    assert code == 0, err
    assert metrics_of(out) == plain
    assert LOADED[write] in err


# Files and folders that are refused, and what the advice gives


def torchscript() -> str:
    torch.jit.trace(make_net(), torch.zeros(2, 6)).save("traced.pt")
    return "traced.pt"


def exported() -> str:
    program = torch.export.export(make_net(), (torch.zeros(2, 6),))
    torch.export.save(program, "net.pt2")
    return "net.pt2"


def distributed() -> str:
    dcp.save({"model": make_net().state_dict()}, checkpoint_id="step-9", no_dist=True)
    return "step-9"


def distributed_part() -> str:
    return str(next(Path(distributed()).glob("*.distcp")))


def distributed_inside() -> str:
    dcp.save({"model": make_net().state_dict()}, checkpoint_id="run/fsdp_0", no_dist=True)
    return "run"


def whole() -> str:
    torch.save(make_net(), "whole.pt")
    return "whole.pt"


def whole_older() -> str:
    torch.save(make_net(), "whole.pt", _use_new_zipfile_serialization=False)
    return "whole.pt"


def whole_inside() -> str:
    torch.save({"epoch": 3, "ema": None, "model": make_net()}, "best.pt")
    return "best.pt"


def settings_beside() -> str:
    torch.save({"hyper": Settings(), "state_dict": make_net().state_dict()}, "last.ckpt")
    return "last.ckpt"


def pickled() -> str:
    Path("net.pkl").write_bytes(pickle.dumps(make_net().state_dict()))
    return "net.pkl"


def shard() -> str:
    return str(Path(index_of_shards()) / "model-00001-of-00002.safetensors")


def index_file() -> str:
    return str(Path(index_of_shards()) / "model.safetensors.index.json")


def trainer_output() -> str:
    for step in (9, 10):
        Path(f"out/checkpoint-{step}").mkdir(parents=True)
        save_file(make_net().state_dict(), f"out/checkpoint-{step}/model.safetensors")
    return "out"


FOLLOWED = {
    torchscript: "a TorchScript archive",
    exported: "a program of torch.export",
    distributed: "a distributed checkpoint (DCP)",
    distributed_part: "a distributed checkpoint (DCP)",
    distributed_inside: "a distributed checkpoint (DCP)",
    whole: f"a whole model of the class {HERE}.Net",
    whole_older: f"a whole model of the class {HERE}.Net",
    whole_inside: f"a whole model of the class {HERE}.Net under 'model'",
    settings_beside: f"a checkpoint with an object of the class {HERE}.Settings",
    pickled: "a pickle that torch.save has not written",
    shard: "one of several shards",
    index_file: "an index of weights in shards",
    trainer_output: "a folder of checkpoints",
}


def follow(sentence: str) -> str:
    """Do what a sentence says, as its reader would in a shell; return the weights to pass."""
    if found := re.search(r"--weights (\S+)\s*$", sentence):
        return found[1]
    command = shlex.split(sentence[sentence.index("python -") :].partition(" and measure ")[0])
    if command[1] == "-c":
        exec(command[2], {})
        return "weights.pt"
    words, sys.argv = sys.argv, command[2:]
    try:
        runpy.run_module(command[2], run_name="__main__")
    finally:
        sys.argv = words
    return "weights.pt"


@pytest.mark.filterwarnings("ignore::")
@pytest.mark.parametrize("write", by_pace(FOLLOWED))
def test_the_advice_gives_the_weights(write: Callable[[], str], tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    err = refusal(write())
    assert FOLLOWED[write] in err
    assert_plain(follow(err))


@pytest.mark.filterwarnings("ignore::")
@pytest.mark.parametrize("write", [torchscript, whole, whole_inside, settings_beside, pickled])
def test_a_name_in_a_command_is_a_name_in_a_shell(
    write: Callable[[], str], tmp_path, monkeypatch
) -> None:
    """A shell of the reader's, in which python prints its program and does not run it."""
    monkeypatch.chdir(tmp_path)
    name = """a$(touch made)`touch made`"; touch made; 'b\\ c.pt"""
    Path(write()).rename(name)
    sentence = refusal(name)
    script = 'python() { printf %s "$2"; }; ' + sentence[sentence.index("python -c") :]
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    exec(shown.stdout, {})
    assert {path.name for path in tmp_path.iterdir()} == {name, "weights.pt"}
    assert_plain("weights.pt")


def refusal(path: str) -> str:
    with pytest.raises(InputError) as refused:
        load_weights(path)
    assert "damaged" not in str(refused.value)
    return str(refused.value)


def assert_plain(path: str) -> None:
    """Check that a file holds the weights of the network under their names."""
    found, expected = load_weights(path).tensors, make_net().state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


# Files of other programs, of which some are written here byte by byte


def protobuf(*fields: tuple[int, int | bytes]) -> bytes:
    """Return a protocol buffer, for numbers and lengths below 128."""
    parts = [
        bytes([number << 3, value])
        if isinstance(value, int)
        else bytes([number << 3 | 2, len(value)]) + value
        for number, value in fields
    ]
    return b"".join(parts)


def write_bytes(name: str, content: bytes) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(content)
    return name


def onnx() -> str:
    graph = protobuf((2, b"main_graph"))
    fields = ((1, 8), (2, b"pytorch"), (3, b"2.6"), (7, graph), (8, protobuf((2, 17))))
    return write_bytes("net.onnx", protobuf(*fields))


def saved_model() -> str:
    write_bytes("tf/saved_model.pb", protobuf((1, 1), (2, b"graphs")))
    return "tf"


def tensorflow() -> str:
    write_bytes("model.ckpt.data-00000-of-00001", b"\0" * 64)
    return write_bytes("model.ckpt.index", b"\0" * 64 + bytes.fromhex("57fb808b247547db"))


def lfs() -> str:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    return write_bytes("pytorch_model.bin", text.encode())


def gguf() -> str:
    return write_bytes("model.gguf", b"GGUF" + (3).to_bytes(4, "little") + b"\0" * 16)


def web_page() -> str:
    return write_bytes("net.safetensors", b"<!DOCTYPE html>\n<html><body>Sign in</body></html>")


def hdf5() -> str:
    import h5py

    with h5py.File("net.h5", "w") as file:
        file["model_weights/dense/kernel"] = [1.0]
    return "net.h5"


def keras_archive() -> str:
    with zipfile.ZipFile("net.keras", "w") as archive:
        for name in ("metadata.json", "config.json", "model.weights.h5"):
            archive.writestr(name, "{}")
    return "net.keras"


def deepspeed() -> str:
    write_bytes("ds/global_step9/mp_rank_00_model_states.pt", b"")
    write_bytes("ds/zero_to_fp32.py", b"")
    return "ds"


def optimiser() -> str:
    net = make_net()
    state = torch.optim.Adam(net.parameters())
    net(torch.ones(2, 6)).sum().backward()
    state.step()
    torch.save(state.state_dict(), "optimizer.pt")
    return "optimizer.pt"


def optimiser_beside_nothing() -> str:
    torch.save({"epoch": 1, "optimizer": torch.load(optimiser())}, "state.pt")
    return "state.pt"


def adapter() -> str:
    from peft import LoraConfig, get_peft_model

    get_peft_model(make_net(), LoraConfig(target_modules=["body.0"])).save_pretrained("lora")
    return "lora"


def plain_zip() -> str:
    with zipfile.ZipFile("net.zip", "w") as archive:
        archive.write(without_counts())
    return "net.zip"


def gzip_file() -> str:
    return write_bytes("net.pt.gz", gzip.compress(b"weights"))


def tar_file() -> str:
    with tarfile.open("net.tar", "w") as archive:
        archive.add(without_counts())
    return "net.tar"


def exported_archive() -> str:
    with zipfile.ZipFile("net.pt2", "w") as archive:
        archive.writestr("net/archive_format", "pt2")
    return "net.pt2"


def scripted_archive() -> str:
    with zipfile.ZipFile("net.pth", "w") as archive:
        for name in ("net/constants.pkl", "net/code/__torch__.py"):
            archive.writestr(name, "")
    return "net.pth"


def index_alone() -> str:
    return write_bytes("net/index.json", b'{"weight_map": {"fc.weight": "part-1.safetensors"}}')


def saved_model_file() -> str:
    return write_bytes(saved_model() + "/saved_model.pb", protobuf((1, 1), (2, b"graphs")))


def parts_of_deepspeed() -> str:
    write_bytes("step9/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", b"")
    return "step9"


def training_steps() -> str:
    for step in (9, 10):
        write_bytes(f"out/checkpoint-{step}/model.safetensors", b"")
    return "out"


def adapter_of_a_classifier() -> str:
    save_file(
        {"base.classifier.weight": torch.ones(5, 3)},
        write_bytes("lora/adapter_model.safetensors", b""),
    )
    write_bytes("lora/adapter_config.json", b'{"base_model_name_or_path": "a/vit"}')
    return "lora/adapter_model.safetensors"


def damaged_adapter() -> str:
    write_bytes("lora/adapter_config.json", b"{")
    save_file({"x": torch.ones(1)}, "lora/adapter_model.safetensors")
    return "lora/adapter_model.safetensors"


NAMED = {
    gzip_file: ("a gzip archive", "gunzip net.pt.gz"),
    tar_file: ("a tar archive", "tar -xf net.tar"),
    exported_archive: ("a program of torch.export", 'torch.export.load("net.pt2").state_dict'),
    scripted_archive: ("a TorchScript archive", 'torch.jit.load("net.pth").state_dict()'),
    index_alone: ("an index of weights in shards", "--weights net"),
    saved_model_file: ("a SavedModel of TensorFlow", "computes from tf:"),
    parts_of_deepspeed: ("the parts of a checkpoint of DeepSpeed", "the folder above it"),
    training_steps: ("a folder of checkpoints", "--weights out/checkpoint-10"),
    adapter_of_a_classifier: ("an adapter of peft", '"a/vit", num_labels=5'),
    damaged_adapter: ("an adapter of peft", 'from_pretrained("BASE")'),
    onnx: ("an ONNX model", "ncscope measure features.npz"),
    saved_model: ("a SavedModel of TensorFlow", "numpy.savez"),
    tensorflow: ("a checkpoint of TensorFlow", "numpy.savez"),
    lfs: ("a pointer of Git LFS", "git lfs pull -I pytorch_model.bin"),
    gguf: ("a GGUF file", "converted"),
    web_page: ("a web page", "download the file itself"),
    hdf5: ("an HDF5 file", "keras.saving.load_model('net.h5')"),
    keras_archive: ("a model of Keras", "keras.saving.load_model('net.keras')"),
    deepspeed: ("a checkpoint of DeepSpeed", "python ds/zero_to_fp32.py ds weights"),
    optimiser: ("the state of an optimiser", "the file of the model's weights"),
    optimiser_beside_nothing: ("the state of an optimiser under 'optimizer'", "beside it"),
    adapter: ("an adapter of peft", "merge_and_unload"),
    plain_zip: ("a zip archive", "unzip net.zip"),
}


@pytest.mark.filterwarnings("ignore::")
@pytest.mark.parametrize("write", by_pace(NAMED))
def test_other_files_are_called_by_their_kind(
    write: Callable[[], str], tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    err = refusal(write())
    for said in NAMED[write]:
        assert said in err


@pytest.mark.parametrize(
    "content",
    [
        b"\x08",  # ends in a number
        b"\x08\x01\x3a\x7f",  # a graph longer than the file
        b"\x08\x01\x00\x01",  # a field without a number
        b"\x08\x01\x3b\x01",  # a group, which ONNX has not
        b"\x08" + b"\xff" * 11,  # a number without end
        b"PK\x03\x04 no archive",
        b"\x80\x04 no pickle",
    ],
)
def test_damaged_files_are_of_no_kind(content: bytes, tmp_path) -> None:
    path = tmp_path / "net.bin"
    path.write_bytes(content)
    assert describe_foreign(path) is None


def test_a_head_that_may_be_either_of_two_layers_is_not_renamed(run) -> None:
    state = make_net(head="classifier").state_dict()
    torch.save(state | {"other.weight": torch.ones(3, 4), "other.bias": torch.ones(3)}, "two.pt")
    code, out, err = run("--weights", "two.pt")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert "found no fc.weight, but classifier.weight" in err
    assert "--model-arg, or load the weights in the function" in err


def lfs_in_folder() -> str:
    Path("hub").mkdir()
    Path(lfs()).rename("hub/model.safetensors")
    return "hub"


@pytest.mark.parametrize("name", ["--weights", "hf:"])
def test_a_pointer_of_git_lfs_in_a_folder(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = lfs_in_folder()
    if name == "--weights":
        err = refusal(folder)
    else:
        with pytest.raises(InputError) as refused:
            open_model(ModelRequest(f"hf:{folder}"))
        err = str(refused.value)
    assert "a pointer of Git LFS, and not the file itself; git lfs pull -I model.safetensors" in err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::")
def test_the_advice_on_an_adapter_merges_it(tmp_path, monkeypatch) -> None:
    """The head was trained with the adapter, for more classes than the model had before."""
    import transformers
    from peft import LoraConfig, get_peft_model

    monkeypatch.chdir(tmp_path)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "image_size": 4, "patch_size": 2}
    config = transformers.ViTConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    transformers.ViTForImageClassification(config).save_pretrained("base")
    classifier = transformers.ViTForImageClassification
    model = classifier.from_pretrained("base", num_labels=5, ignore_mismatched_sizes=True)
    lora = LoraConfig(target_modules="all-linear", modules_to_save=["classifier"])
    adapted = get_peft_model(model, lora)
    for weight in adapted.parameters():
        if weight.requires_grad:
            nn.init.normal_(weight)
    adapted.save_pretrained("lora")
    described = describe_foreign(Path("lora"))
    assert described is not None
    follow(described[1])
    merged = classifier.from_pretrained("merged").state_dict()
    expected = adapted.merge_and_unload().state_dict()
    assert merged.keys() == expected.keys()
    assert all(torch.allclose(merged[name], value) for name, value in expected.items())


def test_lengths_of_safetensors_that_look_like_other_kinds(tmp_path, monkeypatch) -> None:
    """A safetensors file begins with a length, which may look like a pickle or like ONNX."""
    monkeypatch.chdir(tmp_path)
    seen = set()
    for length in range(0, 264, 8):
        save_file(make_net().state_dict(), "net.st", {"note": "x" * length})
        start = Path("net.st").read_bytes()[:1]
        if start in (b"\x80", b"\x08") and start not in seen:
            seen.add(start)
            assert_plain("net.st")
    assert len(seen) == 2
