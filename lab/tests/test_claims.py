"""Intervals and verdicts: closed forms, the rule at its borders, and coverage."""

import json
from dataclasses import replace
from math import atanh, exp, inf, isclose, isnan, log, nan, tanh

import numpy as np
import pytest
from scipy import stats

from ncscope_lab.claims import (
    Claim,
    Region,
    above,
    below,
    decide,
    judge,
    judge_groups,
    judge_mean,
    judge_share,
    within,
)
from ncscope_lab.findings import Finding, tally
from ncscope_lab.intervals import (
    SHARE,
    mean_interval,
    seeds_to_decide,
    share_interval,
    smallest_effect,
)
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import Quantity, Run, Runs, first, last


def test_the_interval_of_three_values_is_students() -> None:
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval is not None
    quantile = 0.95 * (2 / (4 * 0.975 * 0.025)) ** 0.5  # closed form for two degrees of freedom
    half = quantile / 3**0.5
    assert isclose(interval.low, 2 - half, rel_tol=1e-12)
    assert isclose(interval.high, 2 + half, rel_tol=1e-12)
    assert (interval.estimate, interval.count, interval.method) == (2.0, 3, "t")


def test_ten_values_of_which_one_differs_decide_nothing() -> None:
    claim = judge_mean("a rises", source="ours", values=[0.0] * 9 + [1.0], region=below(0.5))
    assert claim.verdict == "undecided"
    assert claim.interval is not None
    assert claim.interval.high == inf
    assert claim.record()["interval"]["high"] is None
    ratios = mean_interval([1.0] * 9 + [2.0], scale="ratio")
    assert ratios is not None
    assert (ratios.low > 0, ratios.high) == (True, inf)


def test_ratios_are_judged_on_logarithms() -> None:
    plain = mean_interval([log(2.0), log(8.0)])
    ratios = mean_interval([2.0, 8.0], scale="ratio")
    assert plain is not None
    assert ratios is not None
    assert isclose(ratios.estimate, 4.0)
    assert isclose(ratios.low, exp(plain.low))
    assert isclose(ratios.high, exp(plain.high))
    assert mean_interval([2.0, 0.0], scale="ratio") is None


@pytest.mark.parametrize("values", [[], [1.0], [1.0, nan], [1.0, inf]])
def test_no_interval_and_no_verdict_without_two_finite_values(values: list[float]) -> None:
    assert mean_interval(values) is None
    claim = judge_mean("a rises", source="ours", values=values, region=above(-9.0))
    assert claim.verdict == "undecided"
    assert "fewer than two finite values" in claim.evidence


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.1, 0.2, "held"),
        (-0.2, -0.1, "not held"),
        (-0.1, 0.1, "undecided"),
        (0.0, 0.1, "undecided"),
        (-0.1, 0.0, "undecided"),
    ],
)
def test_the_border_inside_the_interval_leaves_a_claim_undecided(
    low: float, high: float, verdict: str
) -> None:
    assert above(0.0).verdict(low, high) == verdict
    mirrored = {"held": "not held", "not held": "held"}.get(verdict, verdict)
    assert below(0.0).verdict(low, high) == mirrored


def test_equality_needs_the_whole_interval_within_its_margin() -> None:
    assert within(1.0) == Region(-1.0, 1.0)
    assert within(1.0).verdict(-0.5, 0.5) == "held"
    assert within(1.0).verdict(2.0, 3.0) == "not held"
    assert within(1.0).verdict(-3.0, -2.0) == "not held"
    assert within(1.0).verdict(-2.0, 2.0) == "undecided"
    assert within(1.0).verdict(0.5, 2.0) == "undecided"


@pytest.mark.parametrize("count", [2, 3, 10])
def test_values_all_alike_decide_nothing(count: int) -> None:
    assert mean_interval([0.5] * count) is None
    claim = judge_mean("a rises", source="ours", values=[0.5] * count, region=above(0.0))
    assert claim.verdict == "undecided"
    assert "no interval from values that are all alike" in claim.evidence


@pytest.mark.parametrize("count", [2, 3, 10])
def test_coarse_values_spread_at_least_as_rounding_does(count: int) -> None:
    uniform = np.random.default_rng(0).uniform(-0.05, 0.05, 100_000).std()
    interval = mean_interval([0.8] * count, step=0.1)
    assert interval is not None
    assert interval.method == "t"
    quantile = stats.t.ppf(0.975, count - 1)
    assert isclose(interval.high - 0.8, quantile * uniform / count**0.5, rel_tol=0.01)
    wide = [0.5, 0.9, 0.7]
    assert mean_interval(wide, step=0.1) == mean_interval(wide)


@pytest.mark.parametrize(
    "count", [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (10, 20))]
)
def test_one_interval_in_twenty_misses_the_mean(count: int) -> None:
    draws = np.random.default_rng(0).normal(size=(1000, count))
    intervals = [mean_interval(draw.tolist()) for draw in draws]
    missed = np.mean([not (each and each.low < 0 < each.high) for each in intervals])
    assert 0.03 < missed < 0.07  # three standard errors
    assert {each.method for each in intervals if each} == {"t" if count < 10 else "bootstrap"}


def test_correlations_are_judged_on_fishers_z() -> None:
    plain = mean_interval([atanh(0.2), atanh(0.9)])
    fisher = mean_interval([0.2, 0.9], scale="correlation")
    assert plain is not None
    assert fisher is not None
    for end in ("estimate", "low", "high"):
        assert isclose(getattr(fisher, end), tanh(getattr(plain, end)))
    assert fisher.scale == "correlation"


def test_a_perfect_correlation_counts_as_half_a_step_less() -> None:
    values = [1.0, 0.9, 0.8]
    claim = judge_mean("a", source="ours", values=values, region=above(0), scale="correlation")
    assert claim.verdict == "undecided"
    assert "no interval from a correlation of exactly 1 or -1" in claim.evidence
    inside = mean_interval([0.95, 0.9, 0.8], scale="correlation")
    assert mean_interval(values, scale="correlation", step=0.1) == inside
    mirrored = mean_interval([-1.0, -0.9, -0.8], scale="correlation", step=0.1)
    assert inside is not None
    assert mirrored is not None
    assert isclose(mirrored.low, -inside.high)


def test_perfect_correlations_that_agree_spread_as_coarse_ones_do() -> None:
    interval = mean_interval([1.0, 1.0, 1.0], scale="correlation", step=0.1)
    assert interval is not None
    rounding = 0.1 / 12**0.5 / (1 - 0.95**2)
    half = stats.t.ppf(0.975, 2) * rounding / 3**0.5
    assert isclose(interval.low, tanh(atanh(0.95) - half))
    assert isclose(interval.high, tanh(atanh(0.95) + half))


@pytest.mark.slow
def test_fishers_interval_of_correlations_misses_one_mean_in_twenty() -> None:
    draws = np.random.default_rng(0)
    first = draws.normal(size=(1000, 3, 6))
    second = 0.9 * first + 0.19**0.5 * draws.normal(size=first.shape)
    pairs = zip(first.reshape(-1, 6), second.reshape(-1, 6), strict=True)
    drawn = np.array([np.corrcoef(*pair)[0, 1] for pair in pairs])
    mean = tanh(np.arctanh(drawn).mean())
    samples = drawn.reshape(1000, 3).tolist()
    fisher = [mean_interval(values, scale="correlation") for values in samples]
    missed = np.mean([not (each and each.low < mean < each.high) for each in fisher])
    assert 0.03 < missed < 0.07  # three standard errors
    assert all(each and -1 < each.low < each.high < 1 for each in fisher)
    plain = [mean_interval(values) for values in samples]
    assert any(each and each.high > 1 for each in plain)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_an_interval_of_shares_cut_off_at_0_and_1_covers_no_less(share: float) -> None:
    drawn = np.random.default_rng(0).beta(20 * share, 20 * (1 - share), size=(400, 3)).tolist()
    plain = [mean_interval(values) for values in drawn]
    cut = [mean_interval(values, bounds=SHARE) for values in drawn]
    pairs = [(one, other) for one, other in zip(plain, cut, strict=True) if one and other]
    assert len(pairs) == 400
    assert all(0 <= other.low < other.high <= 1 for _, other in pairs)
    for one, other in pairs:
        assert (one.low < share < one.high) == (other.low < share < other.high)
        assert one.estimate == other.estimate
    assert any(one != other for one, other in pairs)


def of(verdict: bool | None) -> Finding:
    return decide("it falls", source="ours", held=verdict, evidence="1 to 2")


@pytest.mark.parametrize(
    ("verdicts", "enough", "expected"),
    [
        ([True, True], None, "held"),
        ([True, False], None, "not held"),
        ([True, None], None, "undecided"),
        ([False, None], None, "not held"),
        ([True, True, False], 2, "held"),
        ([True, None, False], 2, "undecided"),
        ([True, False, False], 2, "not held"),
        ([], None, "undecided"),
    ],
)
def test_several_networks(verdicts: list[bool | None], enough: int | None, expected: str) -> None:
    findings = {f"network {index}": of(verdict) for index, verdict in enumerate(verdicts)}
    claim = judge_groups("it falls", source="ours", findings=findings, enough=enough)
    assert claim.verdict == expected
    assert claim.evidence.startswith(f"{verdicts.count(True)} of {len(verdicts)} networks held")


def test_a_record_is_strict_json_and_a_tally_counts() -> None:
    claim = judge_mean("a rises", source="VCI, figure 2", values=[1.0, 1.1], region=above(0.0))
    record = json.loads(json.dumps(claim.record(), allow_nan=False))
    assert record["source"] == "VCI, figure 2"
    assert record["verdict"] == claim.verdict
    assert record["interval"]["count"] == 2
    assert of(True).record()["interval"] is None
    assert str(tally([of(True), of(None), of(False)])) == "1/3, 1 undecided"


@pytest.mark.parametrize(
    ("hits", "verdict"),
    [(10, "held"), (9, "held"), (8, "undecided"), (2, "undecided"), (1, "not held")],
)
def test_verdicts_of_ten_trials(hits: int, verdict: str) -> None:
    trials = [True] * hits + [False] * (10 - hits)
    claim = judge_share("it arrives", source="ours", hits=trials, more="more")
    assert claim.verdict == verdict
    assert claim.evidence.startswith(f"{hits} of 10 starts, 95 % interval of the share 0.")
    assert "; more" in claim.evidence


def test_the_interval_is_clopper_and_pearson_s() -> None:
    claim = judge_share("it arrives", source="ours", hits=[True] * 10, of="runs")
    assert "10 of 10 runs, 95 % interval of the share 0.69 to 1.00" in claim.evidence
    assert claim.interval is not None
    assert isclose(claim.interval.low, 0.025**0.1)  # at which all ten come out in 2.5 % of cases
    assert (claim.interval.high, claim.interval.method) == (1.0, "binomial")


def test_no_trials_decide_nothing() -> None:
    assert judge_share("it arrives", source="ours", hits=[]).verdict == "undecided"


def draw_means(mean: float, count: int, draws: int = 2000) -> list[bool]:
    """Repetitions whose interval excludes 0, for values of this mean and spread 1."""
    drawn = np.random.default_rng(0).normal(mean, size=(draws, count)).tolist()
    intervals = [mean_interval(values) for values in drawn]
    return [each is not None and each.low > 0 for each in intervals]


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 8])
def test_the_smallest_effect_shows_in_four_of_five_repetitions(count: int) -> None:
    values = np.random.default_rng(1).normal(size=count)
    values = (values - values.mean()) / values.std(ddof=1)  # spread 1
    effect = smallest_effect(values.tolist(), 0.0, 1, "plain")
    assert 0.75 < np.mean(draw_means(effect, count)) < 0.85
    assert smallest_effect(values.tolist(), 0.0, -1, "plain") == -effect
    ratios = smallest_effect(np.exp(values).tolist(), 1.0, 1, "ratio")
    assert isclose(ratios, exp(effect), rel_tol=1e-9)


@pytest.mark.slow
def test_so_many_seeds_decide_in_four_of_five_repetitions() -> None:
    values = [1.5, 0.3, -0.9]
    needed = seeds_to_decide(values, 0.0, "plain")
    assert needed is not None
    shown = draw_means(np.mean(values) / np.std(values, ddof=1), needed, draws=400)
    assert 0.75 < np.mean(shown) < 0.85
    assert seeds_to_decide([1e-4, 1.0, -1.0], 0.0, "plain") is None
    assert seeds_to_decide([1.0, 0.2, -0.5], 0.0, "correlation") is None
    # A correlation of exactly 1 counts as half a step less, as in the interval.
    coarse = seeds_to_decide([1.0, 0.7, -0.2], 0.0, "correlation", step=0.1)
    assert coarse == seeds_to_decide([0.95, 0.7, -0.2], 0.0, "correlation")


def test_a_finding_says_what_would_have_shown_or_decided() -> None:
    undecided = judge_mean("a", source="ours", values=[1.5, 0.3, -0.9], region=above(0.0))
    assert undecided.seeds_to_decide == seeds_to_decide([1.5, 0.3, -0.9], 0.0, "plain")
    assert f"about {undecided.seeds_to_decide} seeds would decide" in undecided.evidence
    against = judge_mean("a", source="ours", values=[-1.0, -1.1, -1.2], region=above(0.0))
    assert against.verdict == "not held"
    assert against.detectable == smallest_effect([-1.0, -1.1, -1.2], 0.0, 1, "plain")
    assert "would have shown" in against.evidence
    held = judge_mean("a", source="ours", values=[1.0, 1.1, 1.2], region=above(0.0))
    assert (held.detectable, held.seeds_to_decide) == (None, None)


def test_a_claim_of_equality_says_which_mean_would_have_shown_if_one_could() -> None:
    values = [1.0, 1.1, 1.2]
    for sign in (1, -1):
        own = [sign * value for value in values]
        wide = judge_mean("a", source="ours", values=own, region=within(0.5))
        assert wide.verdict == "not held"
        assert wide.detectable == smallest_effect(own, sign * 0.5, -sign, "plain")
        assert abs(wide.detectable or 1) < 0.5
        narrow = judge_mean("a", source="ours", values=own, region=within(0.01))
        assert (narrow.verdict, narrow.detectable) == ("not held", None)
        assert "no mean would have shown with 3 seeds" in narrow.evidence


def test_no_mean_beyond_the_bounds_would_have_shown() -> None:
    values = [0.5, 0.6, 0.7]
    effect = smallest_effect(values, 0.95, 1, "plain")
    assert effect > 1
    free = judge_mean("a", source="ours", values=values, region=above(0.95))
    share = judge_mean("a", source="ours", values=values, region=above(0.95), bounds=SHARE)
    assert (free.verdict, free.detectable) == ("not held", effect)
    assert (share.verdict, share.detectable) == ("not held", None)
    assert share.write_power() == "no mean would have shown with 3 seeds"
    assert share.evidence.endswith("; no mean would have shown with 3 seeds")


def test_groups_have_a_power_each() -> None:
    def judge_values(*values: float) -> Finding:
        return judge_mean("a", source="ours", values=values, region=above(0.0), of="pairs")

    findings = {
        "a": judge_values(1.0, 1.1, 1.2),
        "b": judge_values(-1.0, -1.1, -1.2),
        "c": judge_values(1.0, 2.0, -0.5),
        "d": judge_values(0.001, 2.0, -2.0),
    }
    grouped = judge_groups("a", source="ours", findings=findings)
    detectable = findings["b"].detectable
    assert {name: each.write_power() for name, each in grouped.groups.items()} == {
        "a": "",
        "b": f"a mean of {detectable:.3g} would have shown",
        "c": "about 20 pairs would decide",
        "d": "about a thousand or more pairs would decide",
    }
    record = grouped.record()["groups"]["b"]
    assert (record["verdict"], record["of"]) == ("not held", "pairs")
    assert record["detectable"] == detectable
    assert record["estimate"] == pytest.approx(-1.1)


def test_undecided_shares_and_groups_say_how_many_would_decide() -> None:
    share = judge_share("a", source="ours", hits=[True] * 7 + [False] * 3)
    needed = share.seeds_to_decide
    assert needed is not None
    assert f"about {needed} starts would decide" in share.evidence
    assert share_interval([True] * 7 + [False] * 3).low < 0.5
    ends = [
        share_interval([True] * round(0.7 * n) + [False] * (n - round(0.7 * n))).low
        for n in (needed - 1, needed)
    ]
    assert ends[0] <= 0.5 < ends[1]
    means = [
        judge_mean("a", source="ours", values=values, region=above(0.0))
        for values in ([1.5, 0.3, -0.9], [1.0, 2.0, -0.5], [1.0, 1.1, 1.2])
    ]
    assert [each.verdict for each in means] == ["undecided", "undecided", "held"]
    groups = judge_groups("a", source="ours", findings=dict(zip("abc", means, strict=True)))
    assert groups.seeds_to_decide == max(int(each.seeds_to_decide or 0) for each in means[:2])
    one_open = judge_groups("a", source="ours", findings={"a": means[0], "b": of(None)})
    assert (one_open.verdict, one_open.seeds_to_decide) == ("undecided", None)
    enough = judge_groups("a", source="ours", findings={"a": means[0], "b": means[2]}, enough=1)
    assert (enough.verdict, enough.seeds_to_decide) == ("held", None)


def make_runs(*pairs: tuple[float, float]) -> Runs:
    """Runs whose metric starts and ends at these values."""
    runs = Runs()
    runs._runs = [
        Run(
            f"run {index}",
            None,
            [
                Observation(epoch, epoch, "train", "last", f"run {index}", values={"nc1": value})
                for epoch, value in enumerate(pair)
            ],
            [],
            runs,
        )
        for index, pair in enumerate(pairs)
    ]
    return runs


def test_the_judge_tells_the_parts_of_a_quantity() -> None:
    runs = make_runs((8.0, 1.0), (2.0, 1.0))
    claim = Claim(text="a", source="ours", quantity=last("nc1") / first("nc1"), region=below(1))
    mean, geometric, each = judge(
        [claim, replace(claim, scale="ratio"), replace(claim, rule="each")], runs
    )
    assert mean.evidence.endswith("nc1 at the end 1, nc1 at the start 5 in the mean; about "
                                  f"{mean.seeds_to_decide} seeds would decide")  # fmt: skip
    assert "nc1 at the start 4 in the mean" in geometric.evidence
    assert "run 1: nc1 at the end over nc1 at the start 0.5, nc1 at the end 1" in each.evidence


def test_the_judge_names_a_quantity_that_was_not_measured() -> None:
    runs = make_runs((8.0, 1.0), (2.0, 1.0))
    whole = Claim(text="a", source="ours", quantity=last("nc9"), region=below(1))
    part = replace(whole, quantity=last("nc9") / first("nc1"))
    found = judge([whole, part], runs)
    assert [finding.verdict for finding in found] == ["undecided"] * 2
    assert found[0].evidence.endswith("nan, nan; nc9 at the end not measured")
    assert "nc9 at the end not measured, nc1 at the start 5" in found[1].evidence


def test_a_difference_and_a_ratio_of_quantities() -> None:
    (run,) = make_runs((8.0, 2.0))
    assert (last("nc1") - first("nc1"))(run) == -6
    assert (last("nc1") / first("nc1"))(run) == 0.25
    assert isnan((last("nc2") / first("nc1"))(run))
    double = Quantity("double", lambda run: 2 * last("nc1")(run))
    assert (double - last("nc1")).name == "double minus nc1 at the end"
