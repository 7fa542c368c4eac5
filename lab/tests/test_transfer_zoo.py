"""A tiny zoo, trained for real: its files, resuming, shards, further scores, page and command."""

import gzip
import json
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from html import unescape
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lab.tests.cli.commands import ran
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import ncscope_lab.cli.zoo  # noqa: F401, adds the command, which old metadata may lack
from ncscope.errors import InputError
from ncscope.transfer.samples import check_downstream
from ncscope.transfer.scores.explained_entropy import explained_entropy
from ncscope_lab import execution
from ncscope_lab.execution import ExperimentRun
from ncscope_lab.experiments.transfer.cells import (
    A_FEW,
    ALL,
    IMAGES,
    SOURCE,
    TUNED_ACCURACY,
    Cell,
    Tuning,
    feature_file,
)
from ncscope_lab.experiments.transfer.design import (
    TransferZoo,
    is_tuned,
    list_networks,
    list_targets,
)
from ncscope_lab.experiments.transfer.judgement import PUBLISHED, bootstrap_gain, judge_claims
from ncscope_lab.experiments.transfer.scores import FEW, VARIANTS, Sample, choose_few
from ncscope_lab.experiments.transfer.tables import quality_table
from ncscope_lab.observations import Event, Observation
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.settings import Training
from ncscope_lab.transfer_zoo import Zoo

pytestmark = [
    pytest.mark.usefixtures("unchecked_signatures_of_module"),  # most of the time, otherwise
    pytest.mark.nightly,
]

TINY: dict[str, Any] = {
    "design_architectures": ["small-conv"],
    "held_out_architectures": ["small-vgg"],
    "networks": 2,
    "epochs": [1],
    "tuning_epochs": 1,
    "sources": ["patterns-20", "gratings"],
    "design_targets": ["gratings-frequency"],
    "report_targets": ["digits", "gratings-colour", "patterns-20", "gratings"],
}
CONFIG = TransferZoo.model_validate(TINY)
RUN_FILES = ("config.yaml", "finished.json", "metrics.jsonl", "claims.json")


@pytest.fixture(scope="module", autouse=True)
def few_resamples():
    """The bootstrap, which has tests of its own, draws twenty times in place of a thousand."""
    few = partial(bootstrap_gain, resamples=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ncscope_lab.experiments.transfer.judgement.bootstrap_gain", few)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("zoo") / "whole"


@pytest.fixture(scope="module")
def whole(folder) -> ExperimentRun:
    """Four networks that were trained for an epoch, with features of all targets."""
    return execution.run("transfer/zoo", out=folder, settings=TINY)


@pytest.fixture
def zoo(whole, folder) -> Zoo:
    return Zoo.read(folder)


def targets_by_network() -> dict[str, list[str]]:
    return {
        name: list_targets(training.data, CONFIG.targets)
        for name, training in list_networks(CONFIG).items()
    }


def tuned_cells() -> set[tuple[str, str]]:
    return {
        (name, target)
        for number, (name, targets) in enumerate(targets_by_network().items())
        for target in targets
        if is_tuned(number, CONFIG.targets.index(target))
    }


def features_of(run: Path) -> list[Path]:
    return sorted(run.glob("checkpoints/*/features/*.safetensors"))


def values_of(cells: Sequence[Cell]) -> list[tuple[object, ...]]:
    """Return all that cells hold but their folder, with None for NaN, which differs from itself."""
    return [
        (
            *(cell.network, cell.architecture, cell.source, cell.target, cell.images),
            {key: None if value != value else value for key, value in cell.values.items()},
        )
        for cell in cells
    ]


def test_every_network_is_measured_on_every_target_with_all_images_and_with_few(whole):
    rows = [row for row in whole.rows if IMAGES in row]
    seen = [(row.part, row.split, row[IMAGES]) for row in rows]
    assert seen == [
        (name, target, images)
        for name, targets in targets_by_network().items()
        for target in targets
        for images in (ALL, A_FEW)
    ]
    for row in rows:
        assert 0 <= float(row["accuracy"]) <= 1
        assert {*VARIANTS, *PUBLISHED} - {"ncti"} <= set(row.values)
    tuned = {(row.part, row.split) for row in rows if TUNED_ACCURACY in row}
    assert tuned == tuned_cells()
    assert all(row[IMAGES] == ALL for row in rows if TUNED_ACCURACY in row)


def test_the_features_of_every_cell_are_kept(whole, folder):
    names = {path.relative_to(folder / "checkpoints").as_posix() for path in features_of(folder)}
    assert names == {
        f"{network}/features/{name}.safetensors"
        for network, targets in targets_by_network().items()
        for name in (SOURCE, *targets)
    }


def test_the_kept_features_are_those_that_were_scored(whole, folder):
    for row in (row for row in whole.rows if IMAGES in row):
        kept = load_file(feature_file(folder / "checkpoints" / row.part, row.split))
        assert {"train", "train_labels", "test", "test_labels", "probabilities"} <= set(kept)
        assert (TUNED_ACCURACY in kept) == ((row.part, row.split) in tuned_cells())
        chosen = choose_few(kept["train_labels"]) if row[IMAGES] == A_FEW else slice(None)
        samples = check_downstream(kept["train"][chosen], kept["train_labels"][chosen])
        assert row["explained_entropy"] == pytest.approx(explained_entropy(samples).value)
        assert row["classes"] == len(kept["train_labels"].unique())
        assert row["dim"] == kept["train"].shape[1]


@pytest.mark.parametrize(("network", "temperature"), [("small-conv 0", 1.0), ("small-conv 1", 0.3)])
def test_probabilities_are_those_at_the_temperature_of_the_training(
    whole, folder, network, temperature
):
    assert list_networks(CONFIG)[network].temperature == temperature
    checkpoint = folder / "checkpoints" / network
    model = torch.load(checkpoint / "checkpoint.pt", weights_only=True)["learner"]["model"]
    for target in (SOURCE, "digits"):
        kept = load_file(feature_file(checkpoint, target))
        logits = kept["train"] @ model["classifier.weight"].T + model["classifier.bias"]
        known = (logits / temperature).softmax(1)
        assert torch.allclose(kept["probabilities"], known, atol=1e-5)


def unfinished(run: Path, to: Path, part: str) -> Path:
    """Copy a run in which one part is not marked as finished."""
    shutil.copytree(run, to)
    finished = json.loads((to / "finished.json").read_text())
    del finished["parts"][part]
    (to / "finished.json").write_text(json.dumps(finished))
    return to


def test_a_part_that_is_run_again_measures_the_same_from_the_kept_features(whole, folder, tmp_path):
    again = unfinished(folder, tmp_path / "again", "small-conv 1")
    before = {path: path.stat().st_mtime_ns for path in features_of(again)}
    parts = []
    execution.run(
        "transfer/zoo",
        out=again,
        settings=TINY,
        resume=True,
        on_row=lambda part, done, total: parts.append(part),
    )
    assert any(part.startswith("small-conv 1, epoch") for part in parts)
    assert {part for part in parts if "epoch" not in part} == {
        "small-conv 0",
        "small-vgg 0",
        "small-vgg 1",
    }
    assert {path: path.stat().st_mtime_ns for path in features_of(again)} == before
    for name in RUN_FILES:
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name


def test_lost_features_are_made_again_from_the_trained_network(whole, folder, tmp_path):
    network, target = next(pair for pair in sorted(tuned_cells()) if pair[1] == "digits")
    again = unfinished(folder, tmp_path / "again", network)
    lost = feature_file(again / "checkpoints" / network, target)
    lost.unlink()
    execution.run("transfer/zoo", out=again, settings=TINY, resume=True)
    assert (again / "metrics.jsonl").read_bytes() == (folder / "metrics.jsonl").read_bytes()
    made, known = load_file(lost), load_file(folder / lost.relative_to(again))
    assert set(made) == set(known)
    assert all(torch.equal(made[key], known[key]) for key in known)


def test_features_of_other_settings_are_made_again(whole, folder, tmp_path):
    """A file of a run with longer fine-tuning is not taken for one of this run."""
    network = "small-conv 0"
    again = unfinished(folder, tmp_path / "again", network)
    path = feature_file(again / "checkpoints" / network, "digits")
    known = load_file(path)
    made_by = metadata_of(path)
    other = {key: text.replace('"epochs": 1', '"epochs": 2') for key, text in made_by.items()}
    assert other != made_by
    save_file({key: torch.zeros_like(value) for key, value in known.items()}, path, other)
    execution.run("transfer/zoo", out=again, settings=TINY, resume=True)
    assert metadata_of(path) == made_by
    assert all(torch.equal(value, known[key]) for key, value in load_file(path).items())
    assert (again / "metrics.jsonl").read_bytes() == (folder / "metrics.jsonl").read_bytes()


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return dict(file.metadata())


@pytest.fixture
def replayed(whole, folder, monkeypatch):
    """Networks give the results and features of the whole run, without training."""

    def events(
        training: Training,
        targets: Sequence[str],
        tuned: Sequence[str],
        tuning: Tuning,
        resources: Resources,
    ) -> Iterator[Event]:
        (part,) = (name for name, own in list_networks(CONFIG).items() if own == training)
        assert resources.checkpoints is not None
        kept = folder / "checkpoints" / part / "features"
        shutil.copytree(kept, resources.checkpoints / "features")
        yield from (row for row in whole.rows if row.part == part)

    monkeypatch.setattr("ncscope_lab.experiments.transfer.zoo.cell_events", events)


def shards_of(tmp_path: Path) -> list[Path]:
    for number in (0, 1):
        settings = {**TINY, "shard": number, "shards": 2}
        execution.run("transfer/zoo", out=tmp_path / str(number), settings=settings)
    return [tmp_path / "0", tmp_path / "1"]


def test_a_shard_alone_is_not_judged(replayed, tmp_path):
    first, _ = shards_of(tmp_path)
    assert json.loads((first / "claims.json").read_text()) == []
    assert not list(first.glob("figures/*"))


def test_two_shards_read_together_are_the_whole_zoo(replayed, zoo, tmp_path):
    first, second = shards_of(tmp_path)
    alone = Zoo.read(first)
    assert {cell.network for cell in alone.cells} == {"small-conv 0", "small-vgg 0"}
    for places in ((first, second), (second, first), (first, second, first)):
        joined = Zoo.read(*places)
        assert joined.config == zoo.config == CONFIG
        assert values_of(joined.cells) == values_of(zoo.cells)
        assert judge_claims(joined.verdicts()) == judge_claims(zoo.verdicts())
    folders = {cell.network: cell.folder for cell in joined.cells}
    assert folders["small-conv 1"] == second / "checkpoints" / "small-conv 1"


def nothing_measured(*given: object) -> Iterator[Event]:
    yield Observation(0, 0, part="small-conv 0")


def test_shards_of_different_zoos_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("ncscope_lab.experiments.transfer.zoo.cell_events", nothing_measured)
    for epochs in (1, 2):
        settings = {**TINY, "tuning_epochs": epochs, "shard": epochs - 1, "shards": 2}
        execution.run("transfer/zoo", out=tmp_path / str(epochs), settings=settings)
    with pytest.raises(InputError, match=r"expected the same settings, found others in .*2; pass"):
        Zoo.read(tmp_path / "1", tmp_path / "2")


def test_a_folder_without_a_zoo_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected the folder of a zoo, found none"):
        Zoo.read()
    with pytest.raises(InputError, match=r"expected the folder of a run, found .* without one"):
        Zoo.read(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"expected the folder of a run, found .* without one"):
        Zoo.read(tmp_path)
    sizes = {"num_classes": 3, "dim": 4, "per_class": 2, "steps": 1}
    execution.run("ufm", settings=sizes, out=tmp_path / "other")
    refused = r"expected a run of transfer/zoo, found .*ufm in .*other; pass the folder"
    with pytest.raises(InputError, match=refused):
        Zoo.read(tmp_path / "other")


def spread(sample: Sample) -> Tensor:
    """Return the share of the variance that lies between the classes."""
    features, labels = sample.features.double(), sample.labels
    centred = features - features.mean(0)
    between = 0.0
    for label in labels.unique():
        own = centred[labels == label]
        between += len(own) * own.mean(0).square().sum()
    return between / centred.square().sum()


def test_a_users_score_is_computed_for_every_cell_and_stands_in_tables_and_page(
    zoo, folder, tmp_path
):
    calls: list[tuple[int, int]] = []
    scored = zoo.with_scores({"spread": spread}, on_cell=lambda *now: calls.append(now))
    assert calls == [(n + 1, len(zoo.cells)) for n in range(len(zoo.cells))]
    for cell in scored.cells:
        kept = load_file(feature_file(folder / "checkpoints" / cell.network, cell.target))
        chosen = choose_few(kept["train_labels"]) if cell.images == A_FEW else slice(None)
        sample = Sample(
            kept["train"][chosen],
            kept["train_labels"][chosen],
            None,
            torch.ones(1, 1),
            torch.ones(1).long(),
        )
        assert cell.value("own:spread") == pytest.approx(float(spread(sample)))
    for images in (ALL, A_FEW):
        assert "spread (yours)" in quality_table(scored.verdicts(), images).lines
    assert "spread (yours)" not in quality_table(zoo.verdicts(), ALL).lines
    page = scored.save(tmp_path / "page.html").read_text()
    assert "spread (yours)" in page
    assert "spread (yours)" not in zoo.save(tmp_path / "without.html").read_text()


def test_a_score_is_given_the_samples_of_its_cell(zoo):
    seen: list[Sample] = []

    def look(sample: Sample) -> float:
        seen.append(sample)
        return 0.0

    zoo.with_scores({"look": look})
    for cell, sample in zip(zoo.cells, seen, strict=True):
        classes = int(cell.value("classes"))
        counts = sample.labels.bincount()
        assert len(counts) == classes
        assert sample.features.shape == (len(sample.labels), cell.value("dim"))
        assert bool((counts == FEW).all()) == (cell.images == A_FEW)
        assert sample.probabilities is not None
        assert len(sample.probabilities) == len(sample.labels)
        assert sample.probabilities.shape[1] == len(sample.source_labels.unique())
        assert sample.source_features.shape == (len(sample.source_labels), cell.value("dim"))


@pytest.mark.parametrize(
    "value", [1, 0.5, float("nan"), np.float32(2), torch.tensor(3.0), torch.ones(1, 1)]
)
def test_numbers_of_any_kind_are_scores(zoo, value):
    few = Zoo(zoo.config, zoo.cells[:1])
    (cell,) = few.with_scores({"mine": lambda sample: value}).cells
    assert cell.value("own:mine") == pytest.approx(float(value), nan_ok=True)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("much", "str"),
        ("0.5", "str"),
        (None, "NoneType"),
        (torch.ones(3), "Tensor"),
        (np.ones(2), "ndarray"),
        ([1.0], "list"),
        (1j, "complex"),
    ],
)
def test_a_score_that_returns_no_number_is_refused(zoo, value, kind):
    with pytest.raises(InputError) as refused:
        zoo.with_scores({"mine": lambda sample: value})
    assert str(refused.value) == (
        "expected a number from the score 'mine' of small-conv 0 on gratings-frequency, "
        f"found {kind}; return a number"
    )


def test_a_folder_of_shards_is_read_as_its_shards(zoo, folder, tmp_path):
    for number in (0, 1):
        shutil.copytree(folder, tmp_path / "sweep" / f"run {number}")
    (tmp_path / "sweep" / "report.html").touch()
    assert Zoo.read(tmp_path / "sweep").verdicts().claims == zoo.verdicts().claims


def test_scores_and_times_need_the_features(zoo, folder, tmp_path):
    bare = Zoo.read(zoo.save_cells(tmp_path / "cells.json.gz"))
    for use in (lambda: bare.with_scores({"spread": spread}), bare.costs):
        wanted = "expected features of small-conv 0 on gratings-frequency, found a file of cells;"
        with pytest.raises(InputError, match=wanted):
            use()
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved, ignore=shutil.ignore_patterns("features"))
    with pytest.raises(InputError, match=r"found none in .*small-conv 0/features; read the folder"):
        Zoo.read(moved).with_scores({"spread": spread})


def test_every_score_has_a_time_and_so_has_the_probe(zoo, tmp_path):
    costs = zoo.costs(cells=2)
    assert {*PUBLISHED, "explained_entropy", "probe"} <= set(costs)
    assert all(seconds > 0 for seconds in costs.values())
    page = zoo.save(tmp_path / "page.html", costs=costs).read_text()
    assert "times faster than the probe" in page
    assert "times faster than the probe" not in zoo.save(tmp_path / "none.html").read_text()


def test_the_page_of_the_design_half_makes_no_claims(zoo, tmp_path):
    report = unescape(zoo.save(tmp_path / "report.html").read_text())
    design = unescape(
        zoo.save(tmp_path / "design.html", verdicts=zoo.verdicts("design")).read_text()
    )
    text = "explained entropy orders networks better than the best published score"
    assert text in report
    assert text not in design
    assert "4 of 4 networks" in report
    assert "2 of 4 networks" in design
    assert "no evidence for it" in design


def test_cells_in_a_file_are_judged_as_the_run_is(zoo, tmp_path):
    path = zoo.save_cells(tmp_path / "cells.json.gz")
    read = Zoo.read(path)
    assert read.config == zoo.config
    assert [cell.network for cell in read.cells] == [cell.network for cell in zoo.cells]
    for cell, known in zip(read.cells, zoo.cells, strict=True):
        for key in known.values:
            assert cell.value(key) == pytest.approx(known.value(key), rel=1e-11, nan_ok=True)
    assert judge_claims(read.verdicts()) == judge_claims(zoo.verdicts())
    # Not the tables: an accuracy of 12 digits can round a regret of 3.75 the other way.
    verdicts, others = zoo.verdicts(), read.verdicts()
    for images, key in product((ALL, A_FEW), verdicts.scores):
        found, other = (each.qualities[images][key] for each in (verdicts, others))
        assert set(other) == set(found)
        assert all(other[target] == pytest.approx(found[target]) for target in found)
    again = read.save_cells(tmp_path / "again.json.gz")
    assert again.read_bytes() == path.read_bytes()


def damaged(good: bytes) -> dict[str, bytes]:
    record = json.loads(gzip.decompress(good))
    shorter = {**record, "cells": [row[:-1] for row in record["cells"]]}
    words = {**record, "cells": [[*row[:-1], "much"] for row in record["cells"]]}
    other = {**record, "config": {**record["config"], "shard": 9}}
    middle = len(good) // 2
    return {
        "no archive": b"{}",
        "empty": b"",
        "cut off": good[:middle],
        "changed": good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :],
        "no cells": gzip.compress(b"{}"),
        "no text": gzip.compress(b"\xff\xfe"),
        "rows too short": gzip.compress(json.dumps(shorter).encode()),
        "rows of words": gzip.compress(json.dumps(words).encode()),
        "settings out of bounds": gzip.compress(json.dumps(other).encode()),
    }


def test_cells_that_unpack_to_more_than_the_bound_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "cells.json.gz"
    path.write_bytes(gzip.compress(b" " * 1001))
    monkeypatch.setattr("ncscope_lab.transfer_zoo._LARGEST", 1000)
    with pytest.raises(InputError, match="found more than 1,000 bytes in"):
        Zoo.read(path)


def test_a_file_that_holds_no_cells_is_refused(zoo, tmp_path):
    path = zoo.save_cells(tmp_path / "cells.json.gz")
    for kind, content in damaged(path.read_bytes()).items():
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"expected cells of a zoo in .*, found .*; pass a"):
            pytest.fail(f"{kind}: {Zoo.read(path)}")


@pytest.fixture
def mine(tmp_path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\n\nLIMIT = 3\n\n\n"
        "def spread(sample):\n    return sample.features.std()\n\n\n"
        "def classes(sample):\n    return len(sample.labels.unique())\n"
    )
    return path


def test_the_command_writes_the_page_with_own_scores(
    zoo, folder, mine, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        "ncscope_lab.transfer_zoo.time_scores", lambda sample, clock: {"probe": 0.25}
    )
    out, cells = tmp_path / "page.html", tmp_path / "cells.json.gz"
    words = ["--score", f"{mine}:spread", "--score", f"{mine}:classes", "--seed", 1, "--costs"]
    assert ran("zoo", folder, *words, "--save", out, "--cells", cells) == 0
    told = capsys.readouterr().out
    assert "spread (yours)" in told
    assert out.resolve().as_uri() in told
    assert "undecided" in told
    page = out.read_text()
    assert "spread (yours)" in page
    assert "classes (yours)" in page
    assert "bootstrap seed 1" in page
    assert "250 ms" in page
    assert len(Zoo.read(cells).cells) == len(zoo.cells)


@pytest.mark.parametrize(
    ("score", "said"),
    [
        ("mine.py", "expected --score FILE.py:NAME with a function, found mine.py;"),
        ("mine.py:LIMIT", "expected --score FILE.py:NAME with a function, found mine.py:LIMIT, of"),
        ("mine.py:sprad", "expected sprad in mine.py, found no such name; name one of spread"),
    ],
)
def test_a_score_that_cannot_be_read_is_refused(
    whole, folder, mine, tmp_path, monkeypatch, capsys, score, said
):
    monkeypatch.chdir(tmp_path)
    assert ran("zoo", folder, "--score", score, "--save", "page.html") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {' '.join(said.split())}")
    assert "; " in err
    assert err.count("\n") == 1
    assert not Path("page.html").exists()


def test_two_scores_of_one_name_are_refused(whole, folder, mine, tmp_path, capsys):
    other = tmp_path / "other.py"
    shutil.copy(mine, other)
    words = ["--score", f"{mine}:spread", "--score", f"{other}:spread"]
    assert ran("zoo", folder, *words, "--save", tmp_path / "page.html") == 2
    assert "expected scores of different names, found" in capsys.readouterr().err
