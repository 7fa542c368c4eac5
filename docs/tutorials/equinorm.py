"""Papyan, Han and Donoho 2020, figure 2: class means become equinorm.

The paper trains VGG, ResNet and DenseNet on seven image sets under cross-entropy,
for 350 epochs. Here a small convolutional network trains on handwritten digits.

Cost: a minute on two cores. Command: ncscope run equinorm.py
"""

import math

import ncscope_lab as lab

PAPER = "Papyan, Han and Donoho 2020, figure 2"
SMALL = lab.Trainings(
    runs={
        f"digits, seed {seed}": lab.Training(
            data="digits",
            balanced=1300,  # equally many of every class, as in the paper
            network="small-conv",
            loss="cross-entropy",
            optimisation=lab.Optimisation(
                epochs=200,
                batch_size=128,
                learning_rate=0.0679,
                momentum=0.9,
                weight_decay=2e-3,  # four times the paper's, for few steps
                schedule="steps",  # a tenth after 1/3 and 2/3 of the epochs
            ),
            seed=seed,
            measurements=24,  # at log-spaced epochs
            groups=("nc2", "nc4"),
            layers=(),  # the classifier's input only
        )
        for seed in (1, 2, 3)  # seed 0 served to choose the settings
    }
)

MEANS, ROWS = "nc2_equinorm_means", "nc2_equinorm_weights"
NORMS = {
    MEANS: "the norms of the centred class means",
    ROWS: "the norms of the classifier's rows",
}
ZERO_ERROR = 0.999  # least accuracy: one image of the 1,300 may be wrong
HALF = 1 / 2  # the paper states no numbers: these two are ours
LESS = 1 / 1.1


def at_zero_error(key):
    """Return the quantity of a metric at the first epoch of zero training error."""

    @lab.quantity(f"{key} at zero error")
    def find(run):
        row = lab.zero_error_row(run.path(), ZERO_ERROR)
        return math.nan if row is None else row[key]

    return find


CLAIMS = [
    lab.Claim(
        text="every network ends with zero training error",
        source="ours",
        quantity=lab.last("accuracy"),
        region=lab.above(ZERO_ERROR),
        rule="each",
    ),
    *(
        lab.Claim(
            text=f"over training, the relative spread of {norms} falls to less than half",
            source=PAPER,
            quantity=lab.last_over_first(key),
            region=lab.below(HALF),
            scale="ratio",
        )
        for key, norms in NORMS.items()
    ),
    *(
        lab.Claim(
            text=f"past zero training error, the relative spread of {norms} "
            "falls further, by a factor of 1.1",
            source=PAPER,
            quantity=lab.last(key) / at_zero_error(key),
            region=lab.below(LESS),
            scale="ratio",
        )
        for key, norms in NORMS.items()
    ),
]


def draw_figures(settings, runs):
    """Draw figure 2, of one network on one data set."""
    curves = [
        lab.Curve(MEANS, "class means", "C0"),
        lab.Curve(ROWS, "classifier rows", "C1"),
    ]

    def draw(axes):
        lab.draw_over_epochs(axes, runs, curves)
        axes.set_ylabel("std / mean of the norms")
        axes.set_ylim(bottom=0)

    caption = "Relative spread of the norms; means of the seeds, bands: their range."
    figure = lab.draw_grid([[draw]], cell=(4.8, 3.2), legend="first")
    return [lab.Drawing("fig-2", caption, figure)]


EXPERIMENT = lab.Experiment(
    title="Class means become equinorm",
    question="Do class means and classifier rows tend to equal norms in training?",
    source=PAPER,
    scales={"small": SMALL},
    claims=CLAIMS,
    figures=draw_figures,
    columns=("epoch", "accuracy", MEANS, ROWS),
)
