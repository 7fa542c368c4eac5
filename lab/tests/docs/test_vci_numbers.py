"""Numbers that VCI's pages type: they are those of the evidence."""

import re

from ncscope_lab.experiments.vci.published import TEMPERATURES
from tests.docs.pages import ROOT, load_hook

abstracts, results = map(load_hook, ("abstracts", "results"))
RUNS = results.read_runs(results.FIGURES)
MINDS = {one.text: one.mind for one in abstracts.read_sentences() if one.paper == "VCI"}
PAGE = (ROOT / "docs" / "experiments" / "vci-transfer.md").read_text()


def mind(part: str) -> str:
    """Text beside the sentence with this part."""
    (text,) = (text for sentence, text in MINDS.items() if part in sentence)
    return text


def test_accuracies_in_pretraining_and_of_probes():
    evidence = results.find_claim(
        "vci/transfer", "held-out accuracy in pretraining differs", RUNS
    ).evidence
    found = re.findall(r"([a-z ]+) ([\d.]+): ([\d.]+), ([\d.]+) and ([\d.]+) %", evidence)
    told = {
        (name.strip(), float(value)): [float(each) for each in percent]
        for name, value, *percent in found
    }
    temperatures = sorted(value for name, value in told if name == "temperature")
    ends = [told["temperature", value] for value in (temperatures[-1], temperatures[0])]
    (penalties,) = {
        f"{held_out:.0f}" for (name, _), (_, held_out, _) in told.items() if "penalty" in name
    }
    expected = [*(f"{each[at]:.0f}" for at in (1, 2) for each in ends), penalties]
    ours = PAGE.partition("## What our run says")[2].partition("## ")[0]
    for text in (mind("Earlier studies"), mind("how well pretrained networks"), ours):
        assert re.findall(r"(\d+) %", text) == expected
    assert all(trained == 100 for trained, _, _ in told.values())
    assert "right on all of its training images" in " ".join(ours.split())
    printed = f"falls by {TEMPERATURES[1.0].accuracy - TEMPERATURES[0.1].accuracy:.1f} points"
    for text in (mind("how well pretrained networks"), ours):
        assert printed in " ".join(text.split())


def test_levels_of_vci():
    places = [
        ("vci/training", "VCI falls over training, in every setting", "step decay"),
        ("vci/imagenet", "VCI falls over training, in every transformer", "transformer"),
        ("vci/imagenet", "VCI falls on held-out images", "CE"),
    ]
    expected = []
    for name, part, group in places:
        evidence = results.find_claim(name, part, RUNS).evidence.partition(f"{group}: ")[2]
        pattern = r"vci at the first measurement ([\d.]+), vci at the end[^\d]* ([\d.]+)"
        levels = re.search(pattern, evidence)
        assert levels is not None
        expected += [f"{float(each):.2f}" for each in levels.groups()]
    assert re.findall(r"\d\.\d\d", mind("VCI indicates variability collapse")) == expected
