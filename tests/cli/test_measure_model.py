"""The command `ncscope measure --model`: models and images in the files that people have."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import TensorDataset

import ncscope
from ncscope.cli import main
from ncscope.data.catalogue import load
from ncscope.models.networks.catalogue import build
from tests.closeness import assert_agree

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")

K, EACH = 3, 4


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command in a scratch folder; exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        with pytest.raises(SystemExit) as stopped:
            main(["measure", *map(str, words)])
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


def photographs(folder: str) -> list[tuple[Image.Image, int]]:
    """Coloured and grey images of several sizes, in a folder for each class; read back."""
    random = np.random.default_rng(0)
    found = []
    for label, name in enumerate(("ant", "bee", "cat")):
        (Path(folder) / name).mkdir(parents=True)
        for number in range(EACH):
            grey = number == 0
            pixels = random.integers(0, 256, (40 + number, 50) if grey else (40 + number, 50, 3))
            pixels[..., label] //= 4
            path = Path(folder) / name / f"{number}.png"
            Image.fromarray(pixels.astype(np.uint8)).save(path)
            found.append((Image.open(path).convert("RGB"), label))
    return found


def by_hand(model: nn.Module, prepared, pictures, **options) -> ncscope.ModelReport:
    inputs = torch.stack([prepared(picture) for picture, _ in pictures])
    data = TensorDataset(inputs, torch.tensor([label for _, label in pictures]))
    loader = torch.utils.data.DataLoader(data, 64)
    return ncscope.measure_model(model, loader, progress=False, **options)


def assert_printed(answer, expected: ncscope.ModelReport) -> None:
    code, out, err = answer
    assert code == 0, err
    found = json.loads(out)
    assert list(found["layers"]) == list(expected.layers)
    for name, layer in expected.layers.items():
        values = {
            key: np.nan if v is None else v for key, v in found["layers"][name]["metrics"].items()
        }
        assert_agree(values, dict(layer), rel=1e-6, abs_tol=1e-9)


def test_a_network_of_the_catalogue_on_a_set_of_the_catalogue(run) -> None:
    torch.manual_seed(0)
    model = build("small-resnet", 10, in_channels=1, image_size=8)
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": state}, "net.pt")
    words = "--model small-resnet --weights net.pt --data digits --split test --pool --json"
    test = load("digits").test
    pictures = [(test[i][0], test[i][1]) for i in range(len(test))]
    assert_printed(run(*words.split()), by_hand(model, lambda image: image, pictures, pool=True))


def test_a_model_of_timm_on_photographs(run) -> None:
    torch.manual_seed(0)
    pictures = photographs("photos")
    model = timm.create_model("test_resnet", num_classes=K)
    save_file(model.state_dict(), "net.safetensors")
    settings = timm.data.resolve_model_data_config(model)
    prepared = timm.data.create_transform(**settings, is_training=False)
    words = "--model timm:test_resnet --weights net.safetensors --data photos --json"
    expected = by_hand(model, prepared, pictures, layers=["layer[34].0"])
    assert_printed(run(*words.split(), "--layers", "layer3.*", "--layers", "layer4.0"), expected)
    code, out, _ = run(*words.split()[:-1], "--save", "r.html")
    assert code == 0
    assert "layer1.0" in out
    page = Path("r.html").read_text()
    for fact in ("timm:test_resnet", "net.safetensors", "photos", "train", "ncscope measure"):
        assert re.search(rf"<(li|dd)>{fact}</", page), fact


@pytest.mark.slow
def test_a_model_of_torchvision_prepared_either_way(run) -> None:
    torch.manual_seed(0)
    pictures = photographs("photos/val")
    model = torchvision.models.shufflenet_v2_x0_5(num_classes=K)
    torch.save(model.state_dict(), "net.pth")
    prepared = torchvision.models.ShuffleNet_V2_X0_5_Weights.DEFAULT.transforms()
    words = "--model torchvision:shufflenet_v2_x0_5 --weights net.pth --data photos --split test"
    options = {"layers": [], "groups": ["nc1", "nc4"]}
    expected = by_hand(model, prepared, pictures, **options)
    words = [*words.split(), "--layers", "stage2.0", "--groups", "nc1,nc4", "--json"]
    options["layers"] = ["stage2.0"]
    assert_printed(run(*words), by_hand(model, prepared, pictures, **options))
    from ncscope.data.folders import read_folder

    images = read_folder(Path("photos"), "test")
    same = [(images[i][0], label) for i, (_, label) in enumerate(pictures)]
    expected = by_hand(model, lambda image: image, same, **options)
    assert_printed(run(*words, "--preprocess", "data", "--batch-size", "5"), expected)


@pytest.mark.slow
def test_a_model_of_hugging_face_in_a_folder(run) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    pictures = photographs("photos")
    size = {"image_size": 32, "patch_size": 8, "num_labels": K}
    tiny = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.ViTConfig(intermediate_size=24, **tiny, **size)
    model = transformers.ViTForImageClassification(config)
    model.save_pretrained("vit")
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    processor.save_pretrained("vit")
    uniform = {"prior": "uniform", "class_counts": torch.full((K,), EACH)}
    expected = by_hand(
        model,
        lambda image: processor(images=image, return_tensors="pt")["pixel_values"][0],
        pictures,
        **uniform,
    )
    words = "--model hf:vit --data photos --json --prior uniform"
    assert_printed(run(*words.split()), expected)
    (Path("vit") / "preprocessor_config.json").unlink()
    (Path("vit") / "processor_config.json").unlink(missing_ok=True)
    code, _, err = run(*words.split())
    assert (code, err.count("\n")) == (2, 1)
    assert "save_pretrained" in err


BAD = {
    "--model timm:resnet18": "expected --data with --model, found none; name a data set",
    "--model timm:resnet18 --weights net.pt": "expected --data with --model, found none",
    "--data digits": "expected --model with --data, found none; ",
    "--weights net.pt": "expected --model with --weights, found none; ",
    "--layers a --split test": "expected --model with --layers, found none; ",
    "f.npz --model timm:resnet18 --data digits": "f.npz with --model; leave out f.npz or --model",
    "f.npz --weights net.pt": "found f.npz with --weights; leave --weights out: no model runs",
    "f.npz --layers a --head b": "found f.npz with --layers; leave --layers, --head out",
    "--features f.npy --labels l.npy --data digits": "found --features with --data; leave --data",
    "report.json": "a report or a history that ncscope wrote (report.json); show it with ncscope",
    "--model test_vit --data digits": "'test_vit'; pass timm:test_vit",
    "--model timm:resnet18 --data digits": "weights of resnet18, found none; pass --weights",
    "--model timm:resnet1 --data digits": "a model of timm, found 'resnet1'; the nearest is",
    "--model torchvision:resnet17 --data digits": "'resnet17'; the nearest is resnet1",
    "--model small-resnt --data digits": "'small-resnt'; the nearest is small-resnet",
    "--model small-resnet --data digits": "found none; pass --weights FILE",
    "--model jax:resnet18 --data digits": "a model of torchvision:, timm:, hf: or the catalogue",
    "--model small-resnet --weights nowhere.pt --data digits": "nothing at nowhere.pt",
    "--model small-resnet --weights text.bin --data digits": "found another kind of file",
    "--weights-key model": "expected --model with --weights-key, found none; ",
    "--model small-resnet --weights odd.pt --data digits": "something else under 'epoch'",
    "--model small-resnet --weights other.pt --data digits": "found no stages.0",
    "--model small-resnet --weights other.pt --data nowhere": "found 'nowhere'; pass one of digits",
    "--model small-resnet --weights other.pt --data empty": "a folder of images for each class",
    "--model small-resnet --weights other.pt --data half --split test": "found train only",
    "--model small-resnet --weights other.pt --data flat --split test": "in flat, found neither",
    "--model small-resnet --weights other.pt --data digits --device tpu": "a device tpu",
    "--model small-resnet --weights other.pt --data digits --split dev": "dev",
}


def test_bad_input_is_one_line_and_exit_code_two(run) -> None:
    torch.save({"epoch": 1}, "odd.pt")
    torch.save({"weight": torch.zeros(2)}, "other.pt")
    Path("text.bin").write_text("weights")
    Path("report.json").write_text('{"schema_version": 1}')
    Path("empty").mkdir()
    (Path("half") / "train").mkdir(parents=True)
    photographs("flat")
    for words, said in BAD.items():
        code, out, err = run(*words.split())
        assert (code, out) == (2, ""), words
        assert err.count("\n") == 1, err
        assert said in err, (words, err)


@pytest.mark.usefixtures("unchecked_signatures")
def test_the_second_pass_by_its_option(run):
    torch.manual_seed(0)
    photographs("photos")
    save_file(timm.create_model("test_resnet", num_classes=K).state_dict(), "net.safetensors")
    words = "--model timm:test_resnet --weights net.safetensors --data photos --json"
    words = (*words.split(), "--layers", "layer4.0", "--groups", "nc4,nc1_quotient")
    stored, again, drawn = (
        json.loads(run(*words, "--second-pass", second)[1])
        for second in ("store", "recompute", "6")
    )
    assert again["metrics"] == stored["metrics"]
    assert {"nc1_quotient", "nc4_disagreement", "accuracy"} <= stored["metrics"].keys()
    assert "a random sample of 6 of the 12 samples" in str(drawn["notes"])
    code, _, said = run(*words, "--second-pass", "twice")
    assert code != 0
    assert "second_pass as 'store' or 'recompute' or an integer" in said
    code, _, said = run("features.npz", "--second-pass", "recompute")
    assert code != 0
    assert "--model" in said
