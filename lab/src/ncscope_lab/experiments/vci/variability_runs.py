"""VCI's four metrics over training: settings, quantities and figures that its experiments share.

The runs of one setting differ in the seed; a run is named "SETTING, seed SEED".
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite, log10, nan
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from ncscope.report import panels
from ncscope.report.tables import Summary
from ncscope.transfer.correlations import correlate_rows, ranks
from ncscope_lab.claims import Claim, Region, above, below
from ncscope_lab.figures import collect_points, draw_band, draw_grid, logarithmic_values
from ncscope_lab.quantities import (
    Path,
    Quantity,
    Run,
    Runs,
    ends,
    geometric_mean,
    last,
    ratio,
    replace_fields,
    values,
)
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training

METRICS: Mapping[str, str] = {
    "fuzziness": "fuzziness",
    "nc1_quotient": "squared distance",
    "cosine_within": "cosine distance",
    "vci": "VCI",
}
"""The paper's names of the four metrics by key, in the order of its figures."""

COLUMNS = ("epoch", *METRICS, "accuracy", "loss")
"""Columns of the table of the last measurements."""

RESNET50 = Training(
    data="imagenet",
    network="resnet50",
    augmentation="autoaugment",
    optimisation=Optimisation(
        epochs=300,
        batch_size=1024,
        optimiser="nesterov",
        learning_rate=0.4,
        weight_decay=8e-5,
        schedule="exponential",
        decay=0.975,
        warmup_epochs=10,
        warmup_rate=1e-5,
    ),
    every=20,
    measured=50000,
    layers=(),
    groups=("nc1", "nc4", "spectra"),
)
"""Section 6.1: ResNet-50 on ImageNet under cross-entropy, with the step decay."""

SMALL_RESNET = replace_fields(
    RESNET50,
    network="small-resnet-384",
    augmentation="none",
    batch_size=64,
    learning_rate=0.05,
    measured=None,
)
"""What all residual networks of the small scales share."""


def name_setting(run: Run | str) -> str:
    """Return the name of a run's setting.

    Example:
        >>> name_setting("cosine, no decay, seed 1")
        'cosine, no decay'
    """
    name = run if isinstance(run, str) else run.name
    return name.partition(", seed ")[0]


def of_settings(*names: str) -> Callable[[Runs], Runs]:
    """Return the function that selects the runs of some settings."""
    return lambda runs: Runs(run for run in runs if name_setting(run) in names)


def in_setting(name: str, quantity: Quantity) -> Quantity:
    """Return the quantity of the run with the same seed in another setting."""
    return quantity.of(
        lambda run: run.experiment.find(f"{name}, seed {run.settings.seed}"),
        f"{quantity.name} in the setting {name}",
    )


def trend(key: str, split: str = "train", since: float = 0.0) -> Quantity:
    """Return the quantity of Spearman's correlation of a metric with the epoch.

    The correlation is that of all epochs, because the first epochs differ by factors: a ratio of
    the last to the first value would depend on the epoch that is called the first. The correlation
    is NaN for an untrained network and if a value is not finite.

    Args:
        key: Key of the metric.
        split: Images on which it is measured.
        since: Share of the last epoch from which on epochs count, epoch 0 never.
    """

    def select(run: Run) -> Path:
        path = run.path(split)
        first = max(1, since * path[-1].epoch) if path else 0
        return [row for row in path if row.epoch >= first]

    def compute(run: Run) -> float:
        course = np.array(values(select(run), key))
        if len(course) < 2 or not np.isfinite(course).all():
            return nan
        epochs = np.arange(len(course), dtype=np.float64)
        return float(correlate_rows(epochs[None], ranks(course[None]))[0])

    def start(run: Run) -> float:
        return ends(select(run), key)[0]

    early = Quantity(f"{key} at the first measurement", start)
    return Quantity(f"trend of {key}", compute, (early, last(key, split)))


def spacing_of_trends(runs: Runs) -> float:
    """Return the spacing of Spearman's correlations over the shortest course.

    The correlation is 1 - 6 S / (n^3 - n), with an even sum S of squared differences of ranks.
    Courses can be in perfect order, and a correlation of 1 counts as half a step less.
    """
    count = min((len(run.path()) - 1 for run in runs if run.rows), default=0)
    return 12 / (count**3 - count) if count > 2 else 0.5


FALLS, RISES = below(-0.5), above(0.5)
"""Regions of a metric's trend; the paper states no number."""


def claim_trend(*, text: str, region: Region, **fields: Any) -> Claim:
    """Make a claim on a `trend`, which must hold in every setting; the text ends with the border.

    Args:
        text: Text of the claim without the border.
        region: Region with one finite border.
        fields: Other fields of the claim.
    """
    side, border = ("below", region.high) if isfinite(region.high) else ("above", region.low)
    return Claim(
        text=f"{text}: rank correlation with the epoch {side} {border:g}",
        region=region,
        scale="correlation",
        step=spacing_of_trends,
        groups=name_setting,
        unit="settings",
        **fields,
    )


FIRST_OF_PAPER = 20 / 300
"""Share of training at which the paper's figure 1 has its first point of a trained network."""

_ROUNDING = 1e-9  # share of the variance on V_B up to which that off it is rounding


def claim_parts(*settings: str) -> list[Claim]:
    """Make the claims of section 4.1 on some settings: variance falls on V_B and rises off it.

    V_B is the span of the centred class means. The paper states the direction only, so the border
    of these trends is 0. They begin where the paper's do: before, a network that learns a feature
    has more of everything.
    """
    claim = partial(claim_trend, source="VCI, figure 1", where=of_settings(*settings))
    return [
        claim(
            text="the variance within classes on V_B falls, in every setting",
            quantity=trend("within_in_signal", since=FIRST_OF_PAPER),
            region=below(0),
        ),
        claim(
            text="the variance within classes off V_B rises, in every setting",
            quantity=trend("within_off_signal", since=FIRST_OF_PAPER),
            region=above(0),
        ),
    ]


def read_spectra(run: Run, *, untrained: bool = False) -> tuple[list[float], list[float]]:
    """Read the eigenvalues of Sigma_B and Sigma_T on training images, in descending order.

    Those of Sigma_B are as many as it can have that are not zero.

    Args:
        run: The run.
        untrained: Read them before training if True, at the last epoch otherwise.
    """
    measured = [
        each
        for each in run.measurements
        if each.split == "train" and (each.step == 0 or not untrained)
    ]
    spectra = measured[-1].model_record.last.spectra if measured else {}
    return list(spectra.get("between", [])), list(spectra.get("total", []))


def unevenness(between: Sequence[float], total: Sequence[float]) -> tuple[float, float]:
    """Return the first over the last of the compared eigenvalues: as many of both as of Sigma_B.

    Example:
        >>> unevenness([4.0, 1.0], [5.0, 4.0, 0.5])
        (4.0, 1.25)
    """
    count = len(between)
    if not 0 < count <= len(total):
        return nan, nan
    return ratio(between[0], between[-1]), ratio(total[0], total[count - 1])


def tabulate_spectra(runs: Runs) -> Summary:
    """Compare how uniform the eigenvalues of the two covariances are (section 4.3 and figure 2).

    This is no claim: in untrained networks Sigma_T's eigenvalues are the more uniform ones, too.
    """
    lines = {}
    for name, group in runs.group(name_setting).items():
        counts = {len(read_spectra(run)[0]) for run in group}
        cells = [", ".join(map(str, sorted(counts)))]
        for untrained in (True, False):
            pairs = [unevenness(*read_spectra(run, untrained=untrained)) for run in group]
            cells += [f"{geometric_mean(column):.3g}" for column in zip(*pairs, strict=True)]
        lines[name] = cells
    caption = (
        "VCI section 4.3 and figure 2: largest over smallest of the first eigenvalues of Sigma_B "
        "and of Sigma_T on training images, as many of each as Sigma_B can have, the smaller of d "
        "and K - 1; geometric means over seeds"
    )
    when = ("before training", "at the end")
    columns = [f"{matrix}, {at}" for at in when for matrix in ("Sigma_B", "Sigma_T")]
    return Summary(caption, ["compared", *columns], lines, title="Eigenvalues")


def draw_common(runs: Runs) -> list[Drawing]:
    """Draw figures 1, 2, 6 and 8: a panel a setting, means and ranges over seeds."""

    def parts(group: Runs, axes: Axes) -> None:
        draw_course(axes, group, "within_in_signal", "on $V_B$")
        # Of fewer features than classes, only the rounding of a layer normalisation is off V_B.
        rows = [row for run in group for row in run.path("train") if "within_off_signal" in row]
        both = zip(values(rows, "within_off_signal"), values(rows, "within_in_signal"), strict=True)
        if any(off > _ROUNDING * on for off, on in both):
            draw_course(axes, group, "within_off_signal", "off $V_B$")

    def spectra(group: Runs, axes: Axes) -> None:
        for which, label in enumerate((r"$\Sigma_B$", r"$\Sigma_T$")):
            rows = zip(*(read_spectra(run)[which] for run in group), strict=False)
            points = {float(index): row for index, row in enumerate(rows, start=1)}
            colour = panels.SERIES[len(axes.lines) % len(panels.SERIES)]
            if points:
                draw_band(axes, points, label, colour)
        logarithmic_values(axes)
        axes.set_xlabel("index")

    def splits(key: str, group: Runs, axes: Axes) -> None:
        for split in ("train", "test"):
            draw_course(axes, group, key, split, split)

    return [
        Drawing(
            "fig-1",
            "VCI figure 1: the variance within classes on V_B, the span of the centred class "
            "means, and off V_B, on training images.",
            draw_settings(runs, {"variance within classes": parts}),
        ),
        Drawing(
            "fig-2",
            "VCI figure 2: eigenvalues of Sigma_B, up to its largest possible rank, and of "
            "Sigma_T, on training images at the last epoch.",
            draw_settings(runs, {"eigenvalue": spectra}),
        ),
        Drawing(
            "fig-6",
            "VCI figure 6: VCI on training and on held-out images.",
            draw_settings(runs, {"VCI": partial(splits, "vci")}),
        ),
        Drawing(
            "fig-8",
            "VCI figure 8: the three other metrics on training and on held-out images.",
            draw_settings(
                runs,
                {METRICS[key]: partial(splits, key) for key in METRICS if key != "vci"},
            ),
        ),
    ]


def draw_metrics(number: int, subject: str, runs: Runs) -> Drawing:
    """Draw the four metrics on training images: one panel a metric, one curve a setting.

    Args:
        number: Number of the paper's figure.
        subject: Words that end the caption.
        runs: The runs.
    """

    def panel(key: str, axes: Axes) -> None:
        for name, group in runs.group(name_setting).items():
            draw_course(axes, group, key, name)
        axes.set_title(METRICS[key])

    names = "fuzziness, squared distance, cosine distance and VCI on training images"
    keys = list(METRICS)
    grid = [[partial(panel, key) for key in row] for row in (keys[:2], keys[2:])]
    return Drawing(
        f"fig-{number}",
        f"VCI figure {number}: {names} from the first epoch on, {subject}; means over the seeds, "
        "and their ranges as bands. The first two have logarithmic axes.",
        draw_grid(grid, cell=(3.6, 2.5), legend="below"),
    )


def draw_settings(runs: Runs, draws: Mapping[str, Callable[[Runs, Axes], None]]) -> Figure:
    """Draw a panel a setting, three beside each other; of several labels, a row a setting.

    Args:
        runs: The runs.
        draws: Functions that draw a setting's runs, by the label of the vertical axis.
    """
    groups = runs.group(name_setting)

    def panel(label: str, name: str, leftmost: bool, axes: Axes) -> None:
        draws[label](groups[name], axes)
        axes.set_title(name if leftmost or len(draws) == 1 else "")
        if leftmost or len(draws) > 1:
            axes.set_ylabel(label)

    grid = [[partial(panel, label, name, label == next(iter(draws))) for label in draws]
            for name in groups]  # fmt: skip
    if len(draws) == 1:
        (label,), names = draws, list(groups)
        grid = [
            [partial(panel, label, name, name == row[0]) for name in row]
            for row in (names[at : at + 3] for at in range(0, len(names), 3))
        ]
    return draw_grid(
        grid, cell=(3, 2.1), legend="first", share_y=True if len(draws) == 1 else "col"
    )


class _Ticks(LogLocator):
    """Ticks between the powers of ten where an axis has few of these."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        decades = log10(vmax / vmin)
        self.set_params(subs=(1, 2, 3, 5) if decades < 1.5 else (1, 3) if decades < 3 else (1,))
        return super().tick_values(vmin, vmax)


def draw_course(axes: Axes, runs: Runs, key: str, label: str, split: str = "train") -> None:
    """Draw a metric from epoch 1 on: mean over the runs, and their range as a band.

    Shares stand on a linear axis from 0, all else on a logarithmic one.
    """
    rows = (row for run in runs for row in run.path(split) if row.epoch > 0)
    points = collect_points(rows, "epoch", key)
    colour = panels.SERIES[len(axes.lines) % len(panels.SERIES)]
    if points:
        draw_band(axes, points, label, colour, ("-", "--", "-.", ":")[len(axes.lines) % 4])
    axes.set_xlabel("epoch")
    if key in ("cosine_within", "vci"):
        # Not a limit: it would end the scaling to the panels that share the axis.
        axes.update_datalim([(1, 0)])
        axes.lines[-1].sticky_edges.y.append(0)
        return
    logarithmic_values(axes)
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(_Ticks())
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
