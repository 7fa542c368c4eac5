"""The metric of torchmetrics: what its own checks ask for, and the values of `measure`."""

import pickle
from itertools import product

import pytest
import torch
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.utilities.checks import check_forward_full_state_property

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
