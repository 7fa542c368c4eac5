"""VCI figure 7 and tables 1-2: printed numbers, claims, tables, figures; pretraining, probes."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from ncscope.data.catalogue import CATALOGUE
from ncscope.errors import InputError
from ncscope.lab.experiments.vci import transfer
from ncscope.lab.experiments.vci.published import DOWNSTREAM, REGULARISED, TEMPERATURES
from ncscope.lab.experiments.vci.transfer import (
    EXPERIMENT,
    PAPER,
    PENALTY,
    SMALL,
    TEMPERATURE,
    Pretrainings,
    average_seeds,
    correlate_means,
    log_odds,
    log_odds_gain,
    name_group,
    value_of_setting,
)
from ncscope.lab.experiments.vci.variability_runs import at_end
from ncscope.lab.observations import Heartbeat, Observation, Results, Value
from ncscope.lab.quantities import Runs, replace_fields
from ncscope.lab.runs.resources import Resources
from ncscope.measurement.records import Measurement
from ncscope.models.networks.catalogue import NAMES
from tests.data.downstream_on_disk import DOWNSTREAM_WRITERS
from tests.data.on_disk import WRITERS
from tests.lab.experiments.vci.checkpoints import TABLES, from_tables
from tests.lab.observed import results_of, those, with_each

GAIN = log_odds_gain(DOWNSTREAM)


def lost(results: Results) -> list[str]:
    return [finding.text for finding in EXPERIMENT.judge(PAPER, results) if not finding.held]


def test_the_printed_log_odds_follow_from_the_printed_accuracies() -> None:
    for run, row in zip(TABLES, [*TEMPERATURES.values(), *REGULARISED.values()], strict=True):
        assert len(row.accuracies) == len(DOWNSTREAM) == 10
        assert f"{log_odds(DOWNSTREAM)(run):.3f}" == f"{row.mlo:.3f}"
        assert GAIN(run) == pytest.approx(row.mlog, abs=5e-4)


def test_only_vci_goes_with_transfer_in_both_groups() -> None:
    """Figure 7; the values are computed from the tables, since its legends are not at hand."""
    pairs = {
        key: [
            round(correlate_means(group, at_end(key), GAIN).value, 3)
            for group in TABLES.group(name_group).values()
        ]
        for key in ("fuzziness", "nc1_quotient", "cosine_within", "vci")
    }
    assert pairs == {
        "fuzziness": [0.986, -0.416],
        "nc1_quotient": [1.0, -0.996],
        "cosine_within": [0.988, -0.978],
        "vci": [0.995, 0.975],
    }


def test_the_paper_s_tables_bear_out_every_claim() -> None:
    assert lost(from_tables()) == []


def test_one_network_for_each_setting_decides_nothing() -> None:
    first = {name: run for name, run in PAPER.runs.items() if run.seed == 0}
    settings = PAPER.model_copy(update={"runs": first})
    findings = EXPERIMENT.judge(settings, those(from_tables(), lambda row: row.part in first))
    assert {finding.verdict for finding in findings} == {"undecided"}


def change(
    part: str, split: str, values: Callable[[Observation], Mapping[str, Value]]
) -> list[str]:
    """What no longer holds when a line of the tables is another."""

    def own(row: Observation) -> Observation:
        changes = row.split == split and row.part.startswith(part)
        return row.with_values(values(row)) if changes else row

    return lost(with_each(from_tables(), own))


LOST_BY_VCI = [
    "VCI's correlation with MLOG is above 0.7 in both",
    "VCI falls with the temperature: coefficient below -0.7",
]


@pytest.mark.parametrize(
    ("part", "split", "key", "value", "beginnings"),
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
def test_a_changed_number_turns_its_claims(part, split, key, value, beginnings) -> None:
    texts = change(part, split, lambda row: {key: value})
    assert [text[: len(start)] for text, start in zip(texts, beginnings, strict=True)] == beginnings


def test_vci_must_go_up_with_transfer_in_both_groups() -> None:
    texts = change("cosine penalty", "train", lambda row: {"vci": 1 - float(row["vci"])})
    assert texts == [
        "VCI's correlation with MLOG is above 0.7 in both groups",
        "VCI falls with the cosine penalty: coefficient below -0.7",
        "VCI rises with the mean log odds of the probes alone, in both groups",
    ]


def test_the_tables_are_the_paper_s() -> None:
    first, second, third = EXPERIMENT.summarise(PAPER, from_tables())
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
    runs = TABLES.group(name_group)[TEMPERATURE]
    x = [at_end("vci")(run) for run in runs]
    mlo, mlog = ([quantity(run) for run in runs] for quantity in (log_odds(DOWNSTREAM), GAIN))

    def shift(row: Observation) -> Observation:
        if not row.part.endswith("1") or row.split in DOWNSTREAM:
            return row
        # An accuracy of 1/2 subtracts nothing.
        return row.with_values({"accuracy": 0.5, "vci": float(row.get("vci", 0)) + 3})

    own = {name: run for name, run in PAPER.runs.items() if run.seed < 2}
    shifted = Runs.of(own, those(from_tables(shift), lambda row: row.part in own))
    both = shifted.group(name_group)[TEMPERATURE]
    means = list(average_seeds(both, at_end("vci")).values())
    gains = list(average_seeds(both, GAIN).values())
    assert means == pytest.approx([value + 1.5 for value in x])
    assert gains == pytest.approx([(a + b) / 2 for a, b in zip(mlo, mlog, strict=True)])
    expected = np.corrcoef(means, gains)[0, 1]
    assert correlate_means(both, at_end("vci"), GAIN).value == pytest.approx(expected)


def test_a_probe_that_is_missing_decides_nothing_on_its_group() -> None:
    texts = lost(those(from_tables(), lambda row: row.split != "pets" or PENALTY in row.part))
    assert "MLOG falls with the temperature: coefficient below -0.7" in texts
    assert "MLOG falls with the cosine penalty: coefficient below -0.7" not in texts


@pytest.mark.slow
def test_figures_have_the_paper_s_panels() -> None:
    figures = {d.name: d.figure for d in EXPERIMENT.draw(PAPER, from_tables())}
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


def shorten(*names: str, sets: tuple[str, ...] = ("digits",)) -> Pretrainings:
    """Runs of the small scale, cut to an epoch."""
    short = {"epochs": 1, "warmup_epochs": 0, "every": 1, "balanced": 200}
    runs = {name: replace_fields(SMALL.runs[name], **short) for name in names}
    return Pretrainings(runs=runs, downstream=sets)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")  # most of the time, otherwise
def test_a_short_run_probes_and_goes_on_where_it_stopped(tmp_path, monkeypatch) -> None:
    """The tiny sets have a training image a class: only their own validation images will do."""
    for name in ("dtd", "flowers"):
        DOWNSTREAM_WRITERS[name](tmp_path, monkeypatch)
    config = shorten("temperature 0.1, seed 0", sets=("dtd", "flowers"))
    (part,) = EXPERIMENT.parts(config)
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
    monkeypatch.setattr(transfer, "bench_events", None)
    config = shorten("temperature 1, seed 0", sets=("digits", "pets"))
    with pytest.raises(InputError, match="the data set Pets"):
        results_of(*EXPERIMENT.parts(config), resources=Resources(data=tmp_path))


def test_the_paper_s_scale_is_the_paper_s() -> None:
    assert PAPER.downstream == tuple(DOWNSTREAM)
    for settings in (PAPER, SMALL):
        groups = Runs.of(settings.runs, Results()).group(name_group)
        values = {name: [value_of_setting(run) for run in group] for name, group in groups.items()}
        assert values == {
            TEMPERATURE: [value for value in TEMPERATURES for _ in range(3)],
            PENALTY: [value for value in REGULARISED for _ in range(3)],
        }
        assert all(name in CATALOGUE for name in settings.downstream)
        for training in settings.runs.values():
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
        short = {"epochs": 1, "warmup_epochs": 0, "batch_size": 4, "learning_rate": 1e-4}
        own = {"every": 1, "measured": None, "cosine_group": None}
        brief = replace_fields(training, **short, **own)
        # The tiny CIFAR-100 has one image of a class, none to be held out.
        every = tuple(one for one in PAPER.downstream if one != "cifar100")
        sets = every if training.temperature < 1 else every[:1]
        config = Pretrainings(runs={name: brief}, downstream=sets)
        results = results_of(*EXPERIMENT.parts(config), resources=Resources(data=tmp_path))
        assert [row.split for row in results[-len(sets) :]] == list(sets)
        assert math.isfinite(next(row["loss"] for row in results if "loss" in row))
        assert all(0 <= row["accuracy"] <= 1 for row in results if "strength" in row)
