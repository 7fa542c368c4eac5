"""Null tests: of exchanged or untrained values a claim holds in at most 4 of 40 draws.

Each test begins with results of which all claims hold. What claims take for granted, such as a
training error of zero, stays, because without it a claim is undecided whatever the other values.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from random import Random

import pytest
from lab.tests.experiments.info import stories as info
from lab.tests.experiments.models import stories as models
from lab.tests.experiments.mse import stories as mse
from lab.tests.experiments.pfc import stories as pfc
from lab.tests.experiments.story import Story
from lab.tests.experiments.vci import stories as vci
from lab.tests.experiments.xufm import stories as xufm

from ncscope.measurement.records import GeodesicRecord
from ncscope_lab.experiments.info.pruning import PRUNED
from ncscope_lab.experiments.vci.variability_runs import name_setting
from ncscope_lab.observations import Observation, Results

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("unchecked_signatures")]
DRAWS, MOST, NOISE = 40, 4, 0.03
AXES = {"omega", "sparsity", "num_classes", "size", "time", "minimum"}
"""Keys of what is no measured value."""
Key = Callable[[Observation], object]


def is_of_training(row: Observation, key: str) -> bool:
    """Without zero training error nothing past it is judged, nor without fooled networks."""
    return (row.split.startswith("train") and key == "accuracy") or key == "fooled"


@dataclass(frozen=True)
class Null:
    """Rules by which values of a story are exchanged, and what may hold of them.

    Attributes:
        story: The story.
        kept: Function that selects the values that stay.
        group: Function of the rows among which a metric's values are exchanged; default all rows.
        start: Function of the rows whose first value is that of an untrained network.
        alike: Metrics that are compared with each other, and so exchanged with each other.
        before: Values of an untrained network, where the story has none.
        true: Parts of the claims that hold of what stays, each with the reason.
        about: Parts of the claims that are counted; default all claims.
        changes: Names of the changes.
    """

    story: Story
    kept: Callable[[Observation, str], bool] = is_of_training
    group: Key = lambda row: ""
    start: Key = lambda row: (row.part, row.split, row.layer)
    alike: Sequence[str] = ()
    before: Mapping[str, float] = field(default_factory=dict)
    true: Mapping[str, str] = field(default_factory=dict)
    about: Sequence[str] = ("",)
    changes: Sequence[str] = ("exchanged", "untrained")

    def places(self, rows: Sequence[Observation]) -> list[tuple[int, str]]:
        """List index and key of the values that do not stay."""
        return [
            (at, key)
            for at, row in enumerate(rows)
            for key, value in row.values.items()
            if isinstance(value, float) and key not in AXES and not self.kept(row, key)
        ]


def is_no_metric(row: Observation, key: str) -> bool:
    """Settings and closed forms stay."""
    return key.endswith("_decay") or key in ("transport", "stated_mean_share")


def near(value: float, random: Random) -> float:
    """Change a value by a few per cent; shares stay shares."""
    changed = value * exp(random.gauss(0, NOISE))
    return min(changed, 1.0) if 0 <= value <= 1 else changed


def exchanged(null: Null, results: Results, random: Random) -> Results:
    """Exchange every metric's values among the rows of a group, and the points of each line."""
    rows, groups = list(results), {}
    for at, key in null.places(rows):
        name = "alike" if key in null.alike else key
        groups.setdefault((name, null.group(rows[at])), []).append((at, key))
    for own in groups.values():
        values = random.sample([float(rows[at][key]) for at, key in own], len(own))
        for (at, key), value in zip(own, values, strict=True):
            rows[at] = rows[at].with_values({key: near(value, random)})
    return with_lines(rows, results, lambda curve: random.sample(curve, len(curve)))


def untrained(null: Null, results: Results, random: Random) -> Results:
    """Every value as at the start, but for a few per cent."""
    rows, first = list(results), {}
    for at, key in null.places(rows):
        start = first.setdefault((null.start(rows[at]), key), float(rows[at][key]))
        start = null.before.get(key, start)
        rows[at] = rows[at].with_values({key: near(start, random)})
    return with_lines(rows, results, lambda curve: [near(curve[0], random) for _ in curve])


def drawn(null: Null, results: Results, random: Random) -> Results:
    """Every value as of a random point: of any size up to ten."""
    rows = list(results)
    for at, key in null.places(rows):
        rows[at] = rows[at].with_values({key: 10 ** random.uniform(-2, 1)})
    return Results(rows)


def with_lines(
    rows: Sequence[Observation], results: Results, change: Callable[[list[float]], list[float]]
) -> Results:
    """The rows, and the measurements with the curves of every straight line changed."""

    def changed(line: GeodesicRecord) -> GeodesicRecord:
        own = {key: change(getattr(line, key)) for key in ("pfc1", "pfc2", "pfc3")}
        return replace(line, **own)

    measurements = [
        replace(each, model_record=replace(each.model_record, geodesic=changed(line)))
        for each in results.measurements
        if (line := each.model_record.geodesic) is not None
    ]
    return Results(rows, measurements or results.measurements)


KNOWN = "every network has zero training error before the last epoch"
FOOLED = "every perturbation of DeepFool changes the decision"
STAYS = {KNOWN: "training errors stay", FOOLED: "what fools stays"}
NULLS: Mapping[str, Null] = {
    "info/training": Null(info.TRAINING, group=lambda row: (row.part, row.split)),
    "info/connectivity, between all": Null(
        info.CONNECTIVITY, kept=lambda row, key: "omega" not in row, changes=["exchanged"]
    ),
    "info/connectivity, between the runs": Null(
        info.CONNECTIVITY,
        kept=lambda row, key: row.get("omega") in (None, 0.0, 1.0),
        before={"accuracy": 0.1, "mir": 0.05, "hdr": 0.9, "mir_batch": 0.3, "hdr_batch": 0.9},
        true={"random guessing": "untrained networks guess"},
        changes=["untrained"],
    ),
    "info/grokking": Null(
        info.GROKKING,
        group=lambda row: (row.part, row.split),
        true={info.BY_HEART: "untrained accuracies are those of chance"},
    ),
    "info/grokking, ratios": Null(
        info.GROKKING,
        kept=lambda row, key: key.startswith("accuracy"),
        group=lambda row: (row.part, row.split),
        about=("MIR", "HDR"),
    ),
    "info/pruning": Null(
        info.PRUNING, kept=lambda row, key: row["stage"] == PRUNED and row["sparsity"] == 0
    ),
    "info/label-smoothing": Null(info.SMOOTHING),
    "info/supervised": Null(info.SUPERVISED),
    "info/semi-supervised": Null(
        info.SEMI_SUPERVISED, group=lambda row: info.FEW_LABELS.runs[row.part].labels
    ),
    "mse/collapse": Null(mse.COLLAPSE, true=STAYS),
    "mse/collapse, exceptions": Null(mse.OF_EXCEPTIONS, true=STAYS),
    "mse/decomposition": Null(
        mse.DECOMPOSITION, alike=("mse_nc1", "mse_nc23", "mse_off_path"), true=STAYS
    ),
    "mse/loss-comparison": Null(mse.COMPARISON, true=STAYS),
    "mse/robustness": Null(mse.ROBUSTNESS, true=STAYS),
    **{
        f"{name}, premises": Null(
            story,
            kept=lambda row, key: not is_of_training(row, key),
            about=(KNOWN, FOOLED),
            changes=["exchanged"],
        )
        for name, story in {
            "mse/collapse": mse.COLLAPSE,
            "mse/loss-comparison": mse.COMPARISON,
            "mse/robustness": mse.ROBUSTNESS,
        }.items()
    },
    "pfc/training": Null(pfc.TRAINING, group=lambda row: row.part.split(",")[0]),
    "pfc/demo": Null(pfc.DEMO, kept=lambda row, key: False, changes=["exchanged"]),
    "pfc/demo, last layer": Null(
        pfc.DEMO, about=("NC1", "NC2", "NC3", "NC4"), changes=["untrained"]
    ),
    "pfc/demo, layers": Null(
        pfc.DEMO, group=lambda row: row.epoch, about=("PFC",), changes=["exchanged"]
    ),
    "vci/training": Null(
        vci.TRAINING,
        group=lambda row: (row.part, row.split),
        true={"of the largest eigenvalue changes": "they are of the metrics, trained or not"},
    ),
    "vci/imagenet": Null(vci.IMAGENET, group=lambda row: (row.part, row.split)),
    "vci/transfer": Null(
        vci.TRANSFER,
        kept=lambda row, key: False,
        group=lambda row: (name_setting(row.part).rpartition(" ")[0], row.part[-1], row.split),
        start=lambda row: (name_setting(row.part).rpartition(" ")[0], row.split),
        true={"held-out accuracy in pretraining differs": "the paper's are alike in any order"},
    ),
    "xufm/network": Null(
        xufm.NETWORK,
        group=lambda row: row.part.rsplit(",", 1)[0],
        true={xufm.STAYS: "training errors stay"},
    ),
    "xufm/extended": Null(xufm.EXTENDED),
    "xufm/ufm": Null(models.XUFM, kept=is_no_metric, changes=["drawn"]),
    "pfc/mufm": Null(models.MUFM, changes=["exchanged"]),
    "pfc/mufm, drawn": Null(models.MUFM, kept=is_no_metric, changes=["drawn"]),
    "central-path": Null(models.CENTRAL_PATH, changes=["drawn"]),
    "landscape": Null(models.LANDSCAPE, changes=["drawn"]),
    "perturbed": Null(models.PERTURBED, group=lambda row: row["seed"]),
}


@pytest.mark.parametrize(
    ("name", "change"), [(name, change) for name, null in NULLS.items() for change in null.changes]
)
def test_claims_seldom_hold_of_nothing(
    name: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    null = NULLS[name]
    for patch in null.story.patches:
        monkeypatch.setattr(*patch)
    alter = {"exchanged": exchanged, "untrained": untrained, "drawn": drawn}[change]
    real, held = null.story.tell(), Counter()
    for draw in range(DRAWS):
        claims = null.story.judge(alter(null, real, Random(draw)))
        counted = [claim for claim in claims if any(part in claim.text for part in null.about)]
        held.update(claim.text for claim in counted if claim.held)
    often = {text: count for text, count in held.items() if count > MOST}
    assert not [text for text in often if not any(part in text for part in null.true)], often
