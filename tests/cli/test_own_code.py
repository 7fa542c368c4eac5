"""The command `ncscope measure-model` on the user's own code, and on images in files."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

import ncscope
from ncscope.api.named_images import ImageOptions, read_image_splits
from ncscope.cli import main
from tests.closeness import assert_agree

CLASSES = ("ant", "bee", "cat")

NET = """
import torch
from torch import nn
from torchvision import transforms
from layers import Block  # a file beside


class Net(nn.Module):
    def __init__(self, width, num_classes=3, kind="plain"):
        super().__init__()
        print("made", width, num_classes, kind)
        self.block = Block(width)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.fc(self.block(x).mean((2, 3)))


def make_model(width: int = 8):
    return Net(width)


def no_model():
    return {"model": 3}


def fails(width=8):
    return Net(width, num_classes="three")


class Broken(Net):
    def forward(self, x):
        return self.fc(x)


model = Net(8)
transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3)])


def no_tensor(image):
    return image


def make_transform():
    return transform


def make_data(split):
    from torchvision.datasets import ImageFolder

    return ImageFolder("photos", transform)


def make_train_loader():
    return torch.utils.data.DataLoader(make_data("train"), 5)
"""

LAYERS = """
from torch import nn


def Block(width):
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU())
"""


@pytest.fixture
def run(capsys, tmp_path, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    """Run the command in a scratch folder with a user's code, images and weights."""
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    Path("layers.py").write_text(LAYERS)
    photographs("photos")
    torch.save({"state_dict": make_net().state_dict()}, "net.pt")

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(["measure-model", *words, "--groups", ",".join(GROUPS)])
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


class Net(nn.Module):
    """The network of NET, written again."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.block(x).mean((2, 3)))


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return Net()


def photographs(folder: str, size: int = 32, each: int = 5) -> list[tuple[bytes, int]]:
    random, found = np.random.default_rng(0), []
    for label, name in enumerate(CLASSES):
        (Path(folder) / name).mkdir(parents=True)
        for number in range(each):
            pixels = random.integers(0, 256, (size, size, 3))
            pixels[..., label] //= 3
            path = Path(folder) / name / f"{number}.png"
            Image.fromarray(pixels.astype(np.uint8)).save(path)
            found.append((path.read_bytes(), label))
    return found


def by_hand(normalise: Any, *before: Any) -> ncscope.ModelReport:
    prepared = transforms.Compose([*before, transforms.ToTensor(), normalise])
    loader = DataLoader(ImageFolder("photos", prepared), 64)
    return ncscope.measure_model(make_net(), loader, progress=False, groups=GROUPS)


GROUPS = ["nc1", "nc3"]


IMAGENET = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
HALF = transforms.Normalize([0.5] * 3, [0.5] * 3)


def assert_measured(answer: tuple[int, str, str], expected: ncscope.ModelReport) -> None:
    code, out, err = answer
    assert code == 0, err
    values = {k: np.nan if v is None else v for k, v in json.loads(out)["metrics"].items()}
    assert_agree(values, dict(expected), rel=1e-4, abs_tol=1e-5)


@pytest.mark.slow
def test_a_class_a_checkpoint_and_a_folder_in_one_command(run) -> None:
    words = ["net.py:Net", "photos", "--model-arg", "width=8", "--weights", "net.pt"]
    expected = by_hand(IMAGENET)
    answer = run(*words, "--json")
    assert_measured(answer, expected)
    assert "made 8 3 plain" in answer[2]  # what the code prints goes to standard error
    images = "images: as they are, 32 x 32, less the mean (0.485, 0.456, 0.406)"
    assert images in answer[2]
    assert any(note.startswith(images) for note in json.loads(answer[1])["notes"])
    assert any("no repeated blocks" in note for note in json.loads(answer[1])["notes"])
    code, _, err = run(*words, "--save", "page.html")
    assert code == 0, err
    page = Path("page.html").read_text()
    assert all(name in page for name in (*CLASSES, "net.py:Net", "net.pt"))
    report = json.loads(run(*words, "--save", "r.json", "--json")[1])
    assert report["provenance"]["class_names"] == list(CLASSES)


NAMED = """
from types import SimpleNamespace
from net import Net


def make(names):
    model = Net(8)
    model.config = SimpleNamespace(id2label=dict(enumerate(names)))
    return model
"""


@pytest.mark.slow
def test_classes_of_a_folder_are_compared_with_those_of_the_model(run) -> None:
    Path("named.py").write_text(NAMED)
    words = ["named.py:make", "photos", "--weights", "net.pt", "--json", "--prior", "uniform"]
    words.append("--model-arg")
    prepared = transforms.Compose([transforms.ToTensor(), IMAGENET])
    backwards = ImageFolder("photos", prepared, target_transform=lambda label: 2 - label)
    counts = {"prior": "uniform", "class_counts": torch.tensor([5, 5, 5])}
    expected = ncscope.measure_model(make_net(), backwards, progress=False, groups=GROUPS, **counts)
    answer = run(*words, "names=('Cat', 'BEE', ' ant')")
    assert_measured(answer, expected)
    report = json.loads(answer[1])
    assert report["provenance"]["class_names"] == ["Cat", "BEE", " ant"]
    assert report["notes"][0] == "labels: the 3 classes numbered by name as the 3 of the model"
    Path("photos/zebra").mkdir()  # a class without images, which no model needs to know
    assert_measured(run(*words, "names=('Cat', 'BEE', ' ant')"), expected)
    Path("photos/zebra").rmdir()
    shutil.rmtree("photos/ant")
    labels = ImageFolder("photos", prepared, target_transform=lambda label: label + 1)
    counts = {"prior": "uniform", "class_counts": torch.tensor([0, 5, 5])}
    expected = ncscope.measure_model(make_net(), labels, progress=False, groups=GROUPS, **counts)
    answer = run(*words, f"names={CLASSES}")
    assert_measured(answer, expected)
    report = json.loads(answer[1])
    assert report["provenance"]["class_names"] == list(CLASSES)
    assert report["notes"][0] == "labels: the 2 classes numbered by name as the 3 of the model"
    assert not any("another order" in warning for warning in report["warnings"])
    code, _, err = run(*words, "names=('bee', 'ant', 'cat', 'cat')")
    assert (code, "found 'cat' twice in the model's configuration" in err) == (2, True), err


WAYS = {
    "a function": ("net.py:make_model photos", HALF),
    "a model": ("net.py:model photos", HALF),
    "a transform that is made": (
        "net.py:make_model photos --preprocess net.py:make_transform",
        HALF,
    ),
    "a loader": ("net.py:make_model net.py:make_train_loader", HALF),
    "a data set, and the split": ("net.py:make_model net.py:make_data --split test", HALF),
    "a module": ("net:make_model photos", HALF),
}


def by_pace(cases: Iterable[str], first: Collection[str]) -> list[Any]:
    """Leave to the slow tests what says least beyond the first cases."""
    return [pytest.param(case, marks=() if case in first else pytest.mark.slow) for case in cases]


@pytest.mark.parametrize(
    "way", by_pace(WAYS, ["a data set, and the split", "a transform that is made", "a module"])
)
def test_models_data_and_preprocessing_of_ones_own(way: str, run, monkeypatch) -> None:
    words, steps = WAYS[way]
    words += " --weights net.pt --json"
    if "photos" in words and "--preprocess" not in words:
        words += " --preprocess net.py:transform"
    monkeypatch.delitem(__import__("sys").modules, "net", raising=False)
    monkeypatch.delitem(__import__("sys").modules, "layers", raising=False)
    answer = run(*words.split())
    assert_measured(answer, by_hand(steps))
    assert json.loads(answer[1])["provenance"]["class_names"] == list(CLASSES)


@pytest.mark.slow
def test_the_size_of_the_images(run) -> None:
    words = "net.py:make_model photos --weights net.pt --json --image-size 16"
    assert_measured(run(*words.split()), by_hand(IMAGENET, transforms.Resize([16, 16])))
    Image.new("RGB", (20, 32)).save("photos/bee/3.png")  # between those that show the size
    answer = run(*words.replace(" --image-size 16", "").split())
    crop = transforms.Resize(256), transforms.CenterCrop(224)
    assert_measured(answer, by_hand(IMAGENET, *crop))
    assert "images: resized and cropped to 224 x 224" in answer[2]


BAD = {
    "net.py:Net photos": "arguments of Net(width, num_classes=3, kind='plain'), found missing",
    "net.py:Net photos --model-arg wdth=3": "found missing a required argument: 'width'",
    "net.py:Net photos --model-arg width=8 --model-arg x=1": "unexpected keyword argument 'x'",
    "net.py:make_model photos --model-arg width": "expected --model-arg KEY=VALUE, found 'width'",
    "net.py:make_model photos --model-arg width=true": "found true; write width=True",
    "net.py:model photos --model-arg width=8": "which is a model already; leave --model-arg out",
    "net.py:no_model photos": "a model of torch from net.py:no_model, found dict",
    "net.py:fails photos": "found TypeError: ",
    "net.py:make_modl photos": "make_modl in net.py, found no such name; name one of make_model",
    "nothing.py:Net photos": "a file of Python, nothing.py, found nothing at nothing.py",
    "net.py photos": "name the class or function too: net.py:make_model",
    "net.pt photos": "name the model, and pass --weights net.pt",
    "nowhere.nets:Net photos": "and no module nowhere; for example",
    "bad.py:Net photos": "found ZeroDivisionError: division by zero (bad.py, line 3)",
    "syntax.py:Net photos": "(syntax.py, line 2)",
    "needs.py:Net photos": "No module named 'absent_library' (needs.py, line 1)",
    "pkg/nets.py:Net photos": "name the module in its package, pkg.nets:Net, from the folder above",
    "exits.py:Net photos": "found SystemExit: 2 (exits.py, line 2)",
    "net.py:Broken photos --model-arg width=8": "(net.py, line 33); correct it there, or prepare",
    "net.py:make_model photos --weights net.pt --model-arg width=9": "with --model-arg, or load",
    "net.py:make_model photos --num-classes 3": "pass it with --model-arg",
    "small-resnet digits --weights net.pt --model-arg depth=3": "your own code for --model-arg",
    "photos net.py:make_model": "MODEL before DATA, found the data photos first; ncscope "
    "measure-model net.py:make_model photos",
    "digits timm:resnet18 --weights net.pt": "timm:resnet18 digits --weights net.pt",
    "net.py:make_model photos --preprocess net.py:no_tensor": "a tensor from net.py:no_tensor",
    "net.py:make_model photos --preprocess other": "found 'other'; pass model, data, or FILE.py",
    "net.py:make_model net.py:make_train_loader --split test": "an argument split of net.py",
    "net.py:make_model net.py:model": "a loader from net.py:model, found Net",
    "net.py:make_model photos --label-key fine": "files of images for --label-key, found the fold",
    "net.py:make_model digits --split val": "validation images of digits, found train and test",
}


@pytest.mark.slow
def test_bad_input_is_one_line_and_exit_code_two(run) -> None:
    Path("bad.py").write_text("def half():\n    pass\n1 / 0\n")
    Path("syntax.py").write_text("x = 1\ndef Net(:\n")
    Path("needs.py").write_text("import absent_library\n")
    Path("pkg").mkdir()
    Path("pkg/nets.py").write_text("from .layers import Net\n")
    Path("exits.py").write_text("import argparse\nargparse.ArgumentParser().parse_args(['--x'])\n")
    for words, said in BAD.items():
        code, out, err = run(*words.split())
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        assert (code, out, len(lines)) == (2, "", 1), (words, err)
        assert said in lines[0], (words, err)


def test_images_of_both_splits_for_ncscope_transfer(run) -> None:
    parquet(photographs("others"), "names")
    data = read_image_splits(ImageOptions("files"), seed=0)
    assert data.num_classes == 3
    assert data.train.labels.tolist() == [1]
    assert data.test.labels.tolist() == [number for number in range(3) for _ in range(5)]
    assert data.validation is None


# Images in files


def png(pixels: bytes) -> dict[str, Any]:
    return {"bytes": pixels, "path": None}


def saved_by_datasets(samples: list[tuple[bytes, int]], splits: bool) -> None:
    import datasets

    features = datasets.Features(
        {"photo": datasets.Image(), "kind": datasets.ClassLabel(names=list(CLASSES)), "id": "int64"}
        | {"id": datasets.Value("int64")}
    )
    rows = [{"photo": png(p), "kind": k, "id": i} for i, (p, k) in enumerate(samples)]
    made = datasets.Dataset.from_list(rows, features=features)
    if splits:
        made = datasets.DatasetDict({"train": made.select([0]), "validation": made})
    made.save_to_disk("saved")


def parquet(samples: list[tuple[bytes, int]], kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path("files/data").mkdir(parents=True)
    half = len(samples) // 2
    for number, part in enumerate((samples[:half], samples[half:])):
        labels = [CLASSES[label] if kind == "names" else label for _, label in part]
        table = pa.table({"image": [png(pixels) for pixels, _ in part], "label": labels})
        name = f"files/data/test-0000{number}-of-00002.parquet"
        pq.write_table(table, name, row_group_size=3)
    pq.write_table(table.slice(0, 1), "files/data/train-00000-of-00001.parquet")


def tars(samples: list[tuple[bytes, int]], kind: str) -> None:
    half = len(samples) // 2
    for number, part in enumerate((samples[:half], samples[half:])):
        with tarfile.open(f"photos-{number:03}.tar", "w") as archive:
            for index, (pixels, label) in enumerate(part):
                fields = json.dumps({"label": label, "width": 32}).encode()
                text = CLASSES[label].encode() if kind == "names" else str(label).encode()
                entries = {"png": pixels, "json": fields} if kind == "json" else {}
                for suffix, content in (entries or {"cls": text, "png": pixels}).items():
                    member = tarfile.TarInfo(f"part/{number}{index:04}.{suffix}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


KINDS: dict[str, tuple[Callable[[Any], None], str, bool]] = {
    "save_to_disk": (lambda s: saved_by_datasets(s, False), "saved", True),
    "save_to_disk of splits": (lambda s: saved_by_datasets(s, True), "saved --split val", True),
    "without a test split": (lambda s: saved_by_datasets(s, True), "saved --split test", True),
    "Parquet": (lambda s: parquet(s, "numbers"), "files --split test", False),
    "Parquet by pattern": (lambda s: parquet(s, "numbers"), "files/data/test-*.parquet", False),
    "Parquet with names": (lambda s: parquet(s, "names"), "files --split test", True),
    "tars": (lambda s: tars(s, "numbers"), "photos-{000..001}.tar", False),
    "tars with names": (lambda s: tars(s, "names"), "photos-{000,001}.tar", True),
    "tars with JSON": (lambda s: tars(s, "json"), "photos-*.tar --label-key label", False),
    "tars of a loader with workers": (
        lambda s: tars(s, "json"),
        "photos-*.tar --workers 2 --batch-size 4",
        False,
    ),
}


@pytest.mark.parametrize(
    "kind", by_pace(KINDS, ["save_to_disk of splits", "Parquet with names", "tars with JSON"])
)
def test_images_in_files(kind: str, run) -> None:
    write, words, named = KINDS[kind]
    write(photographs("others"))
    answer = run("net.py:make_model", *words.split(), "--weights", "net.pt", "--json")
    assert_measured(answer, by_hand(IMAGENET))
    names = json.loads(answer[1])["provenance"]["class_names"]
    assert names == (list(CLASSES) if named else [])


def test_files_that_do_not_tell_images_or_labels(run) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    samples = photographs("others")
    image = {"image": [png(pixels) for pixels, _ in samples]}
    labels = [label for _, label in samples]
    written = {
        "two": image | {"fine": labels, "coarse": labels},
        "hidden": image | {"label": [-1] * len(samples)},
        "none": {"label": labels},
        "path": {"image": [{"bytes": None, "path": "a.png"}] * 15, "label": labels},
        "broken": {"image": [png(b"no image")] * 15, "label": labels},
    }
    for name, columns in written.items():
        pq.write_table(pa.table(columns), f"{name}.parquet")
    Path("text.parquet").write_text("label,image")
    Path("text.tar").write_text("label,image")
    tars([(samples[0][0], 0)] * 2, "json")
    said = {
        "two.parquet": "one column of labels, found columns fine, coarse; name it with --label-key",
        "hidden.parquet": "labels from 0, found -1, which marks hidden labels; choose a split",
        "none.parquet": "one column of images, found columns label; name it with --image-key",
        "path.parquet": "the bytes of an image in path.parquet, row 0, found a path alone",
        "broken.parquet": "an image in broken.parquet, row 0, found UnidentifiedImageError",
        "broken.parquet --preprocess net.py:transform --workers 1": "error: expected an image in "
        "broken.parquet, row 0, found UnidentifiedImageError",
        "text.parquet": "a table of images in text.parquet, found",
        "text.tar": "a tar archive in text.tar, found",
        "absent-{0..3}.tar": "files that match absent-{0..3}.tar, found none",
        "photos-000.tar --label-key kind": "for the sample part/00000 in photos-000.tar",
        "two.parquet --split test": "a split test in two.parquet, found no splits",
    }
    for words, sentence in said.items():
        code, _, err = run("net.py:make_model", *words.split())
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        assert (code, len(lines)) == (2, 1), (words, err)
        assert sentence in lines[0], (words, err)
    code, _, err = run("net.py:make_model", "two.parquet", "--label-key", "fine", "--json")
    assert code == 0, err
