"""`ncscope measure` of several files: patterns, classifier, options, interruption."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import ncscope
from ncscope.cli import main
from tests.api.shards import cut, largest_difference, save_npz, save_shards
from tests.interrupting import heeds_control_c


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


def test_a_pattern_or_several_files_are_measured_as_one(run, tmp_path) -> None:
    samples = cut()
    files = save_shards(tmp_path, samples, (".npz", ".safetensors"))
    np.savez("head", weight=samples.weight, bias=samples.bias)
    whole = ncscope.measure(*samples.whole, samples.weight, samples.bias)
    for words in (["0*.*"], files, [f"file://{tmp_path}/0*"]):
        code, out, err = run("measure", *words, "--weight", "head.npz", "--json")
        assert (code, err) == (0, "")
        found = json.loads(out)
        assert largest_difference(found["metrics"], whole) < 1e-10
        assert found["provenance"]["data"] == "6 files, 00.npz to 05.safetensors"
    assert sorted(map(str, tmp_path.iterdir())) == sorted([*files, str(tmp_path / "head.npz")])


def test_the_classifier_of_the_first_file_is_used(run, tmp_path) -> None:
    samples = cut()
    save_shards(tmp_path, samples, (".npz",))
    features, labels = samples.parts[0]
    np.savez("00.npz", features=features, labels=labels, weight=samples.weight)
    _, out, _ = run("measure", "*.npz", "--json")
    expected = ncscope.measure(*samples.whole, samples.weight)
    found = json.loads(out)["metrics"]
    assert found["accuracy"] == expected["accuracy"]
    assert largest_difference(found, expected) < 1e-10


def test_a_single_parquet_file(run, tmp_path) -> None:
    pytest.importorskip("pyarrow")
    save_shards(tmp_path, cut((40,)), (".parquet",))
    code, out, _ = run("measure", "00.parquet", "--work", "kept", "--groups", "nc1")
    assert (code, "nc1_quotient" in out) == (0, True)
    assert len(list(Path("kept").iterdir())) == 1


REFUSED = {
    "no match": (["none*.npz"], r"files that match none\*.npz, found none"),
    "a folder": ([".", "00.npz"], "a file, found the folder .; name its files: './*'"),
    "twice": (["00.npz", "00.npz"], "every shard once, found 00.npz twice"),
    "chance level": (["0*.npz", "--baseline"], "all samples at once for --baseline"),
    "standard errors": (["0*.npz", "--uncertainty"], "all samples at once for --uncertainty"),
    "arrays on a cluster": (
        ["--features", "x.npy", "--labels", "y.npy", "--cluster", "local"],
        "files for --cluster and --work",
    ),
    "an address without a cluster": (
        ["0*.npz", "--cluster", "127.0.0.1:1"],
        "a Ray cluster at 127.0.0.1:1, found none",
    ),
    "no address": (["0*.npz", "--cluster", "here"], "the address of a Ray cluster, found 'here'"),
    "a weight that is no classifier": (["0*.npz", "--weight", "00.npz"], "the entry 'weight'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str, run, tmp_path) -> None:
    words, message = REFUSED[case]
    save_shards(tmp_path, cut((20, 20)), (".npz",))
    for name in ("x.npy", "y.npy"):
        (tmp_path / name).touch()
    code, _, err = run("measure", *words)
    assert code == 2
    *_, last = err.splitlines()
    assert message.replace("\\", "") in last


@pytest.mark.slow
def test_control_c_says_how_to_go_on(tmp_path, monkeypatch) -> None:
    # The command's sums are in as many parts as here: all digits are compared.
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    samples = cut((4000,) * 30)
    for index, part in enumerate(samples.parts):
        save_npz(tmp_path / f"{index:02}.npz", *part)
    command = [Path(sys.executable).with_name("ncscope"), "measure", "*.npz", "--work", "kept"]
    command += ["--json"]
    pipe = subprocess.PIPE
    first = subprocess.Popen(
        command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, preexec_fn=heeds_control_c
    )
    while len(list(tmp_path.glob("kept/*.safetensors"))) < 3:
        assert first.poll() is None
        time.sleep(0.001)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate()
    expected = r"error: interrupted; the same command goes on after \d+ of 30 files of the .* pass"
    assert first.returncode == 130
    assert re.fullmatch(expected, said.strip())
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    files = sorted(map(str, tmp_path.glob("*.npz")))
    assert json.loads(done.stdout)["metrics"] == dict(ncscope.measure_shards(files))
