"""VCI's four metrics over training: the quantities, claims and figures that its experiments share.

The runs of one setting differ in the seed; a run is named "SETTING, seed SEED". Courses begin with
the first measurement after a training epoch: before it, directions of the features hardly differ.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import nan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from ncscope.lab.claims import Claim, above, below
from ncscope.lab.figures import draw_grid, draw_paths
from ncscope.lab.quantities import (
    AnyQuantity,
    Path,
    Run,
    Runs,
    average,
    ends,
    geometric_mean,
    ratio,
    values,
)
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.histories import logarithmic_values
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.report import panels
from ncscope.report.tables import Summary

METRICS: Mapping[str, str] = {
    "fuzziness": "fuzziness",
    "nc1_quotient": "squared distance",
    "cosine_within": "cosine distance",
    "vci": "VCI",
}
"""The paper's names of the four metrics by key, in the order of its figures."""

COLUMNS = ("epoch", *METRICS, "accuracy")
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

FACTOR = 1.1  # least factor of a rise or fall; the paper states no number


def repeat_with_seeds(
    settings: Mapping[str, Training], seeds: Iterable[int]
) -> dict[str, Training]:
    """Return a run of each setting with each seed, named "SETTING, seed SEED"."""
    seeds = list(seeds)
    return {
        f"{name}, seed {seed}": training.model_copy(update={"seed": seed})
        for name, training in settings.items()
        for seed in seeds
    }


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


def select_first_seed(runs: Runs) -> Runs:
    """Select the first run of each setting."""
    return Runs(group[0] for group in runs.group(name_setting).values())


def skip_start(run: Run, split: str = "train") -> Path:
    """Return the rows of the last layer without those of the untrained network."""
    return [row for row in run.path(split) if row.epoch != 0]


def at_end(key: str, split: str = "train") -> AnyQuantity:
    """Return the quantity of a metric's last value; NaN for an untrained network."""
    return lambda run: ends(skip_start(run, split), key)[1]


def change(key: str, split: str = "train") -> AnyQuantity:
    """Return the quantity of a metric's last value over the first after a training epoch."""
    return lambda run: ratio(*reversed(ends(skip_start(run, split), key)))


def over_setting(name: str, quantity: AnyQuantity) -> AnyQuantity:
    """Return a quantity over that of the run with the same seed of another setting."""
    return lambda run: ratio(quantity(run), quantity(find_twin(run, name)))


def find_twin(run: Run, name: str) -> Run:
    """Return the run with the same seed of a setting; a run without rows if there is none."""
    return run.experiment.named(f"{name}, seed {run.settings.seed}")


def claim_trend(
    text: str,
    key: str,
    *,
    source: str,
    where: Callable[[Runs], Runs],
    split: str = "train",
    rises: bool = False,
    factor: float = FACTOR,
    **fields: Any,
) -> Claim:
    """Make a claim that a metric falls, or rises, by a factor over training, in every setting.

    Args:
        text: Text of the claim.
        key: Key of the metric.
        source: Owner of the claim.
        where: Function that selects the runs.
        split: ``"train"`` or ``"test"``.
        rises: Claim that the metric rises if True.
        factor: Least factor between the first and the last value.
        fields: Further fields of `Claim`.
    """

    def tell(runs: Runs) -> str:
        pairs = [ends(skip_start(run, split), key) for run in runs]
        first, last = (average([pair[index] for pair in pairs]) for index in (0, 1))
        return f"from {first:.3g} to {last:.3g} in the mean"

    return Claim(
        text=text,
        source=source,
        quantity=change(key, split),
        region=above(factor) if rises else below(1 / factor),
        scale="ratio",
        where=where,
        groups=name_setting,
        unit="settings",
        tell=tell,
        **fields,
    )


def claim_parts(setting: str, ending: str = "") -> list[Claim]:
    """Make the claims of section 4.1: the variance within classes falls on V_B, and rises off V_B.

    The paper states the direction only, so the factor is 1.

    Args:
        setting: Name of the setting.
        ending: Words that end the texts of the claims.
    """
    claim = partial(claim_trend, source="VCI, figure 1", where=of_settings(setting), factor=1)
    on, off = (f"the variance within classes {part} V_B" for part in ("on", "off"))
    return [
        claim(f"{on} falls{ending}", "within_in_signal"),
        claim(f"{off} rises{ending}", "within_off_signal", rises=True),
    ]


def share_off_signal(run: Run) -> list[float]:
    """Return the share of the variance within classes off V_B, from the untrained network on."""
    path = run.path()
    inside, outside = values(path, "within_in_signal"), values(path, "within_off_signal")
    return [ratio(off, on + off) for on, off in zip(inside, outside, strict=True)] or [nan]


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
    spectra = measured[-1].model_record.layers[-1].spectra if measured else {}
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


def draw_parts(runs: Sequence[Run]) -> Drawing:
    """Draw figure 1: the variance within classes on and off V_B, one column a run."""

    def panel(run: Run, share: bool, axes: Axes) -> None:
        path = skip_start(run)
        on, off = values(path, "within_in_signal"), values(path, "within_off_signal")
        squared = values(path, "nc1_quotient")
        trace = [ratio(a + b, both) for a, b, both in zip(on, off, squared, strict=True)]
        units = trace if share else [1.0] * len(path)
        for label, course, colour in (
            ("on $V_B$", on, panels.ACCENT),
            ("off $V_B$", off, panels.SECOND),
        ):
            drawn = [ratio(value, unit) for value, unit in zip(course, units, strict=True)]
            at = values(path, "epoch")
            axes.plot(at, drawn, "o-", color=colour, markersize=2.6, label=label)
        logarithmic_values(axes)
        label_few_decades(axes)
        axes.set_xlabel("epoch")
        if not share:
            axes.set_title(run.name)
        if run is runs[0]:
            axes.set_ylabel("part of squared distance" if share else "variance within classes")

    rows = [[partial(panel, run, share) for run in runs] for share in (False, True)]
    return Drawing(
        "fig-1",
        "VCI figure 1: the variance within classes on V_B, the span of the centred class means, "
        "and off V_B, on training images; below, divided by the trace of Sigma_B, so that the two "
        "curves add up to the squared distance.",
        draw_grid(rows, cell=(3.4, 2.5), legend="first", share_x=True),
    )


def draw_spectra(runs: Sequence[Run]) -> Drawing:
    """Draw figure 2: the eigenvalues of Sigma_B and Sigma_T against their index."""

    def panel(run: Run, axes: Axes) -> None:
        between, total = read_spectra(run)
        for label, drawn, colour in (
            (r"$\Sigma_T$", total, panels.SECOND),
            (r"$\Sigma_B$", between, panels.ACCENT),
        ):
            index = range(1, len(drawn) + 1)
            axes.plot(index, drawn, "o-", color=colour, markersize=2.6, label=label)
        logarithmic_values(axes)
        axes.set_xlabel("index")
        axes.set_title(run.name)

    return Drawing(
        "fig-2",
        "VCI figure 2: eigenvalues of Sigma_B, up to its largest possible rank, and of Sigma_T, on "
        "training images at the last epoch.",
        draw_grid([[partial(panel, run) for run in runs]], cell=(3.6, 3.1), legend="first"),
    )


def draw_metrics(number: int, subject: str, runs: Sequence[Run]) -> Drawing:
    """Draw the four metrics on training images: one panel a metric, one curve a run.

    Args:
        number: Number of the paper's figure.
        subject: Words that end the caption.
        runs: The runs.
    """
    curves = {run.name: skip_start(run) for run in runs}
    row = [partial(draw_course, curves, key, capitalise(title)) for key, title in METRICS.items()]
    names = "fuzziness, squared distance, cosine distance and VCI on training images"
    return Drawing(
        f"fig-{number}",
        f"VCI figure {number}: {names}, {subject}.",
        draw_grid([row], cell=(3, 2.8), legend="below"),
    )


def draw_held_out(runs: Sequence[Run]) -> list[Drawing]:
    """Draw figures 6 and 8: metrics on training and held-out images, one column a run."""

    def panel(run: Run, key: str, axes: Axes) -> None:
        curves = {split: skip_start(run, split) for split in ("train", "test")}
        draw_course(curves, key, run.name, axes)
        axes.set_ylabel(METRICS[key] if run is runs[0] else "")

    last = "VCI figure 6: VCI on training and on held-out images."
    others = "VCI figure 8: the three other metrics on training and on held-out images."
    rest = [key for key in METRICS if key != "vci"]
    return [
        Drawing(
            name,
            caption,
            draw_grid(
                [[partial(panel, run, key) for run in runs] for key in keys],
                cell=(3.4, 2.4),
                legend="first",
                share_y="row",
            ),
        )
        for name, caption, keys in (("fig-6", last, ["vci"]), ("fig-8", others, rest))
    ]


def capitalise(text: str) -> str:
    """Begin a text with a capital letter, and leave its other letters as they are."""
    return text[:1].upper() + text[1:]


def draw_course(curves: Mapping[str, Path], key: str, title: str, axes: Axes) -> None:
    """Draw a metric against the epoch, on a linear axis as in the paper."""
    draw_paths(axes, curves, key)
    axes.set_xscale("linear")
    axes.set_xlim(left=0)
    axes.set_title(title)
    label_few_decades(axes)


def label_few_decades(axes: Axes) -> None:
    """Label 1, 2, 3 and 5 of each decade by plain numbers: the curves span one or two decades."""
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
