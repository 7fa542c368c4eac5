"""The metric of torchmetrics: what its own checks ask for, and the values of `measure`."""

import pickle
from itertools import product

import pytest
import torch
from torch import nn
from torchmetrics import (
    BootStrapper,
    ClasswiseWrapper,
    MetricCollection,
    MetricTracker,
    MinMaxMetric,
    MultioutputWrapper,
)
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.utilities.checks import check_forward_full_state_property
from torchmetrics.wrappers import Running, bootstrapping

import ncscope
from ncscope.integrations.torchmetrics import HEADLINES, NeuralCollapse

from ..pace import others_slow
from ..threads import at_once

K, D, N = 4, 6, 60
GENERATOR = torch.Generator().manual_seed(0)
WEIGHT, BIAS = torch.randn(K, D, generator=GENERATOR), torch.randn(K, generator=GENERATOR)
LABELS = torch.randint(K, (N,), generator=GENERATOR)
FEATURES = WEIGHT[LABELS] + torch.randn(N, D, generator=GENERATOR)
HEAD = (WEIGHT, BIAS)

# torchmetrics warns where values come from a state that was loaded or merged
unwarned = pytest.mark.filterwarnings("ignore:The ``compute`` method of metric NeuralCollapse")
both = pytest.mark.parametrize("keep", [False, True], ids=["moments", "features"])


def assert_measures(metric: NeuralCollapse, rows: slice = slice(None), **settings) -> None:
    """The metric's values are those of `measure` on these rows."""
    groups = metric.groups
    head = (None, None) if not metric.weight.isfinite().all() else HEAD
    expected = ncscope.measure(FEATURES[rows], LABELS[rows], *head, groups=groups, **settings)
    values = {key: value.item() for key, value in metric.compute().items()}
    missing = set(expected) - set(values)
    assert values == pytest.approx({key: expected[key] for key in values}, rel=1e-9, abs=1e-12)
    if metric.keep_features:
        assert not missing
    else:
        kept = ncscope.ClassMoments(K, D)
        kept.update(FEATURES[rows], LABELS[rows])
        assert set(values) == set(ncscope.measure_moments(kept, *head, groups=groups))
        assert groups is not None or missing >= {"ncc_accuracy", "pfc3"}


def empty(keep: bool) -> NeuralCollapse:
    return NeuralCollapse(K, D, keep_features=keep, groups=["nc1", "nc3", *["nc4"] * keep])


def seen(keep: bool, **settings) -> NeuralCollapse:
    metric = NeuralCollapse(K, D, keep_features=keep, **settings) if settings else empty(keep)
    for rows in torch.arange(N).split(17):
        last = int(rows[-1]) == N - 1  # of several classifiers the last one counts
        metric.update(FEATURES[rows], LABELS[rows], WEIGHT if last else -WEIGHT, BIAS)
    return metric


@both
def test_values_are_those_of_measure(keep):
    assert_measures(seen(keep, groups=None))
    assert_measures(seen(keep, groups=["nc1", "mse"], weight_decay=0.1), weight_decay=0.1)
    uniform = {"prior": "uniform", "groups": ["nc2"] if not keep else None}
    assert_measures(seen(keep, **uniform), prior="uniform")
    without_head = NeuralCollapse(K, D, keep_features=keep)
    without_head.update(FEATURES.numpy(), LABELS.tolist())
    assert_measures(without_head)


@both
def test_calling_it_gives_the_batch_and_goes_on_with_the_stream(keep):
    metric = empty(keep)
    for start in (0, 30):
        batch = metric(FEATURES[start : start + 30], LABELS[start : start + 30], *HEAD)
        alone = empty(keep)
        alone.update(FEATURES[start : start + 30], LABELS[start : start + 30], *HEAD)
        torch.testing.assert_close(batch, alone.compute())
    assert_measures(metric)
    metric.reset()
    metric.update(FEATURES[:20], LABELS[:20])
    assert_measures(metric, slice(20))


@both
def test_a_head_of_zeros_that_is_given_later_counts(keep):
    zeros = (torch.zeros(K, D), torch.zeros(K))
    for later in (zeros, (WEIGHT, zeros[1])):
        whole, other = empty(keep), empty(keep)
        whole(FEATURES[:30], LABELS[:30], *HEAD)
        whole(FEATURES[30:], LABELS[30:], *later)
        other.update(FEATURES[:30], LABELS[:30], *later)
        merged = empty(keep)
        merged.update(FEATURES[30:], LABELS[30:], *HEAD)
        other.merge_state(merged)  # what is merged in came before
        for metric in (whole, other):
            assert (metric.weight.equal(later[0].double()), metric.bias.any()) == (True, False)
        values = {key: value.item() for key, value in whole.compute().items()}
        expected = ncscope.measure(FEATURES, LABELS, *later, groups=whole.groups)
        assert values == pytest.approx(dict(expected), rel=1e-9, abs=1e-12, nan_ok=True)


@both
def test_torchmetrics_finds_that_batches_can_be_reduced(keep, capsys):
    batch = {"features": FEATURES, "labels": LABELS, "weight": WEIGHT}
    settings = {"num_classes": K, "dim": D, "keep_features": keep, "groups": ["nc1", "nc3"]}
    check_forward_full_state_property(
        NeuralCollapse, settings, batch, num_update_to_compare=[2], reps=2
    )
    assert "Full state for 2 steps took" in capsys.readouterr().out  # printed only if they agree


@both
@unwarned
def test_copies_pickles_and_saved_states_go_on_alike(keep):
    metric = seen(keep)
    state_dict = metric.state_dict()
    assert not state_dict  # as torchmetrics has it: states are saved where it is asked for
    metric.persistent(True)
    loaded = empty(keep)
    loaded.persistent(True)
    loaded.load_state_dict(metric.state_dict())
    for other in (pickle.loads(pickle.dumps(metric)), metric.clone(), loaded):
        assert_measures(other)
        other.reset()
        other.update(FEATURES[:20], LABELS[:20])
        assert_measures(other, slice(20))
    assert_measures(metric)


def parts(calls):
    """A thread for each quarter of the samples, that makes these calls with batches of eight."""

    def work(rows):
        for few in rows.split(8):
            calls(FEATURES[few], LABELS[few], *HEAD)

    return [lambda rows=rows: work(rows) for rows in torch.arange(N).split(N // 4)]


@pytest.mark.parametrize(
    ("keep", "way"),
    others_slow(
        product((False, True), ("update", "forward")), (False, "update"), (True, "forward")
    ),
)
def test_several_threads_count_every_sample(keep, way):
    metric = empty(keep)
    at_once(*parts(getattr(metric, way)))
    assert_measures(metric)


@both
def test_threads_that_compute_meanwhile_leave_nothing_stale_behind(keep):
    metric = empty(keep)

    def look(*batch):
        metric.update(*batch)
        metric.compute()
        pickle.loads(pickle.dumps(metric)).compute()

    at_once(*parts(look))
    assert_measures(metric)


@both
@unwarned
def test_merging_is_seeing_both(keep):
    one, other = (empty(keep) for _ in range(2))
    one.update(FEATURES[:23], LABELS[:23], *HEAD)
    other.update(FEATURES[23:], LABELS[23:])
    one.merge_state(other)
    assert_measures(one)
    third = empty(keep)
    third.merge_state(dict(one.metric_state))
    assert_measures(third)


@both
@pytest.mark.parametrize("convert", [nn.Module.half, lambda m: m.to(torch.bfloat16)])
def test_no_conversion_costs_digits(keep, convert):
    metric = seen(keep)
    convert(nn.ModuleDict({"metric": metric}))
    metric.set_dtype(torch.float16)
    metric._computed = None
    assert_measures(metric)
    metric.reset()
    metric.update(FEATURES, LABELS, *HEAD)
    assert_measures(metric)


@both
def test_a_state_made_in_inference_mode_is_updated_outside(keep):
    metric = empty(keep)
    with torch.inference_mode():
        metric.reset()
        metric.update(FEATURES[:30], LABELS[:30], *HEAD)
    metric.update(FEATURES[30:], LABELS[30:], *HEAD)
    assert_measures(metric)


@both
def test_one_class_is_not_enough(keep):
    metric = empty(keep)
    metric.update(FEATURES[:2], torch.zeros(2, dtype=torch.int64), *HEAD)
    assert all(value.isnan() for value in metric.compute().values())
    assert metric.notes == ("every metric is undefined: fewer than two classes have samples",)
    keys = set(metric.compute())
    metric.reset()
    metric.update(FEATURES, LABELS, *HEAD)
    assert set(metric.compute()) == keys
    assert_measures(metric)


@both
def test_what_is_refused_changes_nothing(keep):
    metric = seen(keep)
    broken = FEATURES.clone()
    broken[3, 0] = torch.nan
    refused = [
        ((broken, LABELS, *HEAD), "expected finite features"),
        ((FEATURES, LABELS + 1, *HEAD), "expected labels in 0..3"),
        ((FEATURES[:, 1:], LABELS, *HEAD), "expected features of dimension 6"),
        ((FEATURES, LABELS, WEIGHT.T, BIAS), r"expected a weight of shape \(4, 6\)"),
        ((FEATURES, LABELS, WEIGHT, WEIGHT), r"expected a bias of shape \(4,\)"),
        ((FEATURES, LABELS, None, BIAS), "expected a weight along with the bias"),
    ]
    for batch, message in refused:
        with pytest.raises(ncscope.InputError, match=message):
            metric.update(*batch)
    assert_measures(metric)


@pytest.mark.parametrize(
    "settings", [{"groups": ["nc1", "nc4"]}, {"groups": ["pfc"]}, {"prior": "uniform"}]
)
def test_what_needs_the_features_is_not_left_out_in_silence(settings):
    with pytest.raises(ncscope.InputError, match="pass keep_features=True"):
        NeuralCollapse(K, D, **settings)
    NeuralCollapse(K, D, keep_features=True, **settings)


def test_it_works_in_a_collection():
    collection = MetricCollection(
        {
            "variability": NeuralCollapse(K, D, groups=["nc1"]),
            "again": NeuralCollapse(K, D, groups=["nc1"]),
            "accuracy": MulticlassAccuracy(K, average="micro"),
        },
        prefix="val/",
    )
    logits = FEATURES @ WEIGHT.T + BIAS
    for rows in torch.arange(N).split(17):
        collection.update(
            features=FEATURES[rows], labels=LABELS[rows], preds=logits[rows], target=LABELS[rows]
        )
    assert ["again", "variability"] in map(sorted, collection.compute_groups.values())
    expected = ncscope.measure(FEATURES, LABELS, *HEAD)
    values = collection.compute()
    assert values["val/accuracy"].item() == pytest.approx(expected["accuracy"])
    found = [value.item() for key, value in values.items() if key.endswith("nc1")]
    assert found == pytest.approx([expected["nc1"]] * 2)
    assert NeuralCollapse(K, D)(FEATURES, LABELS)["nc1"] == pytest.approx(expected["nc1"])


def test_plot_draws_the_headlines_over_time():
    metric = NeuralCollapse(K, D)
    steps = [metric(FEATURES / scale, LABELS, WEIGHT, BIAS) for scale in (1, 2, 3)]
    _, axes = metric.plot(steps)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(HEADLINES[:3])
    assert [list(line.get_ydata()) for line in axes.get_lines()] == [
        [step[key].item() for step in steps] for key in HEADLINES[:3]
    ]
    assert axes.get_yscale() == "log"
    assert metric.plot(ax=axes) == (None, axes)


def one_value(key: str = "nc1", **settings) -> NeuralCollapse:
    return NeuralCollapse(K, D, key=key, **settings)


def expect(key: str, rows: torch.Tensor | slice = slice(None), *head) -> float:
    return ncscope.measure(FEATURES[rows], LABELS[rows], *head, groups=[f"key:{key}"])[key]


@pytest.mark.parametrize(
    ("key", "better", "keep"),
    [
        ("nc1", False, False),
        ("pfc1", False, False),
        ("unc3_mean", True, False),
        ("participation_ratio", None, False),
        ("accuracy", True, True),
        ("ncc_accuracy", True, True),
        ("nc4_disagreement", False, True),
        ("mir", True, True),
    ],
)
def test_one_key_is_one_value(key, better, keep):
    metric = one_value(key, keep_features=keep)
    batch = metric(FEATURES, LABELS, *HEAD)
    value = metric.compute()
    assert value.shape == batch.shape == ()
    assert value.dtype == torch.float64
    assert value.item() == batch.item() == pytest.approx(expect(key, slice(None), *HEAD), rel=1e-9)
    for each in (metric, metric.clone(), pickle.loads(pickle.dumps(metric))):
        assert each.higher_is_better is better
    assert NeuralCollapse.higher_is_better is None


def test_only_what_the_key_needs_is_gathered():
    assert one_value("nc2_etf").moments.numel() < NeuralCollapse(K, D).moments.numel() - D * D


@both
def test_a_key_of_one_class_is_nan(keep):
    metric = one_value(keep_features=keep)
    metric.update(FEATURES[:5], torch.zeros(5, dtype=torch.long))
    assert metric.compute().isnan()


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"key": "nc_1"}, "write nc1"),
        ({"key": "nc1", "groups": ["nc1"]}, "leave groups out"),
        ({"key": "nc4_disagreement"}, "pass keep_features=True"),
        ({"key": "accuracy"}, "pass keep_features=True"),
        ({"key": "nc1", "prior": "uniform"}, "pass keep_features=True"),
        ({"key": "msp_auroc"}, "ood="),
    ],
)
def test_a_key_that_is_none_is_refused(settings, fix):
    with pytest.raises(ncscope.InputError, match=fix):
        NeuralCollapse(K, D, **settings)


def test_a_key_that_needs_a_weight_asks_for_it():
    metric = one_value("nc3_self_duality")
    metric.update(FEATURES, LABELS)
    with pytest.raises(ncscope.InputError, match="pass the weight and bias to update"):
        metric.compute()


@pytest.mark.parametrize("key", ["nc1", "unc3_mean"])
def test_trackers_find_the_best_step(key):
    several = MetricCollection({"one": one_value(key), "two": one_value("pfc1")})
    trackers = [MetricTracker(one_value(key)), MetricTracker(several)]
    values = []
    for scale in (1.0, 0.1, 0.5):
        moved = WEIGHT[LABELS] + scale * (FEATURES - WEIGHT[LABELS])
        values.append(ncscope.measure(moved, LABELS, WEIGHT, groups=[f"key:{key}"])[key])
        for tracker in trackers:
            tracker.increment()
            tracker.update(features=moved, labels=LABELS, weight=WEIGHT)
    best = (max if key == "unc3_mean" else min)(values)
    value, step = trackers[0].best_metric(return_step=True)
    assert (value, step) == (pytest.approx(best), values.index(best))
    assert trackers[0].compute_all().tolist() == pytest.approx(values)
    value, step = trackers[1].best_metric(return_step=True)
    assert (value["one"], step["one"]) == (pytest.approx(best), values.index(best))
    assert step["two"] == 1


@both
@pytest.mark.parametrize("strategy", ["poisson", "multinomial"])
def test_bootstraps_are_measurements_of_resampled_rows(keep, strategy, monkeypatch):
    drawn = []
    sampler = bootstrapping._bootstrap_sampler

    def record(*args, **kwargs):
        drawn.append(sampler(*args, **kwargs))
        return drawn[-1]

    monkeypatch.setattr(bootstrapping, "_bootstrap_sampler", record)
    metric = one_value("unc3_mean", keep_features=keep)
    boot = BootStrapper(metric, num_bootstraps=4, raw=True, sampling_strategy=strategy)
    boot.update(FEATURES, LABELS, WEIGHT.numpy(), BIAS.numpy())
    expected = [expect("unc3_mean", rows, *HEAD) for rows in drawn]
    values = boot.compute()
    assert values["raw"].tolist() == pytest.approx(expected)
    assert values["mean"].item() == pytest.approx(sum(expected) / 4)
    if strategy == "multinomial":  # the wrapper draws rows of a weight too, if it has enough
        square = BootStrapper(NeuralCollapse(N, D, key="unc3_mean"), 2, sampling_strategy=strategy)
        with pytest.raises(ncscope.InputError, match="pass weight and bias as NumPy arrays"):
            square.update(FEATURES, torch.arange(N), FEATURES)


@pytest.mark.parametrize(
    ("features", "labels", "fix"),
    [
        (FEATURES, LABELS.numpy(), "pass labels as a tensor of class indices"),
        (FEATURES, [f"c{label}" for label in LABELS.tolist()], "pass labels as a tensor"),
        (FEATURES.numpy(), LABELS, "pass features as a tensor"),
    ],
    ids=["array", "names", "features"],
)
def test_bootstraps_resample_features_and_labels_or_neither(features, labels, fix):
    metric = one_value("nc1", class_names=[f"c{label}" for label in range(K)])
    boot = BootStrapper(metric, num_bootstraps=2, sampling_strategy="multinomial")
    given = {"labels": labels, "features": features}
    if labels is not LABELS:  # the wrapper counts the rows of the first argument, a tensor
        given = {"features": features, "labels": labels}
    with pytest.raises(ncscope.InputError, match=fix):
        boot.update(**given)
    metric.update(features, labels)  # by itself the metric takes them
    assert metric.compute().item() == pytest.approx(expect("nc1"))


def test_marks_of_samples_without_a_class_are_left_out_as_the_message_says():
    marked = LABELS.clone()
    marked[0] = -1
    for keep in (False, True):
        with pytest.raises(ncscope.InputError, match="ignore_index=-1"):
            one_value(keep_features=keep).update(FEATURES, marked)
        metric = one_value(keep_features=keep, ignore_index=-1)
        metric.update(FEATURES, marked)
        assert metric.compute().item() == pytest.approx(expect("nc1", slice(1, None)))
    with pytest.raises(ncscope.InputError, match=f"pass dim={D}"):
        NeuralCollapse(K, D + 1).update(FEATURES, LABELS)


def test_other_wrappers_hold_one_value():
    extremes, running = MinMaxMetric(one_value()), Running(one_value(), window=2)
    for rows in torch.arange(N).split(20):
        extremes.update(FEATURES[rows], LABELS[rows])
        running.update(FEATURES[rows], LABELS[rows])
        found = {name: value.item() for name, value in extremes.compute().items()}
    values = [expect("nc1", slice(end)) for end in (20, 40, 60)]
    expected = {"raw": values[-1], "max": max(values), "min": min(values)}
    assert found == pytest.approx(expected)
    assert running.compute().item() == pytest.approx(expect("nc1", slice(20, None)))
    views = MultioutputWrapper(one_value(), 2)
    views.update(torch.stack([FEATURES, 2 * FEATURES + 1], -1), torch.stack([LABELS, LABELS], -1))
    assert views.compute().tolist() == pytest.approx([expect("nc1")] * 2)
    _, axes = one_value().plot([torch.tensor(0.5), torch.tensor(0.4)])
    assert list(axes.get_lines()[0].get_ydata()) == [0.5, pytest.approx(0.4)]


def test_running_measures_the_last_batches_or_refuses_lists_which_it_empties():
    for keep in (False, True):
        running = Running(one_value(keep_features=keep), window=2)
        for part in range(3):
            running(FEATURES[20 * part :][:20], LABELS[20 * part :][:20])
        if keep:
            with pytest.raises(ncscope.InputError, match=r"in Running.*leave keep_features out"):
                running.compute()
        else:
            assert running.compute().item() == pytest.approx(expect("nc1", slice(20, 60)))


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_one_logit_survives_a_state_dict():
    metric, other = (NeuralCollapse(2, D) for _ in range(2))
    metric.update(FEATURES, LABELS > 1, WEIGHT[:1], BIAS[:1])
    for each in (metric, other):
        each.persistent(True)
    other.load_state_dict(metric.state_dict())
    values = other.compute()
    assert values.keys() == metric.compute().keys()
    assert "mse_loss" not in values
    assert values["nc3_self_duality"] == metric.compute()["nc3_self_duality"]


def tracked(metric, **settings):
    tracker = MetricTracker(metric, **settings)
    for _ in range(2):
        tracker.increment()
        tracker.update(features=FEATURES, labels=LABELS)
    return tracker


def test_several_values_in_a_wrapper_for_one_say_what_to_do():
    for wrapper in (BootStrapper(empty(False), 2), MinMaxMetric(empty(False))):
        wrapper.update(FEATURES, LABELS)
        with pytest.raises(ncscope.InputError, match=r"for .*; pass key="):
            wrapper.compute()
    for metric in (empty(False), one_value()):
        with pytest.raises(ncscope.InputError, match=r"; leave ClasswiseWrapper out"):
            ClasswiseWrapper(metric)(FEATURES, LABELS)
    collection = MetricCollection([empty(False)])
    for refused in (tracked(empty(False), maximize=False), tracked(collection, maximize=[False])):
        assert refused.compute_all()["nc1"].tolist() == pytest.approx([expect("nc1")] * 2)
        with pytest.raises(ncscope.InputError, match=r"MetricTracker.*pass key="):
            refused.best_metric()
    assert tracked(collection, maximize=False).best_metric()["nc1"] == pytest.approx(expect("nc1"))
