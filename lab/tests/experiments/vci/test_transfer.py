"""VCI figure 7 and tables 1-2: printed numbers, claims, tables, figures; pretraining, probes."""

import math

import numpy as np
import pytest
from lab.tests.experiments.vci.checkpoints import TABLES, from_tables
from lab.tests.observed import nudged, results_of, those

from ncscope.errors import InputError
from ncscope.measurement.records import Measurement
from ncscope_lab.experiments.vci import transfer
from ncscope_lab.experiments.vci.published import DOWNSTREAM, REGULARISED, TEMPERATURES
from ncscope_lab.experiments.vci.transfer import (
    EXPERIMENT,
    MLOG,
    PAPER,
    PENALTY,
    SMALL,
    TEMPERATURE,
    Pretrainings,
    average_seeds,
    beyond_pretraining,
    coefficient,
    correlate_within,
    mlo,
    name_group,
    pretraining_odds,
)
from ncscope_lab.observations import Heartbeat, Observation, Results
from ncscope_lab.quantities import Runs, last, replace_fields
from ncscope_lab.runs.resources import Resources
from tests.data.downstream_on_disk import DOWNSTREAM_WRITERS
from tests.data.on_disk import WRITERS


def test_the_printed_log_odds_follow_from_the_printed_accuracies() -> None:
    for run, row in zip(TABLES, [*TEMPERATURES.values(), *REGULARISED.values()], strict=True):
        assert len(row.accuracies) == len(DOWNSTREAM) == 10
        assert f"{mlo(run):.3f}" == f"{row.mlo:.3f}"
        assert MLOG(run) == pytest.approx(row.mlog, abs=5e-4)


def test_only_vci_goes_with_transfer_in_both_groups() -> None:
    """Figure 7; the values are computed from the tables, since its legends are not at hand."""
    pairs = {
        key: [
            round(coefficient(last(key), MLOG)(group[0]), 3)
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


def test_one_network_for_each_setting_decides_nothing() -> None:
    first = {name: run for name, run in PAPER.runs.items() if run.seed == 0}
    settings = PAPER.model_copy(update={"runs": first})
    findings = EXPERIMENT.judge(settings, those(from_tables(), lambda row: row.part in first))
    assert {finding.verdict for finding in findings} == {"undecided"}


@pytest.mark.parametrize("weight", [0.0, 1.0, -2.0])
def test_the_share_of_the_pretraining_accuracy_is_taken_out(weight: float) -> None:
    """MLO is linear in VCI, in the pretraining log odds and in the seed."""
    draws = np.random.default_rng(0)
    rows = []
    for name, run in PAPER.runs.items():
        vci, odds = draws.normal(size=2)
        transfer_odds = 0.5 * vci + weight * odds + run.seed
        accuracies = {"train": 0.5, "test": odds, "pets": transfer_odds}
        rows += [
            Observation(
                0, 1, split, part=name, values={"accuracy": 1 / (1 + np.exp(-x)), "vci": vci}
            )
            for split, x in accuracies.items()
        ]
    metric = last("vci")
    for run in Runs.of(PAPER.runs, Results(rows)):
        left = 0.5 * metric(run) + run.settings.seed
        assert beyond_pretraining(metric)(run) == pytest.approx(left, abs=1e-9)
        assert mlo(run) - weight * pretraining_odds(run) == pytest.approx(left, abs=1e-9)


def test_the_tables_are_the_paper_s() -> None:
    first, second, third = EXPERIMENT.summarise(PAPER, from_tables())
    names = [f"{TEMPERATURE} {value:g}" for value in TEMPERATURES]
    names += [f"{PENALTY} {value:g}" for value in REGULARISED]
    for table in (first, second):
        assert list(table.lines) == names
    for name, row in zip(names, [*TEMPERATURES.values(), *REGULARISED.values()], strict=True):
        *accuracies, mean = first.lines[name]
        assert [float(cell.rstrip("%")) for cell in accuracies] == list(row.accuracies)
        assert float(mean) == row.mlo
        fuzziness, squared, cosine, vci, _, accuracy, mlog = map(float, second.lines[name])
        assert (fuzziness, squared, vci) == (row.fuzziness, row.nc1_quotient, row.vci)
        assert cosine == pytest.approx(1 - row.cosine_similarity, abs=5e-5)
        assert (100 * accuracy, mlog) == (
            pytest.approx(row.accuracy),
            pytest.approx(row.mlog, abs=5e-4),
        )
    told = ["0.995 [0.995, 0.995]", "0.975 [0.975, 0.975]"]  # of seeds alike but for rounding
    assert third.lines["VCI"] == [*told, "0.995", "0.975"]


def test_seeds_are_averaged_in_the_figure_and_correlated_apart() -> None:
    group = TABLES.group(name_group)[TEMPERATURE]
    vci = [last("vci")(run) for run in group]

    def shift(row: Observation) -> Observation:
        seed = float(row.part[-1])
        return row.with_values({"vci": float(row.get("vci", 0)) + 3 * seed})

    shifted = Runs.of(PAPER.runs, from_tables(shift)).group(name_group)[TEMPERATURE]
    means = list(average_seeds(shifted, last("vci")).values())
    assert means == pytest.approx([value + 3 for value in vci])
    assert correlate_within(shifted, last("vci"), MLOG).startswith("0.995 ")


def test_the_figure_shows_the_coefficient_that_is_judged() -> None:
    runs = Runs.of(PAPER.runs, from_tables(nudged))
    findings = {each.text: each for each in EXPERIMENT.judge(PAPER, from_tables(nudged))}
    (found,) = (each for text, each in findings.items() if "correlation with MLOG" in text)
    for name, group in runs.group(name_group).items():
        interval = found.groups[name].interval
        assert interval is not None
        written = correlate_within(group, last("vci"), MLOG)
        assert written == f"{interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def test_the_evidence_tells_the_accuracies() -> None:
    (found,) = (each for each in EXPERIMENT.judge(PAPER, from_tables()) if "points" in each.text)
    row = TEMPERATURES[0.1]
    probes = sum(row.accuracies) / len(row.accuracies)
    assert f"temperature 0.1: nan, {row.accuracy:.1f} and {probes:.1f} %" in found.evidence


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
    config = shorten("temperature 1, seed 20", sets=("dtd", "flowers"))
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
    config = shorten("temperature 1, seed 20", sets=("digits", "pets"))
    with pytest.raises(InputError, match="the data set Pets"):
        results_of(*EXPERIMENT.parts(config), resources=Resources(data=tmp_path))


@pytest.mark.nightly
def test_an_epoch_and_probes_at_the_paper_s_scale_on_real_files(tmp_path, monkeypatch) -> None:
    # All sets are read alike, and are read by the tests of each.
    some = PAPER.downstream[:2]
    for name, write in {**WRITERS, **DOWNSTREAM_WRITERS}.items():
        if name in ("imagenet", *some):
            write(tmp_path, monkeypatch)
    for name in ("temperature 0.1, seed 0", "cosine penalty 10, seed 0"):
        training = PAPER.runs[name]
        short = {"epochs": 1, "warmup_epochs": 0, "batch_size": 4, "learning_rate": 1e-4}
        own = {"every": 1, "measured": None, "cosine_group": None}
        brief = replace_fields(training, **short, **own)
        sets = some if training.temperature < 1 else some[:1]
        config = Pretrainings(runs={name: brief}, downstream=sets)
        results = results_of(*EXPERIMENT.parts(config), resources=Resources(data=tmp_path))
        assert [row.split for row in results[-len(sets) :]] == list(sets)
        assert math.isfinite(next(row["loss"] for row in results if "loss" in row))
        assert all(0 <= row["accuracy"] <= 1 for row in results if "strength" in row)
