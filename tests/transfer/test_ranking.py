"""Checkpoints whose order is known, ranked, drawn and saved."""

import csv
import json
import math
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from markupsafe import escape
from sklearn.datasets import load_digits

from ncscope.api.measure import measure
from ncscope.api.transfer import TransferReport
from ncscope.errors import InputError, how_to_install
from ncscope.report import transfer
from ncscope.report.transfer import plot_accuracies, plot_scores, render_ranking_page
from ncscope.report.wording import format_plain
from ncscope.stats.moments import ClassMoments
from ncscope.transfer import leep, nce, rank_checkpoints
from ncscope.transfer.baselines import static_ranking
from ncscope.transfer.intervals import Answers, accuracy_gap, accuracy_interval
from ncscope.transfer.ranking import hold_out, score_checkpoint, split_samples
from ncscope.transfer.records import SCORES, CheckpointResult, rank_results
from ncscope.transfer.samples import check_downstream
from ncscope.transfer.scores.all_scores import sample_scores
from tests.pace import others_slow
from tests.transfer.samples import blobs

NO_MIXTURE = find_spec("sklearn") is None
REASONS = ["LEEP and NCE (no source probabilities)"]
if NO_MIXTURE:
    REASONS += [f"NLEEP (scikit-learn is not installed: {how_to_install('.[models]')})"]
LEFT_OUT = f"Left out: {'; '.join(REASONS)}."


@pytest.fixture(scope="module")
def checkpoints():
    """The same samples under more and more noise."""
    features, labels = blobs(150, 6, 3, seed=0)
    draws = torch.Generator().manual_seed(1)
    noise = torch.randn(features.shape, generator=draws, dtype=torch.float64)
    return {f"noise {size}": 2 * features + size * noise for size in (8, 0, 3)}, labels


@pytest.fixture(scope="module")
def ranking(checkpoints):
    features, labels = checkpoints
    pretraining = {name: (rows, labels) for name, rows in features.items()}
    return rank_checkpoints(features, labels, pretraining=pretraining)


def with_scores(ranking, *keys):
    """The ranking with these scores only: a page has a panel for each, and panels take time."""
    scores = [{key: each.scores[key] for key in keys} for each in ranking.checkpoints]
    pairs = zip(ranking.checkpoints, scores, strict=True)
    return rank_results([replace(each, scores=own) for each, own in pairs])


@pytest.mark.slow
def test_the_order_is_that_of_the_noise(ranking):
    assert ranking.order == ["noise 0", "noise 3", "noise 8"]
    missing = ["leep", "nce", *["nleep"] * NO_MIXTURE]
    assert [key for key in SCORES if key not in ranking.scores] == missing
    for key in SCORES.keys() & ranking.scores.keys():
        known = SCORES[key].better if key != "ncti" else 0.5  # it takes doubt for collapse
        assert ranking.correlations[key]["spearman"].value == pytest.approx(known)


def test_the_scores_are_those_of_measure_on_the_training_samples(ranking, checkpoints):
    features, labels = checkpoints
    train = ~hold_out(labels, seed=0)
    for each in ranking.checkpoints:
        known = measure(features[each.name][train], labels[train], groups=["nc1"])
        whole = measure(features[each.name], labels, groups=["nc1"])
        for key in ("vci", "fuzziness", "nc1_quotient", "cosine_within", "cdnv"):
            assert each.scores[key] == pytest.approx(known[key], rel=1e-9)
            assert each.scores[f"pretraining_{key}"] == pytest.approx(whole[key], rel=1e-9)
        assert each.scores["h_score"] == pytest.approx(2 * (1 - known["vci"]))


@pytest.mark.slow
def test_moments_stand_for_the_pretraining_samples(ranking, checkpoints):
    features, labels = checkpoints
    best = ranking.order[0]
    moments = ClassMoments(3, 6)
    moments.update(features[best], labels)
    again = rank_checkpoints({best: features[best]}, labels, pretraining={best: moments})
    known = {k: v for k, v in ranking.checkpoints[0].scores.items() if k != "ncti"}
    assert again.checkpoints == [replace(ranking.checkpoints[0], scores=known)]
    bare = ClassMoments(3, 6, statistics=["scatter"])
    with pytest.raises(InputError, match="scatter and directions"):
        rank_checkpoints({best: features[best]}, labels, pretraining={best: bare})


@pytest.mark.slow
def test_validation_samples_of_ones_own_choose_the_strength_and_are_scored(checkpoints):
    features, labels = checkpoints
    rows = features["noise 3"]
    chosen_on = hold_out(labels, seed=0)
    whole, test = check_downstream(rows, labels), check_downstream(rows[::4], labels[::4])
    samples = whole, test
    halves = whole.select(~chosen_on), test
    given = score_checkpoint("it", *halves, validation=whole.select(chosen_on), seed=5)
    known = score_checkpoint("it", *samples, seed=0)
    assert (given.strength, given.accuracy) == (known.strength, known.accuracy)
    same = known.scores.keys() - {"nleep"}  # whose first guess depends on the order
    assert given.scores.keys() == known.scores.keys()
    assert {k: given.scores[k] for k in same} == pytest.approx({k: known.scores[k] for k in same})
    assert score_checkpoint("it", *halves).scores["vci"] != pytest.approx(known.scores["vci"])


def test_held_out_samples_of_ones_own(checkpoints):
    features, labels = checkpoints
    given = {
        "test_features": {name: rows[::3] for name, rows in features.items()},
        "test_labels": labels[::3] * 0,  # all of class 0: the accuracy says how often 0 is said
    }
    with pytest.raises(InputError, match="two classes"):
        rank_checkpoints(features, labels, **given)
    given["test_labels"] = 2 - labels[::3]
    with pytest.raises(InputError, match="one label a sample"):
        rank_checkpoints(features, labels, **given | {"test_labels": labels[:5]})


@pytest.mark.usefixtures("few_strengths")
@pytest.mark.parametrize("scale", others_slow([2.0**460, 2.0**-460, 2.0**-700], 2.0**460))
def test_no_score_depends_on_the_scale_of_the_features(checkpoints, scale):
    features, labels = checkpoints
    sized = [features["noise 3"] * size for size in (1.0, scale)]
    samples = [check_downstream(rows, labels) for rows in sized]
    plain, scaled = (
        score_checkpoint("it", rows, rows, pretraining=None).scores for rows in samples
    )
    for each in (plain, scaled):
        for key in ("sfda", "transrate_listing"):  # the only ones that depend on it
            assert math.isfinite(each.pop(key))
    assert scaled == plain


@pytest.mark.slow
def test_a_common_factor_changes_no_accuracy():
    digits, labels = load_digits(return_X_y=True)
    digits, labels = torch.from_numpy(digits[:600]), labels[:600]
    small = {f"{factor:g}": factor * digits for factor in (1.0, 1e-6, 1e-30)}
    ranking = rank_checkpoints(small, labels, expensive=False)
    assert {each.accuracy for each in ranking.checkpoints} == {ranking.checkpoints[0].accuracy}
    assert ranking.checkpoints[0].accuracy > 0.9


@pytest.mark.parametrize("size", others_slow([1e8, 1e20, 1e100, 1e140], 1e140))
def test_features_that_matter_are_found_among_many_that_are_larger(size):
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 3
    useful = torch.eye(3).double()[labels][:, :2]
    useful += 0.05 * torch.randn(120, 2, generator=draws, dtype=torch.float64)
    large = size * torch.randn(120, 5, generator=draws, dtype=torch.float64)
    features = {"beside": torch.cat([useful, large], dim=1)}
    assert rank_checkpoints(features, labels, expensive=False).checkpoints[0].accuracy == 1


@pytest.mark.usefixtures("few_strengths")
def test_features_beyond_squares_are_refused(checkpoints):
    features, labels = checkpoints
    with pytest.raises(InputError, match=r"at most 3e\+144 for a logistic probe of it, found one"):
        rank_checkpoints({"it": 1e200 * features["noise 3"]}, labels)
    for size in (1e-200, 1e200):
        moments = ClassMoments(3, 6)
        moments.update(features["noise 3"], labels)
        moments.offsets *= size
        moments.pilot *= size
        with pytest.raises(InputError, match="between 3e-145 and 3e"):
            rank_checkpoints({"it": features["noise 3"]}, labels, pretraining={"it": moments})


def test_a_fifth_of_each_class_is_held_out():
    labels = torch.arange(40) % 4
    mask = hold_out(labels, seed=3)
    assert torch.bincount(labels[mask]).tolist() == [2, 2, 2, 2]
    assert not torch.equal(mask, hold_out(labels, seed=4))


def of_accuracies(*right, total=100, names=(), measure="top-1"):
    """Checkpoints that decide so many of the samples right, each the first of them."""
    made = []
    for place, count in enumerate(right):
        answers = Answers(
            torch.arange(total) < count, torch.tensor([total // 2, total - total // 2])
        )
        name = names[place] if names else "abcdefghijklmnop"[place]
        scores = {"vci": 0.5 + place / 100}
        made.append(CheckpointResult(name, scores, count / total, 1.3e-5, answers, size=(80, 2, 4)))
    return rank_results(made, measure)


def test_the_ranking_says_what_is_not_separable_from_the_first():
    ranking = of_accuracies(60, 90, 85, 90)
    assert ranking.order == ["b", "d", "c", "a"]
    assert ranking.ranks == [1, 1, 3, 4]
    assert ranking.gaps[0] is None
    first = ranking.checkpoints[0].answers
    for place, each in enumerate(ranking.checkpoints):
        assert ranking.intervals[place] == accuracy_interval(each.answers, "top-1")
        if place:
            assert ranking.gaps[place] == accuracy_gap(first, each.answers, "top-1", pairs=6)
    assert [gap.is_separable for gap in ranking.gaps[1:]] == [False, False, True]
    number = "top-1 accuracy 0.900 (0.826 to 0.945)"
    assert ranking.verdict == f"b and d are best: {number}; not separable from c."
    lines = repr(ranking).splitlines()
    assert lines[0] == f"Ranking: {ranking.verdict}"
    assert lines[3] == "  3 c 0.850 (0.767 to 0.907), not separable from the first"
    assert lines[4] == "  4 a 0.600 (0.502 to 0.691)"
    assert lines[5:] == [f"  note: {note}" for note in ranking.notes]
    for right, said in (
        ((90,), f"a: {number}."),
        ((90, 60), f"a is best: {number}; separable from all others."),
        ((90, 90), f"a and b are best: {number}; not separable from each other."),
        ((90, 90, 60), f"a and b are best: {number}; separable from all others."),
        ((90, 89, 88, 87, 86, 85), f"a is best: {number}; not separable from b, c, d and 2 more."),
    ):
        assert of_accuracies(*right).verdict == said


def test_mean_per_class_ranks_by_the_means_of_the_classes():
    ranking = of_accuracies(90, 80, measure="mean per class")
    (first, second), ((low, high), _) = ranking.checkpoints, ranking.intervals
    assert (low, high) == accuracy_interval(first.answers, "mean per class")
    gap = accuracy_gap(first.answers, second.answers, "mean per class")
    assert ranking.gaps == [None, gap]
    assert ranking.verdict.startswith("a is best: mean per class accuracy 0.900 (")
    page = render_ranking_page(ranking, {})
    assert "Mean per class accuracy of a linear probe on 100 held-out samples." in page


def test_the_terminal_shows_one_screen_of_80_columns(ranking):
    lines = repr(TransferReport(ranking)).splitlines()
    assert " ".join(lines[:2]) == ranking.verdict
    rows = [line.split() for line in lines if line.lstrip().startswith(("1 ", "2 ", "3 "))]
    low, high = (f"{end:.3f}" for end in ranking.intervals[0])
    assert rows[0] == ["1", "noise", "0", f"{ranking.checkpoints[0].accuracy:.3f}", low, "to", high]
    assert [row[-2:] for row in rows[1:]] == [["not", "separable"], [rows[2][-2], "separable"]]
    assert rows[2][-2] != "not"
    text = " ".join(" ".join(lines).split())
    assert "on 30 held-out samples" in text
    assert text.index("explained entropy") > text.index("score to trust")
    assert "weighted tau here" in text
    name = "timm:resnet18@runs/first/last.safetensors"
    long = of_accuracies(*range(99, 83, -1), names=[f"{name}{place}" for place in range(16)])
    lines = repr(TransferReport(long)).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 50
    assert "6 more below." in " ".join(lines)
    alone = repr(TransferReport(of_accuracies(3, total=4)))
    assert "from the first" not in alone
    assert "Separable" not in alone


def test_every_score_of_the_downstream_samples_stands_in_a_table_of_checkpoints(ranking):
    summaries = [
        each
        for each in transfer._summarise_ranking(ranking)
        if each.lines.keys() == set(ranking.order) and "pretraining" not in each.caption
    ]
    heads = [name for each in summaries for name in each.columns]
    found = [SCORES[key].name for key in SCORES if key in ranking.scores]
    assert sorted(heads) == sorted([*found, "λ"])
    (own,) = (each for each in summaries if each.title == "Our own score")
    known = {
        each.name: f"{format_plain(each.scores[key], 3)} ± {format_plain(each.errors[key], 2)}"
        for key in ("explained_entropy",)
        for each in ranking.checkpoints
    }
    assert own.lines == {name: [cell] for name, cell in known.items()}


def test_the_figure_of_scores_has_a_point_for_each_score_of_each_checkpoint(ranking):
    short = replace(ranking, checkpoints=with_scores(ranking, "vci", "log_me").checkpoints)
    figure = TransferReport(short).plot("scores")
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
    assert titles == ["VCI", "LogME", "NCTI"]  # which every ranking computes
    for axes, key in zip(figure.axes, short.scores, strict=False):
        points = [float(value) for line in axes.lines for value in line.get_xydata()[0]]
        known = [v for each in short.checkpoints for v in (each.scores[key], each.accuracy)]
        assert points == pytest.approx(known)


def test_the_figure_of_accuracies_has_a_dot_and_an_interval_for_each_checkpoint():
    ranking = of_accuracies(60, 90, 85)
    (axes,) = TransferReport(ranking).plot().axes
    lines = list(zip(axes.lines[::2], axes.lines[1::2], strict=True))
    for row, (interval, dot) in enumerate(lines):
        assert tuple(interval.get_xdata()) == ranking.intervals[row]
        assert dot.get_xydata().tolist() == [[ranking.checkpoints[row].accuracy, row]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "c", "a"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the best on top
    assert [dot.get_markerfacecolor() == "white" for _, dot in lines] == [False, False, True]
    assert not any(text.get_text() for text in plot_accuracies(of_accuracies(9)).texts)


@pytest.mark.slow
def test_a_report_is_written_to_files_of_known_kinds(ranking, tmp_path):
    report = TransferReport(with_scores(ranking, "vci"), {"data": "blobs", "train": 1200})
    for suffix in (".html", ".json", ".png", ".pdf"):
        path = tmp_path / f"ranking{suffix}"
        assert report.save(str(path)) == path
        assert path.stat().st_size > 1000
    record = json.loads((tmp_path / "ranking.json").read_text())
    assert [each["name"] for each in record["checkpoints"]] == ranking.order
    assert set(record["correlations"]["vci"]["pearson"]) == {"value", "low", "high"}
    assert (record["data"], record["notes"]) == ("blobs", ranking.notes)
    assert (record["verdict"], record["held_out"]) == (ranking.verdict, 30)
    first, _, last = record["checkpoints"]
    assert (first["rank"], first["gap"], first["separable"]) == (1, None, None)
    assert last["interval"] == dict(zip(("low", "high"), ranking.intervals[2], strict=True))
    assert (last["gap"], last["separable"]) == (ranking.gaps[2]._asdict(), True)
    page = (tmp_path / "ranking.html").read_text()
    notes = map(escape, ranking.notes)
    assert all(words in page for words in ("1,200 training images", "noise 8", *notes))
    for name, said in (
        ("r.txt", r"\.html, \.json"),
        ("new", "ending in"),
        ("no/r.png", "to write in"),
    ):
        with pytest.raises(InputError, match=said):
            report.save(tmp_path / name)
    assert not (tmp_path / "new").exists()


def test_the_csv_has_all_numbers_and_reads_back(ranking, tmp_path):
    report = TransferReport(ranking)
    with report.save(tmp_path / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ranking.order
    for row, each, interval, gap in zip(
        rows, ranking.checkpoints, ranking.intervals, ranking.gaps, strict=True
    ):
        assert float(row["accuracy"]) == each.accuracy
        assert (float(row["accuracy_low"]), float(row["accuracy_high"])) == interval
        ends = [row[name] for name in ("behind", "behind_low", "behind_high", "separable")]
        known = ["", "", "", ""] if gap is None else [*map(repr, gap), str(gap.is_separable)]
        assert ends == known
        assert float(row["strength"]) == each.strength
        assert {key: float(row[key]) for key in each.scores} == dict(each.scores)
        assert float(row["explained_entropy_standard_error"]) == each.errors["explained_entropy"]
    pytest.importorskip("pandas")
    frame = report.to_dataframe()
    assert frame["name"].tolist() == ranking.order
    assert list(frame.columns) == list(rows[0])


def test_the_latex_table_sets_names_as_they_are(tmp_path):
    ranking = of_accuracies(90, 60, 85, names=["a_b & 5%", "[x]*{#}", "$c\\d~^"])
    text = TransferReport(ranking).save(tmp_path / "r.tex").read_text()
    lines = text.splitlines()
    assert lines[0] == r"% \usepackage{booktabs}"
    assert lines[1] == r"\begin{tabular}{rlrlll}"
    assert lines[3] == r" & checkpoint & top-1 & 95 \% interval & behind the first & separable \\"
    assert lines[5] == r"1 & a\_b \& 5\% & $0.900$ & $[0.826, 0.945]$ & -- & -- \\"
    assert lines[6].startswith(
        r"2 & \$c\textbackslash{}d\textasciitilde{}\textasciicircum{} & $0.850$"
    )
    assert lines[6].endswith(r" & no \\")
    assert lines[7].startswith(r"3 & {[}x]{*}\{\#\} & $0.600$ & $[0.502, 0.691]$ & $0.300$ $[0.")
    assert lines[7].endswith(r" & yes \\")


def test_few_checkpoints_are_said_to_tell_little(ranking):
    found = with_scores(ranking, "vci", "log_me").checkpoints
    for count, said in ((1, "nothing to correlate"), (2, "there is none")):
        few = rank_results(found[:count])
        assert (few.correlations, few.qualities) == ({}, {})
        assert few.notes[1:] == [LEFT_OUT]
        assert said in few.notes[0]
        titles = [each.title for each in transfer._summarise_ranking(few)]
        assert not any("Correlation" in title for title in titles)
    assert "once in 6 times" in ranking.notes[0]
    assert any("Correlation" in each.title for each in transfer._summarise_ranking(ranking))
    assert rank_results([*found, *found]).notes == [LEFT_OUT]


@pytest.mark.usefixtures("few_strengths")
def test_what_has_no_correlation_is_said(ranking):
    few = with_scores(ranking, "vci", "cdnv", "h_score")  # intervals of every score take time
    best = few.checkpoints[0]
    alike = rank_results([best] * 6)
    same = "All probes have the same accuracy: no score can correlate with it."
    assert alike.notes == [same, LEFT_OUT]
    correlations = next(
        each for each in transfer._summarise_ranking(alike) if "Correlation" in each.title
    )
    assert set(correlations.lines["VCI ↓"]) == {"undefined"}
    worn = replace(best, scores=best.scores | {"cdnv": math.inf})
    notes = rank_results([*few.checkpoints, *few.checkpoints, worn]).notes
    assert notes == ["CDNV is not finite for noise 0: it has no correlation.", LEFT_OUT]
    wide = torch.randn(30, 40, generator=torch.Generator().manual_seed(0))
    saturated = rank_checkpoints({"wide": wide}, torch.arange(30) % 3, expensive=False)
    assert "VCI is 0 for wide: " in saturated.notes[1]
    assert saturated.checkpoints[0].scores["h_score"] == pytest.approx(2)
    zero = with_scores(saturated, "vci", "h_score").checkpoints[0]
    other = replace(zero, scores=zero.scores | {"vci": 0.5})
    several = [replace(zero, name=name) for name in "abcde"]
    for count, said in {2: "a and b", 3: "a, b and c", 5: "a, b, c and 2 more"}.items():
        notes = rank_results([other, *several[:count]]).notes
        assert any(note.startswith(f"VCI is 0 for {said}: ") for note in notes), notes


def page_text(ranking, static=None):
    """Words of all tables of the page."""
    parts = []
    for each in transfer._summarise_ranking(ranking, static):
        parts += [each.title, *each.columns, each.caption]
        parts += [word for name, cells in each.lines.items() for word in (name, *cells)]
    return " ".join(parts)


def source_of(labels):
    theta = torch.full((len(labels), 4), 0.1, dtype=torch.float64)
    return theta.scatter(1, (labels[:, None] + 1) % 3, 0.7)


@pytest.mark.slow
@pytest.mark.usefixtures("few_strengths")
def test_source_outputs_are_read_for_the_training_samples(checkpoints):
    features, labels = checkpoints
    theta = source_of(labels)
    theta[3] = theta[4]  # one is wrong
    train = ~hold_out(labels, seed=0)
    outputs = {"noise 0": theta, "noise 3": theta.argmax(1)}
    found = rank_checkpoints(features, labels, source_probabilities=outputs, expensive=False)
    scores = {each.name: each.scores for each in found.checkpoints}
    samples = check_downstream(features["noise 0"], labels).select(train)
    assert scores["noise 0"]["leep"] == pytest.approx(float(leep(samples, theta[train])))
    predicted = float(nce(samples, theta.argmax(1)[train]))
    assert scores["noise 0"]["nce"] == scores["noise 3"]["nce"] == pytest.approx(predicted)
    assert math.isnan(scores["noise 3"]["leep"])
    assert math.isnan(scores["noise 8"]["nce"])
    assert found.notes[-1] == (
        "Left out: LEEP (source predictions without probabilities) for noise 3; "
        "LEEP and NCE (no source probabilities) for noise 8."
    )
    assert not any("is not finite" in note for note in found.notes)
    whole = rank_checkpoints(
        {"it": features["noise 0"]},
        labels,
        test_features={"it": features["noise 0"]},
        test_labels=labels,
        source_probabilities={"it": theta},
        expensive=False,
    )
    samples = check_downstream(features["noise 0"], labels)
    assert whole.checkpoints[0].scores["leep"] == pytest.approx(float(leep(samples, theta)))


def test_expensive_scores_are_left_out_of_large_sets_unless_asked_for(monkeypatch):
    pytest.importorskip("sklearn")
    samples = check_downstream(*blobs(40, 3, 2, seed=0))
    monkeypatch.setattr("ncscope.transfer.scores.all_scores.NLEEP_LIMIT", 79)
    monkeypatch.setattr("ncscope.transfer.scores.all_scores.PARC_LIMIT", 39)
    left = sample_scores(samples)
    assert not {"nleep", "parc"} & left.values.keys()
    assert left.omissions["NLEEP"] == "40 samples of 2 classes: ask for expensive scores"
    assert left.omissions["PARC"] == "40 samples: ask for expensive scores"
    asked = sample_scores(samples, expensive=True)
    assert {"nleep", "parc"} <= asked.values.keys()
    monkeypatch.setattr("ncscope.transfer.scores.all_scores.NLEEP_LIMIT", 80)
    monkeypatch.setattr("ncscope.transfer.scores.all_scores.PARC_LIMIT", 40)
    assert {"nleep", "parc"} <= sample_scores(samples).values.keys()
    cheap = sample_scores(samples, expensive=False)
    assert not {"nleep", "parc"} & cheap.values.keys()
    assert list(cheap.omissions) == ["LEEP and NCE"]
    few = check_downstream(*blobs(9, 3, 2, seed=0))
    assert sample_scores(few).omissions["NLEEP"] == "fewer than 5 samples for each class"
    with pytest.raises(InputError, match="at least 10 samples, 5 for each class, for NLEEP"):
        sample_scores(few, expensive=True)


def test_without_scikit_learn_nleep_is_left_out(monkeypatch):
    samples = check_downstream(*blobs(40, 3, 2, seed=0))
    monkeypatch.setattr("ncscope.transfer.scores.all_scores.find_spec", lambda name: None)
    why = sample_scores(samples).omissions["NLEEP"]
    assert why.startswith("scikit-learn is not installed: pip install")


def test_baselines_stand_beside_the_scores_unless_they_are_the_same_for_all(ranking):
    facts = [
        {"parameters": size, "source_accuracy": 0.5, "other_sets": z}
        for size, z in ((3e6, 1.0), (2e6, math.nan), (1e6, -1.0))
    ]
    with_facts = [
        replace(each, scores={**each.scores, **fact})
        for each, fact in zip(ranking.checkpoints, facts, strict=True)
    ]
    found = rank_results(with_facts)
    assert list(found.scores)[-2:] == ["parameters", "other_sets"]
    assert found.qualities["parameters"].regret.value == 0
    assert found.qualities["other_sets"].kendall.value == pytest.approx(1 / 3)  # NaN is last
    assert "other_sets" not in found.correlations
    text = page_text(found)
    assert "3M" in text
    assert "Baselines, which know nothing of the set" in text


def test_vci_and_h_score_count_once_where_they_order_alike(ranking):
    text = page_text(ranking)
    assert ranking.has_redundant_h_score
    assert "H-score ↑ = VCI 1.00" in text
    assert "the two count as one score" in text
    first, *others = with_scores(ranking, "vci", "h_score").checkpoints
    wider = replace(first, scores={**first.scores, "h_score": 0.0})
    apart = rank_results([wider, *others])
    assert not apart.has_redundant_h_score
    text = page_text(apart)
    assert "= VCI" not in text
    assert "count as one" not in text


def test_the_static_ranking_of_other_results_is_shown(ranking):
    static = static_ranking({"a": {"x": 0.1, "y": 0.2}, "b": {"x": 0.3, "y": 0.1}})
    assert "−1.00 [−1.00, −1.00]" in page_text(with_scores(ranking, "vci"), static)
    page = render_ranking_page(with_scores(ranking, "vci"), {}, static)
    assert "Without looking at a set" in page
    assert "the 2 sets and 2 models of the results" in page


def test_bad_input_is_refused(checkpoints):
    features, labels = checkpoints
    for given, said in (
        ({"measure": "top-5"}, "'top-1' or 'mean per class'"),
        ({"test_labels": labels}, "both or neither"),
        ({"pretraining": {}}, "pretraining samples of every checkpoint"),
        ({"baselines": {"noise 0": {"size": 3}}}, "source_accuracy, other_sets, found 'size'"),
    ):
        with pytest.raises(InputError, match=said):
            rank_checkpoints(features, labels, **given)
    with pytest.raises(InputError, match="at least one checkpoint"):
        rank_checkpoints({}, labels)
    with pytest.raises(InputError, match="one label a sample of noise 8"):
        rank_checkpoints(features, labels[:-1])
    broken = features["noise 0"].clone()
    broken[4, 2] = torch.nan
    with pytest.raises(InputError, match="finite features of worn, found NaN or Inf in 1 of 150"):
        rank_checkpoints({"worn": broken}, labels)
    alone = torch.tensor([0, 0, 0, 1, 1, 2])  # after a fifth is held out, of 0 alone there are two
    with pytest.raises(InputError, match="two training samples or more of two classes of few"):
        rank_checkpoints({"few": features["noise 0"][:6]}, alone)
    with pytest.raises(InputError, match="two samples or more of two classes of few, found 0 such"):
        rank_checkpoints({"few": features["noise 0"][:6]}, torch.arange(6))
    wide = {"test_features": {"it": features["noise 0"][:, :3]}, "test_labels": labels}
    with pytest.raises(InputError, match="held-out features of dimension 6 of it"):
        rank_checkpoints({"it": features["noise 0"]}, labels, **wide)


@pytest.mark.parametrize(
    ("members", "held_out"), [(1, 0), (2, 1), (3, 1), (7, 1), (8, 2), (12, 2), (13, 3)]
)
def test_a_fifth_of_a_class_is_one_sample_at_least_but_never_its_only_one(members, held_out):
    labels = torch.tensor([7] * members + [2] * 5)
    mask = hold_out(labels, seed=0)
    assert (int(mask[:members].sum()), int(mask[members:].sum())) == (held_out, 1)
    assert int(hold_out(labels, seed=0, share=0.6)[members:].sum()) == 3


def test_two_classes_of_two_samples_can_be_split():
    features = torch.arange(8.0).view(4, 2)
    train, test = split_samples(check_downstream(features, [0, 0, 1, 1]), seed=0)
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1], [0, 1])
    assert sorted(torch.cat([train.features, test.features]).tolist()) == features.tolist()
    with pytest.raises(
        InputError, match=r"two samples or more of two classes, found 1 such class "
    ):
        split_samples(check_downstream(features, [0, 0, 0, 1]), seed=0)


def test_moments_without_a_statistic_or_of_another_prior_are_refused(checkpoints):
    features, labels = checkpoints
    rows, counts = features["noise 3"], torch.bincount(labels)
    for options, found in (
        ({"statistics": ["scatter"]}, "scatter, prior empirical"),
        ({"prior": "uniform", "class_counts": counts}, "directions, scatter, prior uniform"),
    ):
        moments = ClassMoments(len(counts), rows.shape[1], **options)
        moments.update(rows, labels)
        with pytest.raises(InputError, match=f"under the empirical prior of it, found {found}"):
            rank_checkpoints({"it": rows}, labels, pretraining={"it": moments})


@pytest.mark.usefixtures("few_strengths")
def test_constant_features_have_no_ncti_and_stop_no_ranking(ranking, checkpoints):
    labels = checkpoints[1]
    constant = torch.ones(len(labels), 3, dtype=torch.float64)
    (alone,) = rank_checkpoints({"constant": constant}, labels, expensive=False).checkpoints
    others = with_scores(ranking, "vci", "ncti").checkpoints
    ranking = rank_results([*others, alone])
    assert ranking.order[-1] == "constant"
    assert all(math.isnan(each.scores["ncti"]) for each in ranking.checkpoints)
    lacking = "noise 0, noise 3, noise 8 and 1 more"
    assert f"NCTI is not finite for {lacking}: it has no correlation." in ranking.notes


@pytest.mark.usefixtures("unchecked_signatures")
def test_checkpoints_and_baselines_in_another_form_are_refused(checkpoints):
    features, labels = checkpoints
    with pytest.raises(InputError, match="features as a dictionary from text, found a list of"):
        rank_checkpoints(list(features.values()), labels)
    with pytest.raises(InputError, match=r"found 3\.0 under 'noise 0'"):
        rank_checkpoints(features, labels, baselines={"noise 0": 3.0})
    for baselines in ({"parameters": {"noise 0": 3.0}}, {"stranger": {}}):
        with pytest.raises(
            InputError, match=r"baselines by checkpoint.*\{checkpoint: \{key: number"
        ):
            rank_checkpoints(features, labels, baselines=baselines)


@pytest.mark.slow
def test_unknown_baselines_are_said_to_come_last(ranking):
    known = {"noise 0": {"parameters": 64.0}, "noise 3": {"parameters": 65.0}}
    facts = [
        replace(each, scores={**each.scores, **known.get(each.name, {})})
        for each in with_scores(ranking, "vci").checkpoints
    ]
    short = rank_results(facts)
    note = next(note for note in short.notes if note.startswith("parameters"))
    assert note == (
        "parameters is unknown for noise 8: it has no correlation, and in the weighted tau these "
        "checkpoints come last."
    )
    assert "unknown" in render_ranking_page(short, {})
    panel = plot_scores(short).axes[list(short.scores).index("parameters")]
    assert all(float(tick).is_integer() for tick in panel.get_xticks())


def test_a_ranking_that_was_saved_is_read_whole(ranking, tmp_path):
    report = TransferReport(ranking, {"data": "blobs", "train": 1200}, ("weights: all used",))
    path = report.save(tmp_path / "ranking.json")
    again = TransferReport.from_json(path)
    assert again.rows() == report.rows()
    assert (repr(again), again.to_json()) == (repr(report), report.to_json())
    assert again.facts == report.facts
    assert again.notes == report.notes
    for suffix in (".tex", ".csv"):
        files = [each.save(tmp_path / f"x{suffix}").read_text() for each in (report, again)]
        assert files[0] == files[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole.pop("measure"),
        lambda whole: whole.update(schema_version=2),
        lambda whole: whole.update(measure="best"),
        lambda whole: whole["checkpoints"].reverse(),
        lambda whole: whole["checkpoints"].clear(),
        lambda whole: whole["checkpoints"][0].update(correct="01"),
        lambda whole: whole["checkpoints"][0].update(correct="x" * 30),
        lambda whole: whole["checkpoints"][0].update(accuracy="high"),
        lambda whole: whole["checkpoints"][0]["scores"].update(unheard_of=1.0),
        lambda whole: whole.update(held_out_by_class=[0, 30]),
    ],
)
def test_what_is_no_ranking_is_refused(ranking, change):
    whole = json.loads(TransferReport(ranking).to_json())
    change(whole)
    with pytest.raises(InputError, match="a ranking of checkpoints that ncscope wrote"):
        TransferReport.from_json(json.dumps(whole))


def test_a_long_name_stands_once():
    names = [f"features-of-{name}.npz" for name in "abc"]
    said = of_accuracies(90, 89, 50, names=names).verdict
    assert said.endswith("; not separable from rank 2.")
    assert said.count("features-of-") == 1
