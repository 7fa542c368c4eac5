"""VCI sections 4.1, 4.3 and 6.2, figures 1, 2, 4-6 and 8: four metrics on many classes.

The paper trains ResNet-50 on ImageNet under cross-entropy and under squared error with the step
decay, and under squared error with a cosine schedule, for 300 epochs. It prints no factors of the
squared error; here it is plain, half the sum over classes. From DeiT's training the weight decay,
label smoothing, stochastic depth, erasing, MixUp and CutMix are kept. DeiT also repeats every image
three times per epoch, which is left out.

The small scale trains all networks on handwritten digits, without augmentation: a network of 32
features and a transformer of width 32. At rate 0.05, or on 20 generated classes, the squared error
ended with features of zero. There are only ten classes, so V_B is not the whole space of the
transformer, as it is with the paper's 1000 classes.
"""

from collections.abc import Sequence
from functools import partial

from ncscope.lab.claims import Claim, below
from ncscope.lab.experiment import Experiment, Trainings
from ncscope.lab.experiments.vci.variability_runs import (
    COLUMNS,
    METRICS,
    RESNET50,
    at_end,
    claim_parts,
    claim_trend,
    draw_held_out,
    draw_metrics,
    draw_parts,
    draw_spectra,
    find_twin,
    name_setting,
    of_settings,
    over_setting,
    repeat_with_seeds,
    select_first_seed,
    tabulate_spectra,
)
from ncscope.lab.quantities import Runs, replace_fields
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.report.tables import Summary

ENTROPY = "CE"
SQUARED = ("MSE", "MSE + cosine")
RESIDUAL = (ENTROPY, *SQUARED)
TRANSFORMERS = ("DeiT-T", "DeiT-S", "transformer")  # the last at the small scale
EVERY = (*RESIDUAL, *TRANSFORMERS)


def vary_loss(base: Training) -> dict[str, Training]:
    """Return the paper's three residual runs; the base has cross-entropy and the step decay."""
    squared = replace_fields(base, loss="mse")
    cosine = replace_fields(squared, schedule="cosine")
    return dict(zip(RESIDUAL, (base, squared, cosine), strict=True))


DEIT = replace_fields(
    RESNET50,
    augmentation="autoaugment-erasing",
    mixing=True,
    label_smoothing=0.1,
    optimisation=Optimisation(
        epochs=300,
        batch_size=1024,
        optimiser="adamw",
        learning_rate=1e-3,
        weight_decay=0.05,
        schedule="cosine",
        warmup_epochs=5,
        warmup_rate=1e-6,
    ),
)
PAPER = Trainings(
    runs=repeat_with_seeds(
        {
            **vary_loss(RESNET50),
            "DeiT-T": replace_fields(DEIT, network="deit-tiny"),
            "DeiT-S": replace_fields(DEIT, network="deit-small"),
        },
        seeds=(0, 1, 2),
    )
)

SMALL_RESNET = replace_fields(
    RESNET50,
    data="digits",
    network="small-resnet",
    augmentation="none",
    epochs=100,
    batch_size=64,
    learning_rate=0.02,
    weight_decay=5e-4,
    decay=0.975**3,
    warmup_epochs=3,
    every=5,
    measured=None,
)
SMALL_TRANSFORMER = replace_fields(
    SMALL_RESNET,
    network="small-vit",
    every=4,
    optimisation=Optimisation(
        epochs=60,
        batch_size=64,
        optimiser="adamw",
        learning_rate=4e-3,
        weight_decay=0.05,
        schedule="cosine",
        warmup_epochs=1,
        warmup_rate=1e-6,
    ),
)
SMALL = Trainings(
    runs=repeat_with_seeds(
        {**vary_loss(SMALL_RESNET), "transformer": SMALL_TRANSFORMER},
        seeds=(1, 2, 3),  # settings were chosen on seed 0
    )
)


def list_claims(settings: Trainings) -> Sequence[Claim]:
    """Return the claims of sections 6.2 and 4.1."""
    return [
        *(
            claim_trend(
                f"{title} falls over training, in every residual network",
                key,
                source="VCI, figure 4",
                where=of_settings(*RESIDUAL),
            )
            for key, title in METRICS.items()
        ),
        *(
            claim_trend(
                f"{title} falls over training, in every transformer",
                key,
                source="VCI, figure 5",
                where=of_settings(*TRANSFORMERS),
            )
            for key, title in METRICS.items()
        ),
        claim_trend(
            "VCI falls on held-out images too, in every network",
            "vci",
            source="VCI, figure 6",
            where=of_settings(*EVERY),
            split="test",
        ),
        *(
            Claim(
                text=f"squared error ends at a lower {title} than cross-entropy",
                source="VCI, section 6.2",
                quantity=over_setting(ENTROPY, at_end(key)),
                region=below(1),
                scale="ratio",
                where=of_settings(*SQUARED),
                groups=name_setting,
                unit="settings",
                tell=partial(tell_last_of_both, key),
            )
            for key, title in METRICS.items()
        ),
        *claim_parts(ENTROPY),
    ]


def tell_last_of_both(key: str, runs: Runs) -> str:
    """Write the last values under squared error and under cross-entropy, for each seed."""
    last = at_end(key)
    pairs = [(last(run), last(find_twin(run, ENTROPY))) for run in runs]
    return ", ".join(f"{squared:.3g} to {entropy:.3g}" for squared, entropy in pairs)


def make_tables(settings: Trainings, runs: Runs) -> list[Summary]:
    """Show the eigenvalues of section 4.3."""
    return [tabulate_spectra(runs)]


def draw_figures(settings: Trainings, runs: Runs) -> list[Drawing]:
    """Draw figures 1, 2, 4-6 and 8 of the paper for the first seed."""
    first = select_first_seed(runs)
    residual = of_settings(*RESIDUAL)(first)
    transformers = of_settings(*TRANSFORMERS)(first)
    return [
        draw_parts(residual),
        draw_spectra(residual[:1]),
        draw_metrics(4, "for residual networks under two losses", residual),
        draw_metrics(5, "for vision transformers", transformers),
        *draw_held_out([residual[0], transformers[-1]]),
    ]


EXPERIMENT = Experiment(
    id="vci/imagenet",
    title="Variability collapse on many classes",
    question=(
        "Residual networks are trained under two losses, and vision transformers under one. With "
        "nearly as many classes as features, or more, VCI says that all four metrics fall, and "
        "fall lowest under squared error."
    ),
    source="VCI sections 4.1, 4.3, 6.2, figures 1, 2, 4-6, 8",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "1,800 GPU-hours (estimated)", "small": "8 minutes on one core"},
    claims=list_claims,
    figures=draw_figures,
    tables=make_tables,
    columns=COLUMNS,
)
