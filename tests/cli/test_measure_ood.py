"""Samples from outside the distribution on the command line: features in files, and images."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchvision.transforms.v2 import functional

import ncscope
from ncscope.cli import main
from ncscope.data.catalogue import load
from ncscope.models.networks.catalogue import build

from ..closeness import assert_agree


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command in a scratch folder; exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words, command="measure"):
        with pytest.raises(SystemExit) as stopped:
            main([command, *map(str, words)])
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


@pytest.fixture
def samples(run):
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    weight = 2 * rng.normal(size=(3, 5))
    features = weight[labels] + rng.normal(size=(60, 5))
    np.savez("f.npz", features=features, labels=labels, weight=weight)
    np.save("o.npy", rng.normal(size=(40, 5)))
    np.savez("o.npz", features=np.load("o.npy"), labels=np.zeros(40))
    return {"features": features, "labels": labels, "weight": weight, "ood": np.load("o.npy")}


@pytest.mark.parametrize("file", ["o.npy", "o.npz"])
def test_features_in_a_file(run, samples, file):
    code, out, _ = run("f.npz", "--ood", file, "--groups", "ood", "--json", "--no-baseline")
    assert code == 0
    assert json.loads(out)["metrics"] == dict(ncscope.measure(**samples, groups=["ood"]))


@pytest.mark.slow
def test_the_page_and_the_tables_show_the_group(run, samples):
    code, out, _ = run("f.npz", "--ood", "o.npy", "--save", "r.html")
    assert code == 0
    page = Path("r.html").read_text()
    for words in (out, page):
        assert "Samples from outside the distribution" in words
        assert "neco_auroc" in words
    for suffix in (".csv", ".tex", ".json"):
        assert run("f.npz", "--ood", "o.npy", "--save", f"r{suffix}")[0] == 0
        assert "neco" in Path(f"r{suffix}").read_text()


BAD = {
    "OOD features of dimension 5, found dimension 4": ["--ood", "narrow.npy"],
    "nothing at missing.npy": ["--ood", "missing.npy"],
    "the entry 'features' in weights.npz": ["--ood", "weights.npz"],
    "the group 'ood' with OOD samples, found groups nc1": ["--ood", "o.npy", "--groups", "nc1"],
    "OOD samples for the group 'ood', found none": ["--groups", "ood"],
    "one file of features for --ood": ["f.npz", "--ood", "o.npy"],
}


@pytest.mark.parametrize("said", BAD)
@pytest.mark.usefixtures("samples")
def test_bad_input_is_one_line(run, said):
    np.save("narrow.npy", np.zeros((3, 4)))
    np.savez("weights.npz", weight=np.zeros(3))
    code, _, err = run("f.npz", *BAD[said])
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_images_beside_a_model(run):
    """Coloured images of 16 x 16 pixels get the size, channel and normalisation of the digits."""
    model = build("small-resnet", 10, in_channels=1, image_size=8)
    torch.save(model.state_dict(), "net.pt")
    words = ["digits", "--weights", "net.pt", "--split", "test", "--ood", "patterns"]
    options = ["--groups", "ood", "--json", "--no-baseline"]
    code, out, err = run("small-resnet", *words, *options, command="measure-model")
    assert code == 0, err
    digits, patterns = load("digits").test, load("patterns").test
    pixels = torch.stack([patterns.picture(index) for index in range(len(patterns))])
    small = functional.resize(functional.rgb_to_grayscale(pixels), [8, 8]).float() / 255
    traits = digits.preprocessing.traits
    others = (small - traits.mean[0]) / traits.deviation[0]
    wanted = ncscope.measure_model(
        model, DataLoader(digits, 64), ood=[others], groups=["ood"], layers=[], progress=False
    )
    assert_agree(json.loads(out)["metrics"], dict(wanted), rel=1e-3)
