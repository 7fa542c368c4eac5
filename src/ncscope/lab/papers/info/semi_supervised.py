r"""Few labels and the information losses: rows of INFO table 1 in one loop.

Source: INFO section 6, table 1. Command: ``ncscope reproduce info/semi-supervised``.

The paper's scale has CIFAR-10 with 10, 40 and 250 labels (WRN-28-2), CIFAR-100 with 400 and 2500
(WRN-28-8) and STL-10 with 40 and 1000 (WRN-37-2), with three seeds each. Training is SGD with
Nesterov momentum 0.9, weight decay 5e-4, rate $0.03\cos\frac{7\pi k}{16K}$ and $K=2^{20}$ steps of
64 labelled images and 7 times as many unlabelled images. The moving average of the weights (0.999)
is tested. Settings that INFO does not state are those of FreeMatch (Wang et al. 2023): see
`ncscope.lab.training.semi_supervised.settings`. Batches of 64 labelled images are our assumption:
INFO prints this size for supervised training only. The paper does not print the weights of the
information losses; here they are 0.1, and `SemiSupervised.weights` adds runs with other weights.

The rows that are run are the Pi model, pseudo-label, mean teacher, UDA, FixMatch, FlexMatch,
FreeMatch, SoftMatch, and FreeMatch with either loss; their settings are TorchSSL's, see
`ncscope.lab.training.semi_supervised.methods`. VAT, MixMatch, ReMixMatch, Dash, MPL and OTMatch are
not run; the table has their printed values.

The small scale has handwritten digits with 10, 20 and 40 labels, a network of three convolutions,
five seeds, and 500 steps of 16 labelled and 112 unlabelled images, 16 for methods with one kind of
view. Each information loss also runs with weights 0.01 and 1. Seeds are 5 to 9, as seeds 0 to 4
were used to choose the settings. Cost: 22 minutes on one core.

Results at the small scale, error in per cent, mean and standard error (the tables that the command
prints have standard deviations, and the printed values beside ours):

| | 10 labels | 20 labels | 40 labels |
|---|---|---|---|
| supervised | 40.94 ± 2.86 | 25.83 ± 0.34 | 16.67 ± 1.10 |
| Pi model | 36.67 ± 2.94 | 24.00 ± 1.05 | 13.44 ± 1.30 |
| Pseudo Label | 37.33 ± 3.03 | 24.06 ± 0.85 | 15.56 ± 1.78 |
| MeanTeacher | 37.83 ± 2.71 | 29.11 ± 2.05 | 18.44 ± 1.39 |
| UDA | 22.39 ± 0.94 | 13.06 ± 1.22 | 7.28 ± 1.14 |
| FixMatch | 26.06 ± 1.26 | 17.67 ± 0.61 | 9.50 ± 1.32 |
| FlexMatch | 24.28 ± 2.98 | 11.00 ± 2.04 | 6.83 ± 1.21 |
| FreeMatch | 19.83 ± 3.10 | 11.06 ± 1.42 | 6.89 ± 0.86 |
| SoftMatch | 22.61 ± 3.59 | 10.94 ± 2.03 | 7.11 ± 1.30 |
| FreeMatch + MI | 20.00 ± 3.82 | 9.56 ± 1.07 | 6.28 ± 0.57 |
| FreeMatch + ED | 19.61 ± 3.45 | 12.39 ± 2.23 | 6.56 ± 0.84 |

15 of 28 claims held, 13 are undecided. The terms change the features as intended, and the three
methods without strongly augmented views err most, as in the paper. Whether the seven others have
its order is undecided. A gain of MI or ED over FreeMatch shows only for ED with 40 labels, by an
image of 360 at most seeds.
"""

from collections.abc import Sequence
from functools import partial

from ncscope.lab.observations import Observation
from ncscope.lab.papers.info.few_labels import (
    METHODS,
    SemiSupervised,
    drawings,
)
from ncscope.lab.papers.info.few_labels_claims import claims
from ncscope.lab.papers.info.few_labels_tables import gain_figure, tables
from ncscope.lab.papers.info.runs import SEEDS
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.semi_supervised.run import few_labels_events
from ncscope.lab.training.semi_supervised.settings import FewLabels


def _runs(
    data: str, labels: Sequence[int], seeds: Sequence[int], network: str, **given: object
) -> dict[str, FewLabels]:
    """Return settings of every method with every number of labels and every seed."""
    return {
        f"{data}, {count} labels, {name}, seed {seed}": FewLabels.model_validate(
            {
                "data": data,
                "network": network,
                "labels": count,
                "seed": seed,
                "fairness_weight": 0.01 if count == min(labels) else 0.05,
                "layers": (),
                "groups": ("nc4", "information"),
                **method,
                **given,
            }
        )
        for count in labels
        for seed in seeds
        for name, method in METHODS.items()
    }


def _paper() -> SemiSupervised:
    optimisation = Optimisation(
        epochs=1024,
        batch_size=64,
        optimiser="nesterov",
        learning_rate=0.03,
        weight_decay=5e-4,
        schedule="cosine-7/16",
        average=0.999,
    )
    given = {"optimisation": optimisation, "every": 16, "measured": 10_000}
    runs = _runs("cifar10", (10, 40, 250), SEEDS, "wrn-28-2-ssl", **given)
    runs |= _runs("cifar100", (400, 2500), SEEDS, "wrn-28-8-ssl", **given)
    runs |= _runs("stl10", (40, 1000), SEEDS, "wrn-37-2", **given)
    return SemiSupervised(runs=runs)


def _medium() -> SemiSupervised:
    """Return every method with 40 labels, for a five-hundredth of the paper's steps."""
    optimisation = _paper().runs["cifar10, 40 labels, supervised, seed 0"].optimisation
    optimisation = optimisation.model_copy(update={"epochs": 10, "average": 0.99})
    given = {"optimisation": optimisation, "steps_per_epoch": 200, "every": 2, "measured": 10_000}
    return SemiSupervised(runs=_runs("cifar10", (40,), SEEDS, "wrn-28-2-ssl", **given))


def _small() -> SemiSupervised:
    optimisation = Optimisation(
        epochs=10,
        batch_size=16,
        optimiser="nesterov",
        learning_rate=0.05,
        weight_decay=5e-4,
        schedule="cosine-7/16",
        average=0.99,
    )
    given = {"optimisation": optimisation, "steps_per_epoch": 50, "every": 2}
    changed = {"views": "warp", "memory": 0.99}
    runs = _runs("digits", (10, 20, 40), range(5, 10), "small-conv", **given, **changed)
    return SemiSupervised(runs=runs, weights=(0.01, 1.0))


def _parts(config: SemiSupervised) -> list[Part]:
    """Return a part for each run, those with further weights last."""
    return [
        Part(name, run.optimisation.epochs, partial(few_labels_events, run), trains=True)
        for name, run in (config.runs | config.swept).items()
    ]


def _drawings(config: SemiSupervised, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw table 1, curves over training, and the gain against the number of labels."""
    caption = (
        "INFO 6.3: error of FreeMatch minus error with an information loss, against the number of "
        "labels: means over seeds with their standard errors. Crosses are differences of the "
        "means in the paper's table 1."
    )
    return [*drawings(config, rows), Drawing("gain", caption, gain_figure(config, rows))]


RECIPE: Recipe[SemiSupervised] = Recipe(
    id="info/semi-supervised",
    title="Few labels: FreeMatch with the information losses",
    lead=(
        "Networks learn from a few labelled images and many unlabelled ones. INFO adds to "
        "FreeMatch's loss the mutual information of features and heads, or their difference in "
        "entropy, and reports lower errors."
    ),
    source="INFO section 6, table 1",
    config=SemiSupervised,
    parts=_parts,
    claims=claims,
    drawings=_drawings,
    tables=tables,
    columns=("epoch", "error", "mask_rate", "pseudo_label_accuracy", "threshold", "mir", "hdr"),
    scales={"paper": _paper(), "medium": _medium(), "small": _small()},
    cost={
        "paper": "231 runs of a GPU-day or more",
        "medium": "50 minutes of one GPU (estimated)",
        "small": "22 minutes on one core",
    },
)
