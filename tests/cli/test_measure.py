"""The command `ncscope measure`: output, files, exit codes, one-line errors."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import ncscope
from ncscope.cli import main


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    weight = rng.normal(size=(3, 5))
    features = weight[labels] + 0.5 * rng.normal(size=(60, 5))
    return {"features": features, "labels": labels, "weight": weight, "bias": np.zeros(3)}


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command in a scratch folder; exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        with pytest.raises(SystemExit) as stopped:
            main(list(map(str, words)))
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


def write(path, samples):
    if path.suffix == ".npz":
        np.savez(path, **samples)
    elif path.suffix == ".safetensors":
        save_file({k: torch.tensor(v) for k, v in samples.items()}, path)
    else:
        torch.save({k: torch.tensor(v) for k, v in samples.items()}, path)


def test_the_precision_is_that_of_the_instrument(run, samples):
    write(Path("f.npz"), samples)
    code, out, _ = run("measure", "f.npz", "--precision", "blocked", "--json")
    assert code == 0
    found = json.loads(out)["metrics"]
    assert found == ncscope.measure(**samples, precision="blocked").as_dict()["metrics"]
    assert found != ncscope.measure(**samples).as_dict()["metrics"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt"])
def test_json_is_the_report_and_nothing_else(run, samples, suffix):
    write(Path(f"f{suffix}"), samples)
    code, out, err = run("measure", f"f{suffix}", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert {"metrics", "notes", "warnings", "num_classes", "num_samples", "dim"} <= set(found)
    assert (found["num_classes"], found["num_samples"], found["dim"]) == (3, 60, 5)
    assert found["metrics"] == ncscope.measure(**samples).as_dict()["metrics"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt"])
def test_a_file_on_standard_input(run, samples, suffix, monkeypatch):
    write(Path(f"f{suffix}"), samples)
    code, out, err = run("measure", f"f{suffix}", "--json")
    expected = json.loads(out)
    assert expected["provenance"].pop("data") == f"f{suffix}"
    with Path(f"f{suffix}").open() as given:
        monkeypatch.setattr("sys.stdin", given)
        streamed = run("measure", "-", "--json")
    found = json.loads(streamed[1])
    assert found["provenance"].pop("data") == "standard input"
    for each in (expected, found):
        del each["provenance"]["date"]
    assert (streamed[0], found, streamed[2]) == (code, expected, err)
    Path("empty").touch()
    with Path("empty").open() as given:
        monkeypatch.setattr("sys.stdin", given)
        code, _, err = run("measure", "-")
    assert (code, "arrays in standard input, found an empty file" in err) == (2, True)


def test_arrays_are_taken_one_by_one(run, samples):
    for name, value in samples.items():
        np.save(f"{name}.npy", value)
    words = [word for name in samples for word in (f"--{name}", f"{name}.npy")]
    code, out, _ = run("measure", *words, "--json", "--groups", "nc3, nc4")
    assert code == 0
    assert json.loads(out)["metrics"] == dict(ncscope.measure(**samples, groups=["nc3", "nc4"]))


@pytest.mark.parametrize("words", [["f.npy"], ["--features", "f.npy"]], ids=["file", "option"])
def test_features_without_labels(run, samples, words):
    np.save("f.npy", samples["features"])
    code, out, err = run("measure", *words, "--json")
    found = json.loads(out)
    assert (code, err, found["num_classes"]) == (0, "", 0)
    assert found["metrics"] == dict(ncscope.measure(samples["features"]))
    code, out, _ = run("measure", *words, "--save", "r.csv")
    assert (code, "rankme" in out) == (0, True)


def test_an_array_as_the_file_and_labels(run, samples):
    np.save("f.npy", samples["features"])
    np.save("y.npy", samples["labels"])
    code, out, _ = run("measure", "f.npy", "--labels", "y.npy", "--json", "--groups", "nc1")
    wanted = dict(ncscope.measure(samples["features"], samples["labels"], groups=["nc1"]))
    assert (code, json.loads(out)["metrics"]) == (0, wanted)


def test_every_file_that_is_named_is_written(run, samples):
    np.savez("features.npz", **samples)
    code, out, _ = run("measure", "features.npz", "-o", "a.json", "-o", "a.tex")
    assert (code, out.count("Written: ")) == (0, 2)
    assert Path("a.json").exists()
    assert Path("a.tex").exists()


def test_nan_is_null_and_named(run, samples):
    samples["features"][:] = 1.0
    write(Path("f.npz"), samples)
    code, out, _ = run("measure", "f.npz", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["metrics"]["nc1_quotient"] is None
    assert any("nc1_quotient" in note and "class means coincide" in note for note in found["notes"])


def test_the_table_names_keys_and_the_notes_follow(run, samples):
    samples["labels"] = np.where(samples["labels"] == 1, 2, samples["labels"])
    write(Path("f.npz"), samples)
    code, out, _ = run("measure", "f.npz")
    assert code == 0
    assert "nc1_quotient" in out
    assert "warning: class 1 without samples" in out


def test_a_report_is_saved(run, samples):
    write(Path("f.npz"), samples)
    code, out, _ = run("measure", "f.npz", "--save", "[b]r.html")
    assert (code, out.splitlines()[-1]) == (0, "Written: [b]r.html")
    assert "</html>" in Path("[b]r.html").read_text()
    code, out, _ = run("measure", "f.npz", "--save", "r.json", "--json")
    assert (code, out) == (0, Path("r.json").read_text())


def bad_inputs(samples):
    """Name, words, and what the one line must say; files are written beside."""
    features, labels = samples["features"], samples["labels"]
    broken, infinite = features.copy(), features.copy()
    broken[7, 2] = np.nan
    infinite[8, 0] = -np.inf
    changed = {
        "nan": ({"features": broken}, "NaN or Inf in 1 of 60 rows, the first is row 7"),
        "inf": ({"features": infinite}, "NaN or Inf in 1 of 60 rows, the first is row 8"),
        "negative": ({"labels": labels - 1}, "label -1 at row 0"),
        "range": ({"labels": labels + 1}, "label 3 at row 2"),
        "integral": ({"labels": labels + 0.5}, "label 0.5 at row 0"),
        "length": ({"labels": labels[:-1]}, "labels of shape (59,) for 60 rows"),
        "weight": ({"weight": np.ones((3, 4))}, "a weight of shape (3, 5), found shape (3, 4)"),
        "bias": ({"bias": np.ones(2)}, "a bias of shape (3,), found shape (2,)"),
        "one-class": ({"labels": 0 * labels}, "at least two classes"),
    }
    for name, (change, said) in changed.items():
        write(Path(f"{name}.npz"), samples | change)
        yield name, [f"{name}.npz"], said
    np.savez("pickled.npz", features=np.array([{}], dtype=object), labels=labels)
    yield "pickled npz", ["pickled.npz"], "pickled objects are never loaded"
    torch.save({"features": Path("x"), "labels": torch.ones(1)}, "pickled.pt")
    yield "pickled pt", ["pickled.pt"], "pickled objects are never loaded"
    np.savez("names.npz", a=features, b=labels)
    yield "names", ["names.npz"], "found entries a, b; choose them, for example --features a"
    Path("text.npz").write_text("no archive")
    yield "no archive", ["text.npz"], "another kind of file, or a damaged file (text.npz)"
    yield "missing", ["nowhere.npz"], "nothing at nowhere.npz"
    Path("f.csv").write_text("features, labels")
    yield "kind", ["f.csv"], "lines of numbers in f.csv, found 1 line"
    yield "nothing given", [], "a file of features, found none; for example"
    yield "labels alone", ["--labels", "y.npy"], "both --features and --labels"
    np.save("w.npy", samples["weight"])
    unlabelled = ["--features", "h.npy", "--weight", "w.npy"]
    yield "a head without labels", unlabelled, "pass labels, or leave out weight"
    yield "a group without labels", ["h.npy", "--groups", "nc1"], "metrics that need no labels"
    yield "chance without labels", ["h.npy", "--baseline"], "labels with baseline"
    write(Path("good.npz"), samples)
    yield "group", ["good.npz", "--groups", "nc9"], "nc9"
    yield "option", ["good.npz", "--prior", "flat"], "flat"
    models = "measure a model by ncscope measure-model MODEL DATA"
    for option in ("--device", "--model", "--weights", "--data"):
        yield f"{option} of models", ["good.npz", option, "auto"], f"{option}; {models}"
    Path("report.json").write_text('{"schema_version": 1}')
    yield "a report", ["report.json"], "that ncscope wrote (report.json); show it with ncscope"


def bad_files(samples):
    """Damaged, empty and misnamed files: name, words, and what the one line must say."""
    write(Path("whole.npz"), samples)
    write(Path("whole.pt"), samples)
    np.save("y.npy", samples["labels"])
    np.save("h.npy", samples["features"])
    for name in ("corrupt", "unsupported"):
        np.savez_compressed(f"{name}.npz", **samples)
    header = 30 + len("features.npy") + Path("corrupt.npz").read_bytes()[28]
    overwrite(Path("corrupt.npz"), header, b"\xff")
    yield "corrupt", ["corrupt.npz"], "a damaged file (Error -3 while decompressing"
    directory = Path("unsupported.npz").read_bytes().index(b"PK\1\2")
    overwrite(Path("unsupported.npz"), directory + 10, b"\x63")
    yield "compression", ["unsupported.npz"], "a damaged file (That compression method"
    shutil.copy("h.npy", "renamed.npz")
    yield "npy as npz", ["renamed.npz"], "found an .npy file"
    shutil.copy("whole.npz", "renamed.npy")
    yield "npz as npy", ["--features", "renamed.npy", "--labels", "y.npy"], "found an .npz file"
    for kept in (0.3, 0.9):
        content = Path("whole.pt").read_bytes()
        Path(f"{kept}.pt").write_bytes(content[: int(kept * len(content))])
        yield f"truncated at {kept}", [f"{kept}.pt"], "a damaged file"
    Path("cut.npy").write_bytes(Path("h.npy").read_bytes()[:-8])
    yield "truncated npy", ["--features", "cut.npy", "--labels", "y.npy"], "a damaged file"
    Path("cut.safetensors").write_bytes(b"\x10\0")
    yield "truncated safetensors", ["cut.safetensors"], "a damaged file"
    for suffix in (".npz", ".pt", ".safetensors"):
        Path(f"empty{suffix}").touch()
        yield f"empty {suffix}", [f"empty{suffix}"], "found an empty file"
    Path("empty.npy").touch()
    yield "empty npy", ["--features", "empty.npy", "--labels", "y.npy"], "found an empty file"
    np.save("pickled.npy", np.array([{}], dtype=object))
    yield "pickled npy", ["--features", "pickled.npy", "--labels", "y.npy"], "pickled objects"


def overwrite(path, start, content):
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + content + whole[start + len(content) :])


@pytest.mark.slow
def test_bad_input_is_one_line_and_exit_code_two(run, samples):
    for name, words, said in [*bad_inputs(samples), *bad_files(samples)]:
        code, out, err = run("measure", *words)
        assert (code, out) == (2, ""), name
        assert err.startswith("error: "), name
        assert err.count("\n") == 1, name
        assert said in err, name


def unusual(num_classes, dim, dtype=np.float64, present=None):
    """Samples with a classifier, of any number of classes and dimensions."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % (present or num_classes)
    weight = 20 * rng.normal(size=(num_classes, dim))
    features = weight[labels] + rng.normal(size=(60, dim))
    return {"features": features.astype(dtype), "labels": labels, "weight": weight}


UNUSUAL = {
    "two classes": unusual(2, 5),
    "more classes than dimensions": unusual(6, 3),
    "one dimension": unusual(3, 1),
    "an absent class with a head": unusual(4, 5, present=3),
    "float16": unusual(3, 5, np.float16),
    "int8": unusual(3, 5, np.int8),
}


@pytest.mark.parametrize("samples", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_samples_are_measured(run, samples):
    write(Path("f.npz"), samples)
    shape = (*samples["weight"].shape, 60)
    assert_measured(run("measure", "f.npz", "--json"), shape)


def test_bfloat16_features_are_measured(run, samples):
    tensors = {name: torch.tensor(value) for name, value in samples.items()}
    save_file(tensors | {"features": tensors["features"].bfloat16()}, "f.safetensors")
    assert_measured(run("measure", "f.safetensors", "--json"), (3, 5, 60))


def assert_measured(answer, shape):
    """Exit 0 and strict JSON, where what is not defined is null and not NaN."""
    code, out, err = answer
    assert (code, err) == (0, "")
    found = json.loads(out, parse_constant=pytest.fail)
    assert (found["num_classes"], found["dim"], found["num_samples"]) == shape
    assert found["metrics"]["nc1_quotient"] > 0


@pytest.mark.parametrize("suffix", ["html", "json", "png"])
def test_a_report_that_cannot_be_saved_is_exit_code_two(run, samples, suffix):
    write(Path("f.npz"), samples)
    for folder, found in {"nowhere": "none of that name", "f.npz": "a file of that name"}.items():
        said = f"error: expected a folder {folder} to write in, found {found}; "
        for file in ("f.npz", "gone.npz"):  # before anything is read
            code, out, err = run("measure", file, "--save", f"{folder}/r.{suffix}")
            assert (code, out) == (2, "")
            assert err.startswith(said)
            assert err.count("\n") == 1
    assert "a file name ending in .html" in run("measure", "gone.npz", "--save", "r.txt")[2]


def test_debug_shows_the_traceback(run):
    _, _, err = run("measure", "nowhere.npz", "--debug")
    assert "Traceback" in err
    assert err.strip().splitlines()[-1].startswith("error: ")


def test_unknown_commands_and_version(run):
    assert run("mesure")[0] == 2
    assert run("--version")[:2] == (0, f"{ncscope.__version__}\n")
    code, out, _ = run()
    assert code == 0
    assert "measure" in out


def test_an_error_of_our_own_is_exit_code_one(run, samples, monkeypatch):
    write(Path("f.npz"), samples)

    def broken(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr("ncscope.api.measure.measure", broken)
    code, _, err = run("measure", "f.npz")
    assert code == 1
    assert "--debug" in err


@pytest.mark.slow
def test_the_installed_command_runs(samples, tmp_path):
    write(tmp_path / "f.npz", samples)
    command = Path(sys.executable).with_name("ncscope")
    done = subprocess.run(
        [command, "measure", tmp_path / "f.npz", "--json"], capture_output=True, check=True
    )
    assert json.loads(done.stdout)["num_samples"] == 60


@pytest.mark.slow
def test_noise_is_seen_to_be_noise(run):
    """Two hundred random rows, d=512: nobody takes a VCI of 0 for collapse."""
    random = np.random.default_rng(0)
    samples = {"features": random.normal(size=(200, 512)), "labels": np.arange(200) % 10}
    write(Path("noise.npz"), samples)
    code, out, err = run("measure", "noise.npz", "--groups", "nc1,nc4", "--save", "noise.html")
    assert (code, err) == (0, "")
    lines = " ".join(out.split())
    assert lines.startswith("warning: no sign of collapse, permuted labels come as close: nc1,")
    assert "warning: 200 samples are few for dimension 512: random labels give a vci of" in lines
    assert "collapsed" in lines
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["vci"])
    assert row == ["vci", "0", "0", "↓", "0"]  # the value, at collapse, by chance
    page = Path("noise.html").read_text()
    assert page.index("200 samples are few") < page.index("Key numbers")
    assert "Chance" in page


@pytest.mark.slow
def test_samples_enough_have_no_warning_and_errors_on_request(run):
    random = np.random.default_rng(0)
    samples = {"features": random.normal(size=(20_000, 16)), "labels": np.arange(20_000) % 10}
    write(Path("fine.npz"), samples)
    code, out, err = run("measure", "fine.npz", "--groups", "nc1", "--no-baseline", "--json")
    found = json.loads(out)
    assert (code, err, found["warnings"]) == (0, "", [])
    assert found["probe"]["layers"][0]["baseline"] == {}
    code, out, err = run("measure", "fine.npz", "--groups", "nc1", "--uncertainty", "--json")
    layer = json.loads(out)["probe"]["layers"][0]
    assert err == "Standard errors: 20 more measurements, in about 20 times the time of one.\n"
    assert layer["standard_errors"]["within_in_signal"] > 0
    assert not layer["random_sizes"]
    code, out, err = run("measure", "fine.npz", "--groups", "nc1", "--random-sizes", "--json")
    other = json.loads(out)["probe"]["layers"][0]
    assert other["random_sizes"]
    assert other["standard_errors"] != layer["standard_errors"]
    assert layer["baseline"]["vci"] > 0.9


def test_the_sizes_follow_the_table_and_the_table_of_classes_on_request(run, samples):
    np.savez("it.npz", **samples)
    _, out, _ = run("measure", "it.npz", "--groups", "nc1")
    assert "\n60 samples, 3 classes, dimension 5\n" in out
    assert "PerClass" not in out
    _, out, _ = run("measure", "it.npz", "--groups", "per_class")
    assert "PerClass: 3 classes, the least separated first" in out
    assert "collapsed" not in out  # no table of metrics without a metric
    np.save("it.npy", samples["features"])
    _, out, _ = run("measure", "it.npy")
    assert "\n60 samples, no labels, dimension 5\n" in out


def test_a_file_without_labels_is_told_how_to_have_its_spectra(run, samples):
    np.savez("it.npz", features=samples["features"])
    code, _, err = run("measure", "it.npz")
    assert code == 2
    assert "save the labels too, or the features alone as .npy for spectra without labels" in err


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_with_names_is_one_command(run, samples, suffix):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    names = ["ant", "bee", "cat"]
    table = pandas.DataFrame(samples["features"]).add_prefix("feat_")
    table["species"] = [names[label] for label in samples["labels"]]
    if suffix == ".csv":
        table.to_csv("it.csv", index=False)
    else:
        table.to_parquet("it.parquet")
    code, out, err = run("measure", f"it{suffix}", "--label", "species", "--save", "page.html")
    assert (code, err) == (0, "")
    page = Path("page.html").read_text()
    assert all(name in page for name in names)
    code, out, _ = run(
        "measure", f"it{suffix}", "--label", "species", "--features", "feat_*", "--json"
    )
    found = json.loads(out)
    expected = ncscope.measure(samples["features"], samples["labels"])
    assert {k: v for k, v in found["metrics"].items() if v is not None} == pytest.approx(
        {k: v for k, v in expected.items() if v == v}, rel=1e-12
    )
    assert found["provenance"]["class_names"] == names
    code, _, err = run("measure", f"it{suffix}")
    assert (code, "choose it, for example --labels species" in err) == (2, True)


def test_a_table_on_standard_input(run, samples, monkeypatch):
    rows = np.c_[samples["features"], samples["labels"]]
    np.savetxt("it.csv", rows, delimiter=",", header="a,b,c,d,e,y", fmt="%.17g")
    with Path("it.csv").open() as given:
        monkeypatch.setattr("sys.stdin", given)
        _, out, _ = run("measure", "-", "--json")
    expected = ncscope.measure(samples["features"], samples["labels"])
    assert json.loads(out)["metrics"] == expected.as_dict()["metrics"]


@pytest.mark.slow
def test_pairs_of_arrays_are_shards(run, samples):
    parts = np.array_split(np.arange(60), 3)
    names = np.array(["ant", "bee", "cat"])[samples["labels"]]
    for number, part in enumerate(parts):
        np.save(f"X_{number}.npy", samples["features"][part])
        np.save(f"y_{number}.npy", names[part])
    words = ["measure", "--features", "X_*.npy", "--labels", "y_*.npy", "--json"]
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    found = json.loads(out)
    expected = ncscope.measure(samples["features"], samples["labels"], groups=["nc1", "nc4"])
    assert {key: found["metrics"][key] for key in expected} == pytest.approx(dict(expected))
    assert found["provenance"]["class_names"] == ["ant", "bee", "cat"]
    pair = ["--features", "X_0.npy", "--labels", "y_0.npy", "--json"]
    found_names = json.loads(run("measure", *pair)[1])["provenance"]["class_names"]
    assert found_names == ["ant", "bee", "cat"]
    assert run("measure", "X_0.npy", "X_1.npy", "X_2.npy", "--labels", "y_*.npy")[0] == 0
    assert run(*words, "--cluster", "127.0.0.1:1")[0] == 2
    assert json.loads(run(*words, "--work", "kept")[1])["metrics"] == found["metrics"]
    assert len(list(Path("kept").iterdir())) == 9  # names, moments and decisions of three
    assert run(*words, "--work", "kept")[0] == 0
    Path("y_2.npy").unlink()
    code, _, err = run(*words)
    assert (code, "for each of the 3 files of features, found 2 files" in err) == (2, True)


def test_what_was_taken_is_noted(run, samples):
    np.savez("it.npz", X=samples["features"], y=samples["labels"])
    code, out, _ = run("measure", "it.npz", "--json")
    found = json.loads(out)
    assert found["notes"][0] == "read from the file: features: X, labels: y"
    np.savez("two.npz", X=samples["features"], embeddings=samples["features"], y=samples["labels"])
    code, _, err = run("measure", "two.npz")
    assert (code, "choose them, for example --features X --labels y" in err) == (2, True)
    code, out, _ = run("measure", "two.npz", "--features-key", "X", "--json")
    assert json.loads(out)["metrics"] == found["metrics"]


def test_a_large_table_is_read_by_parts(run, samples, monkeypatch):
    names = np.array(["ant", "bee", "cat"])[samples["labels"]]
    with Path("it.csv").open("w") as table:
        print("id,a,b,c,d,e,kind", file=table)
        for number, (row, name) in enumerate(zip(samples["features"], names, strict=True)):
            print(number, *row, name, sep=",", file=table)
    words = ["measure", "it.csv", "--label", "kind", "--features", "!id", "--json"]
    whole = json.loads(run(*words)[1])
    monkeypatch.setattr("ncscope.cli.measure._LARGE", 1000)
    code, out, _ = run(*words)
    found = json.loads(out)
    assert code == 0
    assert found["metrics"]["nc1"] == pytest.approx(whole["metrics"]["nc1"])
    assert found["provenance"]["class_names"] == ["ant", "bee", "cat"]
    baselines = [each["probe"]["layers"][0]["baseline"] for each in (whole, found)]
    assert (baselines[0] != {}, baselines[1]) == (True, {})  # which needs all samples at once


def test_other_samples_in_a_table(run, samples):
    rows = np.c_[samples["features"], samples["labels"]]
    header, options = "a,b,c,d,e,y", {"delimiter": ",", "fmt": "%.17g"}
    np.savetxt("it.csv", rows, header=header, **options)
    np.savetxt("other.csv", rows[::2, :5] + 3, header=header[:-2], **options)
    np.save("other.npy", rows[::2, :5] + 3)
    np.save("w.npy", samples["weight"])
    words = ["measure", "it.csv", "--weight", "w.npy", "--groups", "ood", "--json", "--ood"]
    of_table, of_array = (json.loads(run(*words, f"other{kind}")[1]) for kind in (".csv", ".npy"))
    assert of_table["metrics"] == of_array["metrics"] != {}
