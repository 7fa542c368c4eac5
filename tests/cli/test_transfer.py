"""The command `ncscope transfer`: checkpoints and images in the files that people have."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from ncscope.api.named_checkpoints import rank_models
from ncscope.api.named_images import ImageOptions, read_image_splits
from ncscope.cli import main
from ncscope.cli.transfer import repeat_option
from ncscope.data.catalogue import load
from ncscope.data.downstream_sets import prepare_like
from ncscope.data.folders import read_folder
from ncscope.models.forward import features_and_logits
from ncscope.models.networks.catalogue import build
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import finish
from ncscope.transfer import leep, nce, rank_checkpoints
from ncscope.transfer.ranking import hold_out, score_checkpoint
from ncscope.transfer.samples import check_downstream
from ncscope.transfer.scores.all_scores import moment_scores

timm = pytest.importorskip("timm")

K, EACH = 3, 6
IMAGES_ONLY = (
    "--pretraining digits",
    "--device auto",  # also where it is the default
    "--preprocess model",
    "--batch-size 64",
    "--workers 0",
    "--download",
    "--data-folder data",
)


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command in a scratch folder; exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        with pytest.raises(SystemExit) as stopped:
            main(["transfer", *map(str, words)])
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


def photographs(folder: str, each: int = EACH, seed: int = 0) -> None:
    """Noise with a stripe that tells the class, in a folder for each class."""
    random = np.random.default_rng(seed)
    for label, name in enumerate(("ant", "bee", "cat")):
        (Path(folder) / name).mkdir(parents=True)
        for number in range(each):
            pixels = random.integers(0, 256, (24, 24, 3))
            pixels[8 * label : 8 * label + 8] //= 3
            path = Path(folder) / name / f"{number}.png"
            Image.fromarray(pixels.astype(np.uint8)).save(path)


def networks(*outputs: int) -> dict[str, torch.nn.Module]:
    """Networks of the catalogue, each with outputs of its own, and files of their weights."""
    made = {}
    for seed, count in enumerate(outputs):
        torch.manual_seed(seed)
        made[f"small-residual@{seed}.pt"] = build(
            "small-residual", count, in_channels=1, image_size=8
        ).eval()
        torch.save(made[f"small-residual@{seed}.pt"].state_dict(), f"{seed}.pt")
    return made


def features_of(model: torch.nn.Module, images) -> torch.Tensor:
    inputs = torch.stack([images[index][0] for index in range(len(images))])
    with torch.no_grad():
        return features_and_logits(model, inputs)[0]


def parse_output(out: str) -> dict:
    return json.loads(out, parse_constant=pytest.fail)


@pytest.mark.slow
def test_networks_of_the_catalogue_see_images_as_those_that_they_were_trained_on(run):
    """Those in val choose the probe's strength."""
    models = networks(4, 40)  # the photographs have three classes
    photographs("photos/train")
    photographs("photos/test", each=2, seed=1)
    photographs("photos/val", each=3, seed=2)
    words = ["--models", *models, "--data", "photos", "--pretraining", "digits"]
    code, out, err = run(*words, "--json")
    assert (code, err) == (0, "")
    found = parse_output(out)
    source = load("digits").train
    through = prepare_like(read_image_splits(ImageOptions("photos"), seed=0), load("digits")).train
    parts = {part: read_folder(Path("photos", part), "train") for part in ("train", "test", "val")}
    seen = {part: images.through(through.preprocessing) for part, images in parts.items()}
    for each in found["checkpoints"]:
        model = models[each["name"]]
        rows = {part: (features_of(model, own), own.labels) for part, own in seen.items()}
        first = ClassMoments(10, rows["train"][0].shape[1])
        first.update(features_of(model, source), source.labels)
        samples = {part: check_downstream(*own) for part, own in rows.items()}
        given = {"validation": samples["val"], "pretraining": first}
        known = score_checkpoint("", samples["train"], samples["test"], **given)
        assert (each["accuracy"], each["strength"]) == (known.accuracy, known.strength)
        # Float32 features of one network move the fit of NLEEP's mixture; NCTI compares networks.
        read = {key: each["scores"][key] for key in known.scores if key != "nleep"}
        assert read == pytest.approx({key: known.scores[key] for key in read}, rel=1e-4, abs=1e-9)
        both = samples["train"].join(samples["val"])
        theta = model.classifier(torch.cat([rows["train"][0], rows["val"][0]])).softmax(1).detach()
        assert each["scores"]["leep"] == pytest.approx(float(leep(both, theta)), rel=1e-4)
        assert each["scores"]["nce"] == pytest.approx(float(nce(both, theta.argmax(1))))
        assert each["scores"]["parameters"] == sum(w.numel() for w in model.parameters())
    assert len(found["checkpoints"]) == 2
    sizes = [found[part] for part in ("train", "validation", "test")]
    assert (found["data"], sizes) == ("photos", [18, 9, 6])
    assert not Path("runs").exists()


@pytest.mark.slow
def test_models_of_timm_on_photographs_with_the_set_they_were_trained_on(run):
    photographs("photos/train")
    photographs("photos/test", each=2, seed=1)
    photographs("first", each=2, seed=2)
    torch.manual_seed(0)
    for outputs, name in ((5, "five"), (0, "headless")):
        save_file(
            timm.create_model("test_vit", num_classes=outputs).state_dict(), f"{name}.safetensors"
        )
    names = [f"timm:test_vit@{name}.safetensors" for name in ("five", "headless")]
    words = ["--models", *names, "--data", "photos", "--pretraining", "first", "--json"]
    code, out, err = run(*words, "--measure", "mean-per-class", "--batch-size", "4")
    assert (code, err) == (0, "")
    found = parse_output(out)
    assert (found["train"], found["test"], found["measure"]) == (18, 6, "mean per class")
    assert_pretraining_is_of_all_images(found["checkpoints"])


def assert_pretraining_is_of_all_images(checkpoints: list[dict]) -> None:
    """Of the headless model, whose outputs are the features."""
    model = timm.create_model("test_vit", num_classes=0).eval()
    model.load_state_dict(load_file("headless.safetensors"))
    settings = timm.data.resolve_model_data_config(model)
    prepared = timm.data.create_transform(**settings, is_training=False)
    files = sorted(Path("first").rglob("*.png"))
    with torch.no_grad():
        rows = model(torch.stack([prepared(Image.open(path).convert("RGB")) for path in files]))
    moments = ClassMoments(K, rows.shape[1])
    moments.update(rows, torch.arange(K).repeat_interleave(2))
    known = moment_scores(finish(moments))
    (found,) = (each["scores"] for each in checkpoints if "headless" in each["name"])
    for key in ("vci", "cdnv", "cosine_within"):
        assert found[f"pretraining_{key}"] == pytest.approx(known[key], rel=1e-4)


@pytest.mark.slow
def test_progress_reaches_its_end_and_a_fifth_is_held_out_where_there_are_no_test_images(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    photographs("photos", each=10)
    torch.manual_seed(0)
    torch.save(timm.create_model("test_resnet", num_classes=4).state_dict(), "net.pt")
    said = []
    report = rank_models(
        ["timm:test_resnet@net.pt"],
        ImageOptions("photos", batch_size=7),
        on_step=lambda part, done, total: said.append((part, done, total)),
    )
    assert (report.facts["train"], report.facts["test"]) == (24, 6)
    batches = 4 + 1
    assert said[0][1:] == (0, batches)
    assert said[-1] == ("timm:test_resnet@net.pt: probe", batches, batches)
    assert report.ranking.notes[0] == "One checkpoint: there is nothing to correlate."


@pytest.mark.slow
def test_weights_in_a_checkpoint_with_an_average(run):
    (model,) = networks(10).values()
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    average = {name: value for name, value in state.items() if "tracked" not in name}
    average = {name: 2 * value for name, value in average.items()}
    torch.save({"state_dict": state, "state_dict_ema": state | average}, "run.ckpt")
    words = ["--data", "digits", "--json"]
    name = "small-residual@run.ckpt"
    found = {}
    for key in ([], ["--weights-key", "state_dict"], ["--weights-key", "state_dict_ema"]):
        code, out, err = run("--models", name, *words, *key)
        assert (code, err.splitlines()[-1]) == (0, f"{name}: weights: prefix 'module.' removed")
        found[" ".join(key)] = parse_output(out)["checkpoints"][0]["scores"]
    plain, asked, averaged = found.values()
    assert plain == asked != averaged


def samples(seed: int, size: float = 1.0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = np.arange(60) % 3
    return {"features": np.eye(5)[labels] + size * random.normal(size=(60, 5)), "labels": labels}


@pytest.mark.slow
def test_features_in_files(run):
    files = ["1.0.npz", "0.5.npz"]
    for file in files:
        np.savez(file, **samples(0, float(file.removesuffix(".npz"))))
    target = "[bold]ranking.json"
    code, out, err = run("--models", *files, "--seed", "3", "-o", target)
    assert (code, err) == (0, "")
    assert out.startswith("0.5.npz is best: top-1 accuracy ")
    said = (
        *files,
        "95 % interval",
        "not separable",
        "LogME",
        "Two checkpoints: any score would",
        f"Written: {target}",
    )
    assert all(words in out for words in said)
    found = parse_output(Path(target).read_text())
    labels = samples(0)["labels"]
    known = rank_checkpoints({name: np.load(name)["features"] for name in files}, labels, seed=3)
    assert [each["name"] for each in found["checkpoints"]] == known.order == files[::-1]
    accuracies = [each["accuracy"] for each in found["checkpoints"]]
    assert accuracies == [each.accuracy for each in known.checkpoints]
    names = np.array(list("abcdefghij"))[labels]
    np.savez("named.npz", X=np.load(files[0])["features"], y=names)
    features = np.load(files[1])["features"]
    header = ",".join([*map(str, range(features.shape[1])), "label"])
    rows = [
        ",".join([*map(repr, row), name])
        for row, name in zip(features.tolist(), names, strict=True)
    ]
    Path("table.csv").write_text("\n".join([header, *rows]))
    code, out, err = run("--models", "named.npz", "table.csv", "--seed", "3", "--json")
    assert (code, err) == (0, "")
    found = parse_output(out)
    assert [each["name"] for each in found["checkpoints"]] == ["table.csv", "named.npz"]
    assert [each["accuracy"] for each in found["checkpoints"]] == accuracies


@pytest.mark.slow
def test_results_on_other_sets_and_source_probabilities_from_files(run):
    files = ["1.0.npz", "0.5.npz", "0.2.npz"]
    for file in files:
        given = samples(0, float(file.removesuffix(".npz")))
        # Of three source classes the last sample's alone differs from the label.
        given["source_probabilities"] = np.eye(3)[np.append(given["labels"][:-1], 0)]
        np.savez(file, **given)
    rows = [f"{file},{name},{value}" for name in "ab" for value, file in enumerate(files)]
    Path("results.csv").write_text("\n".join(["model,set,accuracy", *rows, "other,b,9"]))
    words = ["--models", *files, "--results", "results.csv", "--results-without", "b"]
    code, out, err = run(*words, "--no-expensive", "--save", "r.json")
    assert (code, err) == (0, "")
    assert "weighted tau here" in out
    assert "Pearson" not in out  # which is left to the page
    found = parse_output(Path("r.json").read_text())
    scores = {each["name"]: each["scores"] for each in found["checkpoints"]}
    high = float(np.sqrt(1.5))  # a alone is counted
    assert [scores[file]["other_sets"] for file in files] == pytest.approx([-high, 0, high])
    assert set(found["qualities"]) == set(scores[files[0]])
    assert found["static"]["sets"] == ["a", "b"]
    assert found["static"]["qualities"]["other_sets"]["kendall"]["value"] == pytest.approx(
        (1 + 0) / 2
    )
    labels = samples(0)["labels"]
    train = check_downstream(np.zeros((60, 1)), labels).select(~hold_out(torch.tensor(labels), 0))
    theta = np.eye(3)[np.append(labels[:-1], 0)][~hold_out(torch.tensor(labels), 0).numpy()]
    assert {each["leep"] for each in scores.values()} == {float(leep(train, theta))}
    assert not {"nleep", "parc"} & scores[files[0]].keys()
    assert found["notes"][-1].startswith("A useless score")


@pytest.mark.slow
def test_names_that_the_results_lack_are_said(run):
    for file in ("1.0.npz", "0.5.npz"):
        np.savez(file, **samples(0, float(file.removesuffix(".npz"))))
    Path("results.csv").write_text("model,set,accuracy\n1.0.npz,a,0.5\nother,a,0.6\n")
    words = ["--models", "1.0.npz", "0.5.npz", "--results", "results.csv", "--no-expensive"]
    code, _, err = run(*words, "--save", "r.json")
    assert code == 0
    assert err == "The results have no rows for 0.5.npz: they have no baselines.\n"
    code, _, err = run(*words, "--results-without", "pest")
    assert code == 2
    assert "expected results on pest, found a;" in err


def test_features_that_do_not_fit_into_memory_in_double_precision(run, monkeypatch):
    np.savez("a.npz", **samples(0))
    needed = 2 * 8 * 60 * 5
    monkeypatch.setattr("ncscope.memory.available_memory", lambda: needed - 1)
    code, out, err = run("--models", "a.npz", "--json")
    assert (code, out) == (2, "")
    assert "expected 4,800 bytes of memory for two copies in float64 of a.npz, found 4,799" in err


@pytest.mark.slow
def test_without_a_word_nothing_is_written_and_each_kind_of_file_on_request(run):
    for file in ("a.npz", "b.npz"):
        np.savez(file, **samples(len(file)))
    words = ["--models", "a.npz", "b.npz", "--no-expensive"]
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert "--save ranking.html" in out
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["a.npz", "b.npz"]
    for suffix in ("html", "csv", "tex", "svg"):
        code, out, _ = run(*words, "--save", f"r.{suffix}")
        assert (code, out.splitlines()[-1]) == (0, f"Written: r.{suffix}")
    assert Path("r.csv").read_text().count("\n") == 3
    code, out, _ = run(*words, "--json", "--save", "r.json")
    assert out == Path("r.json").read_text()


def bad_inputs():
    """Words of the command line, and what is said of them; the files they name are written."""
    good = samples(0)
    np.savez("a.npz", **good)
    np.savez("short.npz", **{name: value[:-1] for name, value in good.items()})
    np.savez("other.npz", **good | {"labels": (good["labels"] + 1) % 3})
    np.savez("empty.npz", **good | {"features": np.zeros((60, 0))})
    np.savez("worn.npz", **good | {"features": np.where(good["labels"][:, None] > 1, np.nan, 1)})
    np.savez("one.npz", **good | {"labels": 0 * good["labels"]})
    torch.save({"weight": torch.zeros(2)}, "weights.pt")
    Path("half/test/a").mkdir(parents=True)
    networks(4)  # on grey images, and the photographs are in colour
    photographs("photos")
    for name in ("resnet", "vit"):
        torch.save(timm.create_model(f"test_{name}", num_classes=2).state_dict(), f"{name}.pt")
    files = "--models a.npz"
    yield f"{files} short.npz", "the same samples in short.npz as in a.npz, found labels of shape"
    yield f"{files} other.npz", "as in a.npz, found labels 1 and 0 at row 0"
    yield f"{files} empty.npz", "features of shape (n, d) of empty.npz, found shape (60, 0)"
    yield f"{files} worn.npz", "finite features of worn.npz, found NaN or Inf in 20 of 60 rows"
    yield "--models one.npz", "at least two classes with samples of one.npz"
    yield f"{files} a.npz", "every checkpoint once, found a.npz twice"
    yield f"{files} nowhere.npz", "nothing at nowhere.npz"
    for option in IMAGES_ONLY:
        name = option.split()[0]
        yield f"{files} {option}", f"expected --data with {name}, found none; leave {name} out"
    yield f"{files} --workers 0 --device auto", "leave --device, --workers out"
    Path("results.csv").write_text("model,set,accuracy\nb.npz,one,0.5\n")
    found = "found results of b.npz; name the models in the results as"
    yield f"{files} --results results.csv", found
    yield (
        f"{files} --results nowhere.csv",
        "expected a CSV file of results, found nothing at nowhere.csv",
    )
    yield f"{files} --results-without one", "leave --results-without out"
    np.savez("off.npz", **good, source_probabilities=np.ones((60, 2)))
    yield "--models off.npz", "rows of probabilities that sum to one of off.npz, found row 0"
    yield f"{files} --save ranking.txt", "a file name ending in .html"
    yield f"{files} --save nowhere/r.png", "a folder nowhere to write in, found none of that name"
    yield f"{files} --data digits", "leave --data out"
    yield "--data digits", "'--models'"
    yield "--models timm:resnet18@weights.pt", "--data with timm:resnet18@weights.pt, found none"
    yield "--models weights.pt --data digits", "pass MODEL@weights.pt"
    yield "--models small-resnt --data digits", "the nearest is small-resnet"
    yield "--models small-resnet --data digits", "pass small-resnet@FILE"
    yield "--models timm:resnet18 --data digits", "pass timm:resnet18@FILE, or --download"
    yield "--models timm:resnet18@gone.pt --data digits", "weights of timm:resnet18, found nothing"
    yield "--models small-resnet@weights.pt --data digits", "name the model that was saved"
    own = "name with --pretraining the images that it was trained on, or name the model"
    yield "--models small-residual@0.pt --data photos", own
    other = "name the model that was saved"
    yield "--models small-residual@0.pt --data photos --pretraining patterns", f"; {other}\n"
    yield "--models timm:resnet18@weights.pt --data photos", f"; {other}\n"
    data = "found 1 x 8 x 8 with --preprocess data:"
    fit, words = "expected images that fit the input of timm:", "--data digits --preprocess data"
    yield f"--models timm:test_resnet@resnet.pt {words}", f"{fit}test_resnet@resnet.pt, {data}"
    yield f"--models timm:test_vit@vit.pt {words}", f"{data} Input height (8) should"
    yield "--models small-resnet@weights.pt --data nowhere", "found 'nowhere'; pass one of digits"
    yield "--models small-resnet@weights.pt --data half", "a folder train in half, found test only"
    yield "--models small-resnet@weights.pt --data digits --device tpu", "a device tpu"
    yield "--models small-resnet@weights.pt --data digits --measure top-5", "top-5"


@pytest.mark.slow
def test_bad_input_is_one_line_and_exit_code_two(run):
    for words, said in bad_inputs():
        code, out, err = run(*words.split())
        assert (code, out) == (2, ""), (words, err)
        assert err.startswith("error: "), words
        assert err.count("\n") == 1, words
        assert said in err, (words, err)


def test_a_model_whose_features_are_not_finite_is_named(run):
    (name,) = networks(4)
    weights = torch.load("0.pt", weights_only=True)
    first = next(iter(weights))
    torch.save(weights | {first: torch.full_like(weights[first], torch.nan)}, "0.pt")
    code, _, err = run("--models", name, "--data", "digits")
    assert (code, err.count("\n")) == (2, 1)
    assert f"of {name}, found NaN" in err


def test_an_option_is_repeated_before_each_of_its_values():
    words = ["--models", "a", "b", "--json", "--models=c", "d", "-h", "e"]
    once = ["--models", "a", "--models", "b", "--json", "--models=c", "--models", "d", "-h", "e"]
    assert repeat_option(words, "--models") == once


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("measure nofile.npz", "found nothing at nofile.npz"),
        ("transfer --models nofile.npz", "found nothing at nofile.npz"),
        ("report nofile.npz", "found nothing at nofile.npz"),
        ("measure nofile.npz --groups nc1,nc9", "found ['nc9']; for 'nc9' pass"),
        ("measure-model resnet18 nofile --groups spectre", "for 'spectre' pass spectra"),
    ],
)
def test_a_missing_file_or_name_is_found_before_torch_is_loaded(words: str, found: str) -> None:
    code = "import sys; from ncscope.cli import main\ntry: main()\nfinally: "
    code += "assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert found in done.stderr
