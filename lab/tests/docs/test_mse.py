"""What the pages say of MSE's comparison of losses and of its law: from the run and the table."""

import re

from ncscope.data.digits import read_digit_pixels
from ncscope.data.generated import make_warped_digits
from ncscope_lab.experiments.mse.loss_comparison import COMPARABLE
from ncscope_lab.theory.table import STATEMENTS
from tests.docs.pages import ROOT, load_hook

abstracts, evidence, results = map(load_hook, ("abstracts", "evidence", "results"))
RUNS = evidence.read_runs(evidence.FIGURES)
SENTENCES = [one for one in abstracts.read_sentences() if one.paper == "MSE"]


def find_sentence(part: str) -> str:
    (sentence,) = (one for one in SENTENCES if part in one.text)
    return sentence


def test_the_margin_is_stated_in_held_out_images_and_with_the_seeds_that_would_decide():
    claim = results.find_claim("mse/loss-comparison", "as accurate on held-out images", RUNS)
    gain = float(re.search(r"gain in accuracy, mean of the seed ([\d.]+)", claim.evidence)[1])
    sizes = [len(made[1].pictures) for made in (read_digit_pixels(), make_warped_digits(1))]
    few, many = (round(COMPARABLE * gain * size) for size in sizes)
    margin = f"{COMPARABLE:.0%}".replace("%", " %")
    said = find_sentence("perform about as well").not_to_conclude
    page = " ".join((ROOT / "docs/experiments/mse.md").read_text().split())
    words = (
        f"{few} of the {sizes[0]} images that digits hold out, and {many} of the {sizes[1]:,} of"
    )
    for text in (said, page):
        assert f"margin of {margin} is {words} warped digits" in text
    assert f"about {claim.seeds_to_decide} seeds would decide" in said


def test_the_law_is_said_to_be_exact_for_the_orthogonal_projection_first():
    sentence = find_sentence("exact dynamics")
    first = sentence.not_to_conclude.partition(". ")[0]
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
