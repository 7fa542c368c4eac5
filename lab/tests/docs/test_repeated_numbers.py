"""Numbers that sentences on PFC and XUFM repeat in words are those of the committed evidence."""

import re

from ncscope_lab.experiments.pfc.training import SMALL
from tests.docs.pages import ROOT, load_hook

abstracts, evidence, results = map(load_hook, ("abstracts", "evidence", "results"))
RUNS = evidence.read_runs(evidence.FIGURES)
SENTENCES = abstracts.read_sentences()
PAGE = " ".join((ROOT / "docs/experiments/pfc-training.md").read_text().split())
NUMBER = r"-?\d+(?:\.\d+)?"


def told(name: str, part: str) -> str:
    return results.find_claim(name, part, RUNS).evidence


def sentence(start: str) -> str:
    """What the page says of a sentence of an abstract."""
    (found,) = (each for each in SENTENCES if each.text.startswith(start))
    return " ".join(" ".join([*found.numbers.values(), found.mind]).split())


def seeds(evidence: str, what: str) -> list[float]:
    """Values of the seeds, of a group or of what is not counted."""
    values = re.search(rf"{what}.*?seeds\): ((?:{NUMBER}(?:, )?)+)", evidence)
    assert values is not None, evidence
    return [float(each) for each in values[1].split(", ") if each]


def test_an_order_of_pfc1_in_all_seeds():
    part = "digits: at the end PFC1 falls from layer to layer before"
    values = seeds(told("pfc/training", part), "order")
    assert values == [-1.0] * 8
    estimate = results.find_claim("pfc/training", part, RUNS).groups["order"].interval.estimate
    said = f"is -1 in {len(values)} of {len(values)} seeds, and -1 counts as {estimate:.2f}"
    assert said in sentence("We conjecture that the degree of collapse increases")
    assert f"of -1 is printed as {estimate:.2f}" in PAGE


def test_the_order_of_pfc2_on_digits_comes_and_goes():
    claim = told("pfc/training", "digits: at the end PFC2 falls from layer to layer before")
    at_end, best = seeds(claim, "order"), seeds(claim, "strongest order")
    epochs = re.search(r"first reached at (epochs \d+ to \d+)", claim)
    assert epochs is not None
    said = f"-1 in {best.count(-1.0)} of {len(best)} seeds"
    last = max(run.optimisation.epochs for run in SMALL.runs.values() if run.data == "digits")
    abstract = sentence("We conjecture that the degree of collapse increases")
    assert f"{said} at some epoch, first at {epochs[1]}" in abstract
    assert f"at the end, epoch {last:,}, in {at_end.count(-1.0)} of {len(at_end)}" in abstract
    assert f"{said}, first at {epochs[1]}" in PAGE


def test_pfc2_of_the_last_layer_rises_on_digits_while_pfc1_falls():
    before = "digits: past zero training error PFC{} of the last layer"
    pfc1, pfc2 = (
        results.find_claim("pfc/training", before.format(at), RUNS).interval for at in (1, 2)
    )
    assert pfc1.high < 1 < pfc2.low
    assert "rises on digits while PFC1 falls" in sentence("In the last phase of training")


def test_training_leaves_the_paper_s_network_as_straight_as_it_was():
    interval = results.find_claim(
        "pfc/training", "mnist-5k: training makes paths straighter", RUNS
    ).interval
    assert interval.low < 1 < interval.high
    assert "paths end as straight as they began" in sentence("A network with weight decay")
    controls = {
        run.data: run.seed for run in SMALL.runs.values() if run.optimisation.weight_decay == 0
    }
    assert set(controls) == {"digits", "patterns"}


def test_the_premises_on_patterns_hang_on_one_seed():
    claim = told("pfc/training", "patterns: the premises of theorem 1")
    cosines = [float(each) for each in re.findall(rf"least cosine ({NUMBER})", claim)]
    below = [each for each in cosines if each <= 0]
    assert f"one of {len(cosines)} seeds, whose least cosine is {below[0]:.3g}" in PAGE
    assert len(below) == 1
    assert "class means: in 7 of 8 runs" in claim
    groups = results.find_claim("pfc/training", "patterns: the premises", RUNS).groups
    assert groups["collapse"].interval.high < 0.1


def test_training_error_comes_back():
    told_each = [
        told("xufm/network", f"{loss}: zero training error stays")
        for loss in ("MSE, no bias", "CE, bias")
    ]
    form = r"in (\d+) of (\d+) networks, at epochs (\d+) to (\d+).*at (\d+) of (\d+) measurements"
    found = [re.search(form, each) for each in told_each]
    numbers = [[int(each) for each in one.groups()] for one in found if one]
    (back, of), (first, last) = (
        map(sum, zip(*(each[:2] for each in numbers), strict=True)),
        (min(each[2] for each in numbers), max(each[3] for each in numbers)),
    )
    abstract = sentence("Networks are trained past zero error")
    assert f"came back in {back} of {of} runs between epochs {first} and {last}" in abstract
    assert sum(each[5] - each[4] for each in numbers) <= 1  # the loss rises nearly everywhere


def test_the_models_beside_the_networks():
    claim = told("xufm/network", "MSE, no bias: the fall of NC1 at the first level")
    models = re.search(rf"Linear ({NUMBER}), ReLU ({NUMBER})", claim)
    assert models is not None
    linear, relu = models.groups()
    abstract = sentence("The nonlinear model is a useful model")
    assert f"{relu} in the ReLU model, {linear} in the linear one" in abstract
    assert f"less than {(float(linear) + float(relu)) / 2:.2f} of the decades passes" in abstract
    networks = [
        results.find_claim("xufm/network", f"{loss}: the fall of NC1 at the first", RUNS).interval
        for loss in ("MSE, no bias", "CE, bias")
    ]
    assert max(each.high for each in networks) < float(relu) / 2
    models_differ = results.find_claim("xufm/extended", "the levels differ more in the rate", RUNS)
    assert models_differ.interval.high < 0


def test_the_price_of_a_lost_sample_fails_from_one_start():
    claim = told("xufm/extended", "every start ends above the value of the collapsed point")
    near = re.match(r"(\d+) of (\d+) starts; ", claim)
    assert near is not None
    assert int(near[1]) == int(near[2]) - 1
    assert claim.count("not from") == 1
