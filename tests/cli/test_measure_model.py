"""The command `ncscope measure-model`: models and images in the files that people have."""

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
            main(["measure-model", *map(str, words)])
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


@pytest.mark.slow
def test_a_network_of_the_catalogue_on_a_set_of_the_catalogue(run) -> None:
    torch.manual_seed(0)
    model = build("small-resnet", 10, in_channels=1, image_size=8)
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": state}, "net.pt")
    words = "small-resnet digits --weights net.pt --split test --pool --json"
    test = load("digits").test
    pictures = [(test[i][0], test[i][1]) for i in range(len(test))]
    assert_printed(run(*words.split()), by_hand(model, lambda image: image, pictures, pool=True))
    words += " --ignore-index 3 --ignore-index 255"
    some = [(image, label) for image, label in pictures if label != 3]
    answer = run(*words.split())
    assert_printed(answer, by_hand(model, lambda image: image, some, pool=True))
    assert f"of {len(pictures)} samples left out: labelled 3 or 255" in answer[1]


@pytest.mark.slow
def test_a_model_of_timm_on_photographs(run) -> None:
    torch.manual_seed(0)
    pictures = photographs("photos")
    model = timm.create_model("test_resnet", num_classes=K)
    save_file(model.state_dict(), "net.safetensors")
    settings = timm.data.resolve_model_data_config(model)
    prepared = timm.data.create_transform(**settings, is_training=False)
    words = "timm:test_resnet photos --weights net.safetensors --json"
    expected = by_hand(model, prepared, pictures, layers=["layer[34].0"])
    assert_printed(run(*words.split(), "--layers", "layer3.*", "--layers", "layer4.0"), expected)
    code, out, _ = run(*words.split()[:-1], "--save", "r.html")
    assert code == 0
    assert "layer1.0" in out
    page = Path("r.html").read_text()
    for fact in ("timm:test_resnet", "net.safetensors", "photos", "train", "ncscope measure-model"):
        assert re.search(rf"<(li|dd)>{fact}</", page), fact


@pytest.mark.slow
def test_a_model_of_torchvision_prepared_either_way(run) -> None:
    torch.manual_seed(0)
    pictures = photographs("photos/val")
    model = torchvision.models.shufflenet_v2_x0_5(num_classes=K)
    torch.save(model.state_dict(), "net.pth")
    prepared = torchvision.models.ShuffleNet_V2_X0_5_Weights.DEFAULT.transforms()
    words = "torchvision:shufflenet_v2_x0_5 photos --weights net.pth --split test"
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
    words = "hf:vit photos --json --prior uniform"
    assert_printed(run(*words.split()), expected)
    (Path("vit") / "preprocessor_config.json").unlink()
    (Path("vit") / "processor_config.json").unlink(missing_ok=True)
    code, _, err = run(*words.split())
    assert (code, err.count("\n")) == (2, 1)
    assert "save_pretrained" in err


BAD = {
    "timm:resnet18": "issing argument 'DATA'",
    "small-resnet --data digits": "--data; measure a model by ncscope measure-model MODEL DATA",
    "test_vit digits": "'test_vit'; pass timm:test_vit",
    "timm:resnet18 digits": "weights of resnet18, found none; pass --weights",
    "timm:resnet1 digits": "a model of timm, found 'resnet1'; the nearest is",
    "torchvision:resnet17 digits": "'resnet17'; the nearest is resnet1",
    "small-resnt digits": "'small-resnt'; the nearest is small-resnet",
    "small-resnet digits": "found none; pass --weights FILE",
    "jax:resnet18 digits": "a model of torchvision:, timm:, hf: or the catalogue",
    "small-resnet digits --weights nowhere.pt": "nothing at nowhere.pt",
    "small-resnet digits --weights text.bin": "found another kind of file",
    "small-resnet digits --weights-key model": "--weights with --weights-key, found none",
    "small-resnet digits --weights odd.pt": "something else under 'epoch'",
    "small-resnet digits --weights other.pt": "found no stages.0",
    "small-resnet nowhere --weights other.pt": "found 'nowhere'; pass one of digits",
    "small-resnet empty --weights other.pt": "a folder of images for each class",
    "small-resnet half --weights other.pt --split test": "found train only",
    "small-resnet flat --weights other.pt --split test": "in flat, found neither",
    "small-resnet digits --weights other.pt --device tpu": "a device tpu",
    "small-resnet digits --weights other.pt --split dev": "dev",
}


@pytest.mark.slow
def test_bad_input_is_one_line_and_exit_code_two(run) -> None:
    torch.save({"epoch": 1}, "odd.pt")
    torch.save({"weight": torch.zeros(2)}, "other.pt")
    Path("text.bin").write_text("weights")
    Path("empty").mkdir()
    (Path("half") / "train").mkdir(parents=True)
    photographs("flat")
    for words, said in BAD.items():
        code, out, err = run(*words.split())
        assert (code, out) == (2, ""), words
        assert err.count("\n") == 1, err
        assert said in err, (words, err)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
def test_the_second_pass_by_its_option(run):
    torch.manual_seed(0)
    photographs("photos")
    save_file(timm.create_model("test_resnet", num_classes=K).state_dict(), "net.safetensors")
    words = "timm:test_resnet photos --weights net.safetensors --json"
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
