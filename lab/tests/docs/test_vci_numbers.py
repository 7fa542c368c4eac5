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
    expected = []
    for group in ("temperature", "cosine penalty"):
        settings = sorted(value for name, value in told if name == group)
        # Less variation first: VCI falls with the temperature, and rises with the penalty.
        ends = (settings[0], settings[-1])[:: 1 if group == "cosine penalty" else -1]
        expected += [f"{told[group, value][at]:.0f}" for at in (2, 1) for value in ends]
    ours = PAGE.partition("## What our run says")[2].partition("## ")[0]
    for text in (mind("Earlier studies"), mind("how well pretrained networks"), ours):
        assert re.findall(r"(\d+) %", text) == expected
    assert all(trained >= 99.9 for trained, _, _ in told.values())
    for text in (mind("Earlier studies"), ours):
        assert "right on nearly all of its" in " ".join(text.replace("their", "its").split())
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
