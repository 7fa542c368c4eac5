r"""Collapse in pretraining and transfer: VCI and three other metrics against ten downstream sets.

Source: VCI section 6.3, figure 7, tables 1 and 2. Command: ``ncscope reproduce vci/transfer``.

Two groups of networks are pretrained: one with softmax temperatures $\tau$ from 0.1 to 1, and one
with $\lambda$ times the average cosine similarity within classes added to the loss, with $\lambda$
from 2.5 to 10. Logistic regressions are fitted to their frozen features on other data sets.
Transfer is measured by MLOG, the mean log odds of the regressions' accuracies minus the log odds of
the pretraining accuracy.

The paper's scale trains ResNet-50 on ImageNet as in ``vci/imagenet``, with one seed, and measures
four metrics on 50,000 training images; the recipe has three seeds. The paper computes the penalty
on each of four devices with 256 images. The recipe computes it on 256 images at a time, so that its
effect does not depend on ``--devices``. Probes are on Pets,
Flowers, Aircraft, Cars, DTD, CIFAR-10, Food-101, CIFAR-100, Caltech-101 and SUN397.

The small scale trains a network of 384 features on ten generated classes, 2,000 images and 3,000
held out, from three seeds: 20 epochs of batches of 64, rate 0.01, decay 5e-4; the penalty is
computed on 32 images at a time. Probes are on five generated sets of other classes, with 3,000
held-out images each.

Results: 1 of 10 claims held, 4 not held, 5 undecided. MLOG varies by 0.04 over the settings and by
0.15 over the seeds; VCI rises with temperature and penalty, as training accuracy falls. Earlier
settings (32 features, five classes, 500 held-out images, three target sets) gave VCI a Pearson
coefficient with MLOG of 0.17 over the temperatures, with a seed's sign negative twice out of three,
and of 0.99 over the penalties.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pydantic import BaseModel, ConfigDict, Field

from ncscope.data.catalogue import TRANSFER_TARGETS
from ncscope.lab.evidence.judging import Region, above, below, combined, judged
from ncscope.lab.observations import Observation
from ncscope.lab.papers.vci.checkpoints import (
    GROUPS,
    PENALTY,
    TEMPERATURE,
    Checkpoint,
    Group,
    Quantity,
    by_seed,
    checkpoints,
    gain,
    log_odds,
    metric,
    over_seeds,
    pearson,
    pretrained,
    printed,
    probed,
)
from ncscope.lab.papers.vci.imagenet import RECIPE as IMAGENET
from ncscope.lab.papers.vci.probes import transfer_events
from ncscope.lab.papers.vci.published import DOWNSTREAM, REGULARISED, TEMPERATURES
from ncscope.lab.papers.vci.transfer_figures import odds_figure, scatter_figure
from ncscope.lab.papers.vci.variability import (
    COLUMNS,
    METRICS,
    SMALL_DESCENT,
    medium_training,
    seeded,
)
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.training.settings import Training
from ncscope.report.claims import Claim
from ncscope.report.tables import Summary
from ncscope.transfer import Correlation, correlations

STRONG = 0.7
"""Least correlation that counts as strong."""

Groups = dict[str, list[Checkpoint]]


class VCITransfer(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Pretraining runs by name.")
    downstream: tuple[str, ...] = Field(
        min_length=1, description="Sets to probe on, by their names in the catalogue."
    )


def _runs(base: Training) -> dict[str, Training]:
    """Return the base settings at every temperature and every penalty, with every seed."""
    varied = {f"{TEMPERATURE} {value:g}": {"temperature": value} for value in TEMPERATURES}
    varied |= {f"{PENALTY} {value:g}": {"within_class_cosine": value} for value in REGULARISED}
    return seeded({name: base.model_copy(update=update) for name, update in varied.items()})


def _paper() -> VCITransfer:
    base = IMAGENET.scales["paper"].runs["CE, seed 0"]
    end = {"every": base.optimisation.epochs, "groups": ("nc1", "nc4"), "cosine_group": 256}
    return VCITransfer(runs=_runs(base.model_copy(update=end)), downstream=tuple(DOWNSTREAM))


def _medium() -> VCITransfer:
    base = IMAGENET.scales["medium"].runs["CE, seed 0"]
    end = {"data": "cifar10", "network": "resnet18", "every": base.optimisation.epochs}
    end |= {"groups": ("nc1", "nc4"), "cosine_group": 128}
    return VCITransfer(
        runs=_runs(medium_training(base.model_copy(update=end), 30)),
        downstream=tuple(TRANSFER_TARGETS),
    )


def _small() -> VCITransfer:
    optimisation = SMALL_DESCENT.model_copy(
        update={
            "epochs": 20,
            "batch_size": 64,
            "learning_rate": 0.01,
            "decay": 0.975**15,
            "warmup_epochs": 5,
        }
    )
    base = Training(
        data="transfer-source",
        network="small-resnet-384",
        optimisation=optimisation,
        cosine_group=32,
        every=20,
        layers=(),
        groups=("nc1", "nc4"),
    )
    return VCITransfer(runs=_runs(base), downstream=tuple(TRANSFER_TARGETS))


def _parts(config: VCITransfer) -> list[Part]:
    """Return a part for each network: pretraining, then probes, which count as epochs."""
    work = len(config.downstream)
    return [
        Part(
            name,
            training.optimisation.epochs + work,
            partial(transfer_events, config.downstream, training),
            trains=True,
        )
        for name, training in config.runs.items()
    ]


def _claims(config: VCITransfer, rows: Sequence[Observation]) -> list[Claim]:
    """Test section 6.3 on the means over seeds."""
    return claims_on(checkpoints(config.runs, config.downstream, rows))


def claims_on(groups: Groups) -> list[Claim]:
    """Test the paper's statements on checkpoints of several seeds.

    Every statement is judged on a value for each seed, so that all claims on the paper's tables,
    which have one network for each setting, are undecided.

    Args:
        groups: Checkpoints by varied setting.
    """
    whole = {name: groups.get(name, []) for name in GROUPS}
    claims = [
        *(_correlated(whole, key) for key in METRICS),
        *(
            _trend(f"{title} falls with the {name}: coefficient below -{STRONG}", group, quantity)
            for name, group in whole.items()
            for title, quantity in {"MLOG": gain, "VCI": metric("vci")}.items()
        ),
    ]
    text = f"The cosine distance rises with the {PENALTY}: coefficient above {STRONG}"
    rises = _trend(text, whole[PENALTY], metric("cosine_within"), region=above(STRONG))
    return [*claims, rises, _without_pretraining(whole)]


def _correlated(groups: Groups, key: str) -> Claim:
    """Test that VCI is strongly correlated in both groups, and that other metrics change sign."""
    title = METRICS[key][:1].upper() + METRICS[key][1:]
    regions = {TEMPERATURE: above(0), PENALTY: below(0)}
    text = f"rises with MLOG over the {TEMPERATURE}s and falls with MLOG over the penalties"
    if key == "vci":
        regions = dict.fromkeys(GROUPS, above(STRONG))
        text = f"'s correlation with MLOG is above {STRONG} in both groups"
    return _in_both(
        f"{title}{text}" if key == "vci" else f"{title} {text}",
        "VCI, figure 7",
        {name: (groups[name], regions[name]) for name in GROUPS},
        partial(pearson, key=key),
    )


def _without_pretraining(groups: Groups) -> Claim:
    """Test VCI against the mean log odds alone; not in the paper.

    MLOG also depends on the pretraining accuracy, whose log odds it subtracts.
    """
    return _in_both(
        "VCI rises with the mean log odds of the probes alone, in both groups",
        "ours",
        {name: (groups[name], above(0)) for name in GROUPS},
        partial(pearson, key="vci", transfer=log_odds),
    )


def _in_both(
    text: str,
    source: str,
    groups: Mapping[str, tuple[Group, Region]],
    correlate: Callable[[Group], Correlation],
) -> Claim:
    """Judge Pearson's coefficients over the settings of each group, one for each seed."""
    claims = {
        name: judged(
            text,
            source=source,
            values=[correlate(seed).value for seed in by_seed(group).values()],
            region=region,
            scale="correlation",
            evidence=f"of the means over seeds {_shown(correlate(group))}",
        )
        for name, (group, region) in groups.items()
    }
    return combined(text, source=source, claims=claims, of="groups")


def _trend(text: str, group: Group, quantity: Quantity, region: Region | None = None) -> Claim:
    """Judge Pearson's coefficients of a quantity with the varied setting, one for each seed."""
    courses = [over_seeds(seed, quantity) for seed in by_seed(group).values()]
    told = ", ".join(f"{value:.4g} at {at:g}" for at, value in over_seeds(group, quantity).items())
    return judged(
        text,
        source="VCI, tables 1 and 2",
        values=[_coefficient(course) for course in courses],
        region=below(-STRONG) if region is None else region,
        scale="correlation",
        evidence=f"means over seeds: {told or 'no such run'}",
    )


def _coefficient(course: Mapping[float, float]) -> float:
    values = list(course.values())
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return math.nan
    return correlations(list(course), values)["pearson"].value


def _shown(correlation: Correlation) -> str:
    if math.isnan(correlation.value):
        return "nan"
    return f"{correlation.value:.2f} [{correlation.low:.2f}, {correlation.high:.2f}]"


def _tables(config: VCITransfer, rows: Sequence[Observation]) -> list[Summary]:
    """Tables 1 and 2 of the paper, and the coefficients of its figure 7."""
    groups = checkpoints(config.runs, config.downstream, rows)
    return [
        _downstream_table(groups, config.downstream),
        _pretraining_table(groups),
        _correlation_table(groups),
    ]


def _downstream_table(groups: Groups, sets: Sequence[str]) -> Summary:
    columns = {
        one: {name: over_seeds(group, probed(one)) for name, group in groups.items()}
        for one in sets
    }
    odds = {name: over_seeds(group, log_odds) for name, group in groups.items()}
    lines = {
        f"{name} {value:g}": [
            *(f"{100 * columns[one][name][value]:.2f}" for one in sets),
            f"{odds[name][value]:.3f}",
        ]
        for name in groups
        for value in odds[name]
    }
    caption = (
        "VCI table 1: accuracy of linear probes on held-out images, in per cent, and the mean of "
        "their log odds; means over seeds"
    )
    return Summary(caption, [*sets, "MLO"], lines)


def _pretraining_table(groups: Groups) -> Summary:
    quantities = {
        **{title: metric(key) for key, title in METRICS.items()},
        "accuracy": pretrained,
        "MLOG": gain,
    }
    lines = {
        f"{name} {value:g}": [
            f"{over_seeds(group, quantity)[value]:.4g}" for quantity in quantities.values()
        ]
        for name, group in groups.items()
        for value in over_seeds(group, gain)
    }
    caption = (
        "VCI table 2: the four metrics on training images of the pretraining set, accuracy on its "
        "held-out images, and the mean log odds gain; means over seeds"
    )
    return Summary(caption, list(quantities), lines)


def _correlation_table(groups: Groups) -> Summary:
    theirs = printed()
    columns = {
        **{name: partial(pearson, group) for name, group in groups.items()},
        **{f"{name}, the paper's": partial(pearson, theirs[name]) for name in groups},
    }
    lines = {
        title: [_shown(correlate(key)) for correlate in columns.values()]
        for key, title in METRICS.items()
    }
    caption = (
        "VCI figure 7: Pearson's coefficient of each metric with MLOG over the settings of a "
        "group, with the 95 % bootstrap interval over the settings; the paper's coefficients are "
        "computed from its tables"
    )
    return Summary(caption, list(columns), lines)


def _drawings(config: VCITransfer, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figure 7 of the paper, figure 7 from the paper's tables, and table 1 as a figure."""
    groups = checkpoints(config.runs, config.downstream, rows)
    axes = "metrics on training images of the pretraining set against the mean log odds gain"
    ours = (
        f"VCI figure 7: {axes}; above, the temperature of the softmax varies, below, the weight of "
        "the cosine penalty. Large: means over seeds, with Pearson's coefficient; small: seeds."
    )
    theirs = f"VCI figure 7 from the numbers of the paper's tables 1 and 2: {axes}."
    odds = (
        "VCI table 1: log odds of the linear probes by downstream set, and of the pretraining "
        "accuracy, means over seeds. MLOG is the mean of the former minus the latter."
    )
    return [
        Drawing("fig-7", ours, scatter_figure(groups)),
        Drawing("fig-7-printed", theirs, scatter_figure(printed())),
        Drawing("table-1", odds, odds_figure(groups)),
    ]


RECIPE: Recipe[VCITransfer] = Recipe(
    id="vci/transfer",
    title="Collapse in pretraining, and transfer",
    lead=(
        "Networks are pretrained at several temperatures, and with several weights of a penalty on "
        "the cosine similarity within classes, and then probed on other data sets. VCI says that "
        "only its index correlates with transfer in both groups."
    ),
    source="VCI section 6.3, figure 7, tables 1-2",
    config=VCITransfer,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    tables=_tables,
    columns=(*COLUMNS, "measure", "strength"),
    scales={"paper": _paper(), "medium": _medium(), "small": _small()},
    cost={
        "paper": "5,100 GPU-hours (estimated)",
        "medium": "30 minutes of one GPU (estimated)",
        "small": "20 minutes on one core",
    },
)
