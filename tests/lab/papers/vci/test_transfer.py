"""The recipe of VCI figure 7 and tables 1-2: pretraining, probes, claims, tables, figures."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from ncscope.data.catalogue import CATALOGUE
from ncscope.errors import InputError
from ncscope.lab.observations import Heartbeat, Observation, Results, Value
from ncscope.lab.papers.vci import probes
from ncscope.lab.papers.vci.checkpoints import (
    GROUPS,
    PENALTY,
    TEMPERATURE,
    checkpoints,
    gain,
    metric,
    over_seeds,
    pearson,
    printed,
)
from ncscope.lab.papers.vci.published import DOWNSTREAM, REGULARISED, TEMPERATURES
from ncscope.lab.papers.vci.transfer import RECIPE, VCITransfer, claims_on
from ncscope.lab.runs.resources import Resources
from ncscope.measurement.records import Measurement
from ncscope.models.networks.catalogue import NAMES
from tests.data.downstream_on_disk import DOWNSTREAM_WRITERS
from tests.data.on_disk import WRITERS
from tests.lab.observed import nudged, observed, results_of, those, with_each

Values = Mapping[str, Value]
PAPER, SMALL = RECIPE.scales["paper"], RECIPE.scales["small"]


def brief(*names: str, sets: tuple[str, ...] = ("digits",)) -> VCITransfer:
    """Runs of the small scale, cut to an epoch."""
    runs = {}
    for name in names:
        training = SMALL.runs[name]
        short = training.optimisation.model_copy(update={"epochs": 1, "warmup_epochs": 0})
        update = {"optimisation": short, "every": 1, "balanced": 200}
        runs[name] = training.model_copy(update=update)
    return VCITransfer(runs=runs, downstream=sets)


def from_tables() -> Results:
    """Results if the runs of all seeds had yielded the paper's numbers."""
    found: list[dict[str, Any]] = []
    for name, training in PAPER.runs.items():
        group = PENALTY if training.within_class_cosine else TEMPERATURE
        value = training.within_class_cosine or training.temperature
        (one,) = [each for each in printed()[group] if each.value == value]
        where = {"part": name, "layer": "head input", "epoch": 300}
        found.append(where | {"split": "train"} | dict(one.metrics))
        found.append(where | {"split": "test", "accuracy": one.accuracy})
        found += [where | {"split": key, "accuracy": p} for key, p in one.downstream.items()]
    return with_each(observed(found), nudged)


def test_the_paper_s_tables_bear_out_every_claim() -> None:
    claims = RECIPE.judge(PAPER, from_tables())
    assert all(claim.held for claim in claims)
    assert len(claims) == 10


def test_one_network_for_each_setting_decides_nothing() -> None:
    assert {claim.verdict for claim in claims_on(printed())} == {"undecided"}


def changed(part: str, split: str, change: Callable[[Observation], Values]) -> list[str]:
    """What no longer holds when a line of the tables is another."""
    results = with_each(
        from_tables(),
        lambda row: (
            row.with_values(change(row))
            if row.split == split and row.part.startswith(part)
            else row
        ),
    )
    return [claim.text for claim in RECIPE.judge(PAPER, results) if not claim.held]


LOST_BY_VCI = [
    "VCI's correlation with MLOG is above 0.7 in both",
    "VCI falls with the temperature: coefficient below -0.7",
]


@pytest.mark.parametrize(
    ("part", "split", "key", "value", "lost"),
    [
        ("temperature 0.1", "train", "fuzziness", -99.0, ["Fuzziness rises with MLOG over the"]),
        pytest.param(
            *("temperature 0.1", "train", "nc1_quotient", -99.0),
            ["Squared distance rises with MLOG"],
            marks=pytest.mark.slow,
        ),
        ("cosine penalty 10", "train", "nc1_quotient", -9.0, ["Squared distance rises with"]),
        pytest.param(
            *("cosine penalty 2.5", "train", "cosine_within", 9.0),
            ["Cosine distance rises with MLOG", "The cosine distance rises with the cosine pen"],
            marks=pytest.mark.slow,
        ),
        (
            "cosine penalty 7.5",
            "train",
            "vci",
            0.75,
            [
                "VCI's correlation with MLOG is above 0.7 in both",
                "VCI falls with the cosine penalty: coefficient",
            ],
        ),
        ("temperature 0.1", "train", "vci", 0.71, LOST_BY_VCI),
    ],
)
def test_a_changed_number_turns_its_claims(part, split, key, value, lost) -> None:
    found = changed(part, split, lambda row: {key: value})
    assert [text[: len(start)] for text, start in zip(found, lost, strict=True)] == lost


def test_vci_must_go_up_with_transfer_in_both_groups() -> None:
    found = changed("cosine penalty", "train", lambda row: {"vci": 1 - float(row["vci"])})
    assert found == [
        "VCI's correlation with MLOG is above 0.7 in both groups",
        "VCI falls with the cosine penalty: coefficient below -0.7",
        "VCI rises with the mean log odds of the probes alone, in both groups",
    ]


def test_the_tables_are_the_paper_s() -> None:
    first, second, third = RECIPE.summarise(PAPER, from_tables())
    names = [f"{TEMPERATURE} {value:g}" for value in TEMPERATURES]
    names += [f"{PENALTY} {value:g}" for value in REGULARISED]
    for table in (first, second):
        assert list(table.lines) == names
    for name, row in zip(names, [*TEMPERATURES.values(), *REGULARISED.values()], strict=True):
        *accuracies, mlo = map(float, first.lines[name])
        assert (tuple(accuracies), mlo) == (row.accuracies, row.mlo)
        fuzziness, squared, cosine, vci, accuracy, mlog = map(float, second.lines[name])
        assert (fuzziness, squared, vci) == (row.fuzziness, row.nc1_quotient, row.vci)
        assert cosine == pytest.approx(1 - row.cosine_similarity, abs=5e-5)
        assert (100 * accuracy, mlog) == (
            pytest.approx(row.accuracy),
            pytest.approx(row.mlog, abs=5e-4),
        )
    assert third.lines["VCI"][:2] == third.lines["VCI"][2:] == [
        "0.99 [0.99, 1.00]",
        "0.98 [0.92, 1.00]",
    ]  # fmt: skip


def test_seeds_are_averaged_before_they_are_correlated() -> None:
    groups = printed()[TEMPERATURE]
    shifted = [
        one._replace(seed=1, accuracy=0.5, metrics={key: x + 3 for key, x in one.metrics.items()})
        for one in groups
    ]
    both = [*groups, *shifted]
    means = over_seeds(both, metric("vci"))
    assert means == pytest.approx({one.value: one.metrics["vci"] + 1.5 for one in groups})
    of_mean = [(one.mlog + one.mlo) / 2 for one in groups]  # an accuracy of 1/2 subtracts nothing
    assert list(over_seeds(both, gain).values()) == pytest.approx(of_mean)
    assert pearson(both, "vci").value == pytest.approx(
        float(torch.corrcoef(torch.tensor([list(means.values()), of_mean]))[0, 1]), abs=1e-5
    )


@pytest.mark.usefixtures("unchecked_signatures")
def test_what_is_missing_or_infinite_claims_nothing_and_is_shown() -> None:
    whole = from_tables()
    unknown = with_each(
        whole,
        lambda row: row.with_values(
            {k: math.nan for k, value in row.values.items() if isinstance(value, float)}
        ),
    )
    ones = with_each(whole, lambda row: row.with_values({"accuracy": 1.0}))
    for results in (Results(), Results(whole[:1]), unknown, ones):
        told = RECIPE.judge(PAPER, results)
        assert len(told) == 10
        assert all(claim.evidence for claim in told)
        if results is not ones:
            assert not any(claim.held for claim in told)
        assert len(RECIPE.summarise(PAPER, results)) == 3
    for results in (Results(), ones):
        for drawing in RECIPE.draw(PAPER, results):
            drawing.figure.canvas.draw()
    lost = those(whole, lambda row: row.split != "pets" or "temperature" not in row.part)
    moved = {c.text for c in RECIPE.judge(PAPER, lost) if not c.held}
    assert "MLOG falls with the temperature: coefficient below -0.7" in moved
    assert "MLOG falls with the cosine penalty: coefficient below -0.7" not in moved


def test_figures_have_the_paper_s_panels() -> None:
    figures = {d.name: d.figure for d in RECIPE.draw(PAPER, from_tables())}
    assert {name: len(figure.axes) for name, figure in figures.items()} == {
        "fig-7": 8,
        "fig-7-printed": 8,
        "table-1": 2,
    }
    for figure in (figures["fig-7"], figures["fig-7-printed"]):
        shown = [axes.get_legend().get_texts()[0].get_text() for axes in figure.axes]
        assert shown[0] == "Pearson 0.986"
        assert shown[4:] == [f"Pearson {r}" for r in ("−0.416", "−0.996", "−0.978", "0.975")]
    assert [len(axes.lines) for axes in figures["table-1"].axes] == [11, 11]


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")  # most of the time, otherwise
def test_a_short_run_probes_and_goes_on_where_it_stopped(tmp_path, monkeypatch) -> None:
    """The tiny sets have a training image a class: only their own validation images will do."""
    for name in ("dtd", "flowers"):
        DOWNSTREAM_WRITERS[name](tmp_path, monkeypatch)
    config = brief("temperature 0.1, seed 0", sets=("dtd", "flowers"))
    (part,) = RECIPE.parts(config)
    found = list(part.run(Resources(data=tmp_path)))
    events = [event for event in found if not isinstance(event, Heartbeat)]
    assert part.yields == len(found) - len(events)
    assert [event.split for event in events] == ["train", "test"] * 2 + list(config.downstream)
    assert [event["measure"] for event in events[-2:]] == ["top-1", "mean per class"]
    resources = Resources(data=tmp_path, checkpoints=tmp_path / "part")
    stopped = part.run(resources)
    assert any(
        isinstance(event, Measurement) and (event.split, event.step) == ("test", 1)
        for event in stopped
    )
    stopped.close()
    assert [each for each in part.run(resources) if not isinstance(each, Heartbeat)] == events


def test_a_set_that_is_missing_stops_the_run_before_it_trains(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(probes, "bench_events", None)
    config = brief("temperature 1, seed 0", sets=("digits", "pets"))
    with pytest.raises(InputError, match="the data set Pets"):
        results_of(*RECIPE.parts(config), resources=Resources(data=tmp_path))


def test_the_paper_s_scale_is_the_paper_s() -> None:
    assert PAPER.downstream == tuple(DOWNSTREAM)
    for config, seeds in ((PAPER, 3), (SMALL, 3)):
        groups = checkpoints(config.runs, config.downstream, [])
        values = {name: [one.value for one in group[::seeds]] for name, group in groups.items()}
        assert values == {TEMPERATURE: list(TEMPERATURES), PENALTY: list(REGULARISED)}
        assert list(values) == list(GROUPS)
        assert all(name in CATALOGUE for name in config.downstream)
        for training in config.runs.values():
            assert training.due == [0, training.optimisation.epochs]
    for training in PAPER.runs.values():
        found = (training.data, training.network, training.measured, training.augmentation)
        assert found == ("imagenet", "resnet50", 50_000, "autoaugment")
        assert training.network in NAMES
        chosen = training.optimisation
        assert (chosen.epochs, chosen.batch_size, chosen.learning_rate) == (300, 1024, 0.4)


@pytest.mark.slow
def test_an_epoch_and_all_probes_at_the_paper_s_scale_on_real_files(tmp_path, monkeypatch) -> None:
    for name, write in {**WRITERS, **DOWNSTREAM_WRITERS}.items():
        if name in ("imagenet", *PAPER.downstream):
            write(tmp_path, monkeypatch)
    for name in ("temperature 0.1, seed 0", "cosine penalty 10, seed 0"):
        training = PAPER.runs[name]
        brief = training.optimisation.model_copy(
            update={"epochs": 1, "warmup_epochs": 0, "batch_size": 4, "learning_rate": 1e-4}
        )
        update = {"optimisation": brief, "every": 1, "measured": None, "cosine_group": None}
        # The tiny CIFAR-100 has one image of a class, none to be held out.
        every = tuple(one for one in PAPER.downstream if one != "cifar100")
        sets = every if training.temperature < 1 else every[:1]
        config = VCITransfer(runs={name: training.model_copy(update=update)}, downstream=sets)
        results = results_of(*RECIPE.parts(config), resources=Resources(data=tmp_path))
        assert [row.split for row in results[-len(sets) :]] == list(sets)
        assert math.isfinite(next(row["loss"] for row in results if "loss" in row))
        assert all(0 <= row["accuracy"] <= 1 for row in results if "strength" in row)
