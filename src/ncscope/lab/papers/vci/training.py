"""Variability collapse while ResNet-18 trains on CIFAR-10: four metrics, three training settings.

Source: VCI sections 4.1, 4.3 and 6.2, figures 1-3, 6 (left), 8 (left), on the setting of 6.1.
Command: ``ncscope reproduce vci/training``.

The paper's scale trains ResNet-18 under cross-entropy, with AutoAugment after a crop and mirroring,
ImageNet's normalisation, SGD with Nesterov momentum, weight decay 8e-5 and batches of 256, for 300
epochs. The learning rate is 0.1 after 10 epochs of warm-up from 1e-5, and is multiplied by 0.975
every epoch or follows a cosine. A third run has neither weight decay nor warm-up. The paper draws
figures 1 and 2 only for ResNet-50 on ImageNet; here they are also drawn for every run.

The small scale trains a network of 32 features on handwritten digits, with crops as augmentation
and batches of 64, for 100 epochs. Rate 0.05 and decay 5e-4 are larger, as there is only a 27th of
the steps. The features are few because VCI is 0 for any features if there are no more images than
features: 512 features would need more held-out images than the set has.

Results (seed 0; first measured epoch to last): training accuracy is .999, 1 and 1, held-out
accuracy .983 to .992. Fuzziness fell from 3.2 to 0.70 (step decay), 3.2 to 0.46 (cosine) and 2.2 to
0.64 (the third run). VCI fell from 0.18 to 0.049, 0.17 to 0.032 and 0.13 to 0.045, and on held-out
images from 0.16 to 0.069, 0.16 to 0.056 and 0.13 to 0.054. Squared and cosine distance fell as
well. The variance off V_B fell by 27 to 56 %, entirely before epoch 35. So the paper's exceptions
did not occur. The paper reports them with 51 features per class, whereas here there are 3; with 2
features per class, on ImageNet, all metrics fall in the paper too. The ninth eigenvalue of Sigma_T
exceeds that of Sigma_B by 5 to 12 %, and less than 2 % of Sigma_T's trace is beyond the ninth.
"""

from collections.abc import Sequence

from ncscope.lab.evidence.judging import below, judged
from ncscope.lab.observations import Results
from ncscope.lab.papers.trained import ratio, training_parts
from ncscope.lab.papers.vci.figures import drawings as variability_drawings
from ncscope.lab.papers.vci.figures import shares_figure
from ncscope.lab.papers.vci.stability import stability, stability_claims, stability_figure
from ncscope.lab.papers.vci.variability import (
    COLUMNS,
    GROUPS,
    METRICS,
    PAPER_DESCENT,
    Groups,
    VCIRuns,
    change,
    groups_of,
    projection_claims,
    retrained,
    seeded,
    share_off_signal,
    spectrum_claim,
    trend_claim,
)
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.training.settings import Training
from ncscope.report.claims import Claim

MANY, NARROW = "100 classes", "100 classes, 32 features"
"""Runs of section 6.2 on more classes, with the same and with fewer features."""


def _ways(base: Training) -> dict[str, Training]:
    """Return the paper's three ways to train; the base has the step decay."""
    cosine = retrained(base, schedule="cosine")
    return {
        "step decay": base,
        "cosine": cosine,
        "cosine, no decay, no warm-up": retrained(cosine, weight_decay=0.0, warmup_epochs=0),
    }


def _paper() -> VCIRuns:
    many = PAPER.model_copy(update={"data": "cifar100"})
    return VCIRuns(runs=seeded(_ways(PAPER) | {MANY: many}))


def _small() -> VCIRuns:
    optimisation = PAPER_DESCENT.model_copy(
        update={
            "epochs": 16,
            "batch_size": 64,
            "learning_rate": 0.05,
            "weight_decay": 5e-4,
            "decay": 0.975**5,
            "warmup_epochs": 1,
        }
    )
    base = Training(
        data="patterns",
        network="small-resnet-384",
        augmentation="crop",
        optimisation=optimisation,
        every=4,
        layers=(),
        groups=GROUPS,
    )
    many = base.model_copy(update={"data": "patterns-100"})
    narrow = many.model_copy(update={"network": "small-resnet-32"})
    step, *rest = _ways(base).items()
    first = seeded(dict([step]), range(5))
    return VCIRuns(runs=first | seeded({MANY: many} | dict(rest) | {NARROW: narrow}))


PAPER = Training(
    data="cifar10",
    network="resnet18",
    augmentation="autoaugment",
    normalisation="imagenet",
    optimisation=PAPER_DESCENT.model_copy(update={"batch_size": 256, "learning_rate": 0.1}),
    every=20,
    layers=(),
    groups=GROUPS,
)


def _parts(config: VCIRuns) -> list[Part]:
    """Return a part for each run."""
    return training_parts(config.runs, extra=stability)


def _claims(config: VCIRuns, rows: Results) -> list[Claim]:
    """Test sections 6.2, 4.1 and 4.3."""
    groups = groups_of(config.runs)
    ways = {name: runs for name, runs in groups.items() if name not in (MANY, NARROW)}
    claims = [
        trend_claim(f"{text}, in every setting", rows, ways, key, source=source, split=split)
        for text, key, split, source in (
            ("fuzziness falls over training", "fuzziness", "train", "VCI, figure 3"),
            ("VCI falls over training", "vci", "train", "VCI, figure 3"),
            ("VCI falls on held-out images too", "vci", "test", "VCI, figure 6"),
        )
    ]
    for key in ("nc1_quotient", "cosine_within"):
        text = f"there is a setting in which {METRICS[key]} rises"
        claims.append(
            trend_claim(text, rows, ways, key, source="VCI, figure 3", rises=True, enough=1)
        )
    first = dict(list(ways.items())[:1])
    claims += [*projection_claims(rows, first), spectrum_claim(rows, ways)]
    others = {name: groups[name] for name in (MANY, NARROW) if name in groups}
    if others:
        claims += _many_class_claims(rows, ways, others)
    return claims + stability_claims(rows, _by_seed(config, NARROW), "VCI, section 4.3")


def _many_class_claims(rows: Results, ways: Groups, others: Groups) -> list[Claim]:
    """Test section 6.2: at smaller d/K less is off V_B, and all metrics fall."""
    claims = [
        trend_claim(
            f"{title} falls over training, in every network for 100 classes",
            rows,
            others,
            key,
            source="VCI, section 6.2",
        )
        for key, title in METRICS.items()
    ]
    many, few = others.get(MANY, []), next(iter(ways.values()), [])
    shares = {run: share_off_signal(rows, run) for run in (*many, *few)}
    pairs = list(zip(many, few, strict=False))
    last = "; ".join(f"{shares[a][-1]:.3g}, {shares[b][-1]:.3g}" for a, b in pairs)
    claims.append(
        judged(
            "the share of the variance off V_B, over the untrained network's share, is smaller "
            "for 100 classes than for 10",
            source="VCI, section 6.2",
            values=[ratio(_gain(shares[a]), _gain(shares[b])) for a, b in pairs],
            region=below(1),
            ratio=True,
            evidence=f"last shares for 100 and for 10 classes {last or 'not measured'}",
        )
    )
    further = [
        judged(
            f"{METRICS[key]} falls further for 100 classes than for 10",
            source="VCI, section 6.2",
            values=[ratio(change(rows, a, key), change(rows, b, key)) for a, b in pairs],
            region=below(1),
            ratio=True,
        )
        for key in ("nc1_quotient", "cosine_within")
    ]
    return [*claims, *further]


def _gain(course: Sequence[float]) -> float:
    """Return the last over the first value."""
    return ratio(course[-1], course[0])


def _by_seed(config: VCIRuns, left_out: str) -> list[list[str]]:
    """Return the names of the runs of each seed, but for one group."""
    seeds: dict[int, list[str]] = {}
    for group, runs in groups_of(config.runs).items():
        for run in runs if group != left_out else ():
            seeds.setdefault(config.runs[run].seed, []).append(run)
    return list(seeds.values())


def _drawings(config: VCIRuns, rows: Results) -> list[Drawing]:
    """Draw figures 1-3, 6 and 8 of the paper for the first seed, and this recipe's two figures."""
    groups = groups_of(config.runs)
    ways = [runs[0] for name, runs in groups.items() if name not in (MANY, NARROW)]
    every = [runs[0] for runs in groups.values()]
    three = {"3": ("for three ways to train", ways)}
    off = (
        "Share of the variance within classes off V_B, on training images from the untrained "
        "network on; one curve for each seed (VCI section 6.2)."
    )
    swept = (
        "Fuzziness and VCI under a cut of the pseudo-inverses (matrices in single precision) and "
        "under noise on the matrices (double precision): absolute value over the exact value, one "
        "curve for each network; left of the dashed line is the range of the claims (VCI section "
        "4.3)."
    )
    stable = [run for runs in _by_seed(config, NARROW) for run in runs]
    return [
        *variability_drawings(rows, every, every, three, ways),
        Drawing("shares", off, shares_figure(rows, groups)),
        Drawing("stability", swept, stability_figure(rows, stable)),
    ]


RECIPE: Recipe[VCIRuns] = Recipe(
    id="vci/training",
    title="Variability collapse while a residual network trains",
    lead=(
        "One network is trained with three settings. VCI says that fuzziness and VCI fall with "
        "each of them, but squared and cosine distance need not fall: variability grows in "
        "directions orthogonal to the class means."
    ),
    source="VCI sections 4.1, 4.3, 6.2, figures 1-3, 6, 8",
    config=VCIRuns,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    columns=COLUMNS,
    scales={"paper": _paper(), "small": _small()},
    cost={"paper": "4 GPU-hours (estimated)", "small": "3 minutes on one core"},
)
