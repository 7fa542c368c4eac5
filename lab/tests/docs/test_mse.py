"""What the pages say of MSE's comparison of losses and of its law: from the run and the table."""

import math
import re
from typing import Any

from ncscope.data.digits import read_digit_pixels
from ncscope.data.generated import make_warped_digits
from ncscope_lab.experiments.mse import collapse, loss_comparison
from ncscope_lab.experiments.mse.loss_comparison import COMPARABLE
from ncscope_lab.experiments.mse.networks import PAPER
from ncscope_lab.theory.table import STATEMENTS
from ncscope_lab.training.optimisation import rate_factor
from ncscope_lab.training.settings import Training
from tests.docs.pages import ROOT, load_hook

abstracts, evidence, results = map(load_hook, ("abstracts", "evidence", "results"))
RUNS = evidence.read_runs(evidence.FIGURES)
PAGE = " ".join((ROOT / "docs/experiments/mse.md").read_text().split())
SENTENCES = [one for one in abstracts.read_sentences() if one.paper == "MSE"]


def find_sentence(part: str) -> Any:
    (sentence,) = (one for one in SENTENCES if part in one.text)
    return sentence


def test_the_margin_is_stated_in_held_out_images_and_with_the_seeds_that_would_decide():
    claim = results.find_claim("mse/loss-comparison", "as accurate on held-out images", RUNS)
    gain = float(re.search(r"gain in accuracy, mean of the seed ([\d.]+)", claim.evidence)[1])
    sizes = [len(made[1].pictures) for made in (read_digit_pixels(), make_warped_digits(1))]
    few, many = (round(COMPARABLE * gain * size) for size in sizes)
    margin = f"{COMPARABLE:.0%}".replace("%", " %")
    said = find_sentence("perform about as well").mind
    words = (
        f"{few} of the {sizes[0]} images that digits hold out, and {many} of the {sizes[1]:,} of"
    )
    for text in (said, PAGE):
        assert f"margin of {margin} is {words} warped digits" in text
    assert f"about {claim.seeds_to_decide} seeds would decide" in said


def test_the_law_is_said_to_be_exact_for_the_orthogonal_projection_first():
    sentence = find_sentence("exact dynamics")
    first = sentence.mind.partition(". ")[0]
    assert "(5)" in first
    assert "for the orthogonal projection the printed law is exact" in first
    page = abstracts.write_abstracts([sentence], evidence.theory_of(evidence.FIGURES), RUNS)
    assert "[`mse/corollary-1`][mse-corollary-1] holds (of the printed law)" in page


def test_remarks_are_of_statements_that_carry_the_sentence():
    for one in abstracts.read_sentences():
        assert set(one.remarks) <= {*one.statements}


def test_corollary_1_is_judged_under_the_algorithm_too():
    claims = [claim for claim in RUNS["small"]["mse/central-path"] if "corollary 1" in claim.source]
    verdicts = {claim.text: claim.verdict for claim in claims}
    (failed,) = (text for text, verdict in verdicts.items() if verdict != "held")
    assert "limit of the paper's algorithm" in failed
    (statement,) = (one for one in STATEMENTS if one.id == "mse/corollary-1")
    assert statement.statement.startswith("Under (9)")


def count_decay_times(training: Training, images: int) -> float:
    """Return how many decay times the weights of a run live."""
    how = training.optimisation
    steps = math.ceil(images / how.batch_size)
    rates = sum(how.learning_rate * rate_factor(how, epoch) for epoch in range(how.epochs))
    return steps * rates * how.weight_decay / (1 - how.momentum)


def test_the_decay_times_are_those_of_the_settings():
    assert round(count_decay_times(PAPER, 50_000)) == 17
    assert "in the paper about 17" in PAGE
    images = {"digits": 1437, "mnist-5k": 4000, "warped-digits": 2000}
    lived = {
        (one.data, one.network): count_decay_times(one, images[one.data])
        for one in collapse.SMALL.runs.values()
    }
    assert "live about two decay times, one in the DenseNet and on 5,000 digits of MNIST" in PAGE
    assert {name: round(times) for name, times in lived.items()} == {
        ("digits", "small-vgg"): 2,
        ("digits", "small-resnet"): 2,
        ("digits", "small-densenet"): 1,
        ("mnist-5k", "small-vgg"): 1,
    }
    decays = {
        one.optimisation.weight_decay / PAPER.optimisation.weight_decay
        for one in loss_comparison.SMALL.runs.values()
    }
    assert decays == {4}
    assert "it has four times the decay" in PAGE
