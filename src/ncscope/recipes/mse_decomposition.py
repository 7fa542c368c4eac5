"""The parts of the MSE loss while networks train: is the classifier the least-squares one?

Source: MSE section 2, theorems 1 and 2, figure 2. Command: ``ncscope reproduce
mse/decomposition``. Settings of both scales: `ncscope.recipes.mse_training`.

What came out at the small scale (seed 0): the NC2/3 part fell fastest, by factors of 233 to 7570
up to zero error, and at the end the NC1 part was the largest in all five networks, as in the
paper. The part off the central path was not negligible: at the end 14 to 76 % of the least-squares
part. The classifier is the least-squares one of features normalised by batches, not of those
measured, which are normalised by running averages: of the VGG on digits, after 40 epochs, it was
off by 50 % for these and by 3 % for those. In batches of 128 it is off by less.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from ncscope.probing.records import Row
from ncscope.recipes.mse_training import (
    MSETraining,
    curves,
    grid,
    paper_runs,
    small_runs,
    terminal_phase,
    zero_error,
)
from ncscope.recipes.recipe import Claim, Part, Recipe
from ncscope.recipes.trained import history, training_parts, values
from ncscope.report import panels
from ncscope.report.drawing import Drawing

GROUPS = ("nc4", "mse")
NEGLIGIBLE = 0.1
"""Below which share of the other parts one is called negligible; the paper names none."""

CURVES: Mapping[str, tuple[str, str]] = {
    "mse_nc1": ("NC1", panels.ACCENT),
    "mse_nc23": ("NC2/3", panels.SERIES[2]),
    "mse_off_path": ("off the central path", panels.SERIES[4]),
}
"""The parts of the loss, with the name and the colour of each curve."""


def parts(config: MSETraining) -> list[Part]:
    """A part for each network."""
    return training_parts(config.runs)


def claims(config: MSETraining, rows: Sequence[Row]) -> list[Claim]:
    """Which part of the loss is negligible, which dominates and which is first to go."""
    names = list(config.runs)
    paths = {name: history(rows, name) for name in names}
    return [
        zero_error(rows, names),
        _negligible(paths),
        _early(rows, paths),
        _dominant(paths),
        _fastest(rows, names),
    ]


def _shares(path: Sequence[Row]) -> list[float]:
    """Part off the central path, as a share of the least-squares part."""
    parts_of = (values(path, key) for key in CURVES)
    return [off / (nc1 + nc23) for nc1, nc23, off in zip(*parts_of, strict=True)]


def _negligible(paths: Mapping[str, Sequence[Row]]) -> Claim:
    last = {name: _shares(path)[-1] for name, path in paths.items()}
    good = [share < NEGLIGIBLE for share in last.values()]
    words = [f"{name}: {share:.1%}" for name, share in last.items()]
    return {
        "claim": f"At the end the part off the central path is below {NEGLIGIBLE:.0%} of the "
        "least-squares part, in every network",
        "held": len(good) > 0 and all(good),
        "evidence": f"in {sum(good)} of {len(good)} networks; {'; '.join(words)}",
    }


def _early(rows: Sequence[Row], paths: Mapping[str, Sequence[Row]]) -> Claim:
    good, words = [], []
    for name, path in paths.items():
        ends, since = terminal_phase(rows, name), _negligible_since(path)
        good.append(ends is not None and since is not None and since <= int(ends[0]["epoch"]))
        when = "at no epoch" if since is None else f"from epoch {since} on"
        zero = "never" if ends is None else f"from epoch {ends[0]['epoch']} on"
        words.append(f"{name}: {when}, zero error {zero}")
    return {
        "claim": f"It is below {NEGLIGIBLE:.0%} at every epoch from zero training error on, if not "
        "before, in every network",
        "held": len(good) > 0 and all(good),
        "evidence": f"in {sum(good)} of {len(good)} networks; {'; '.join(words)}",
    }


def _negligible_since(path: Sequence[Row]) -> int | None:
    """The epoch from which on it is, at all that were measured; None if not even at the last."""
    shares = _shares(path)
    first = max((at + 1 for at, share in enumerate(shares) if share >= NEGLIGIBLE), default=0)
    return int(path[first]["epoch"]) if first < len(path) else None


def _dominant(paths: Mapping[str, Sequence[Row]]) -> Claim:
    ends = {name: [float(path[-1][key]) for key in CURVES] for name, path in paths.items()}
    good = [nc1 > max(others) for nc1, *others in ends.values()]
    words = [
        f"{name}: {nc1:.2g}, {nc23:.2g} and {off:.2g}" for name, (nc1, nc23, off) in ends.items()
    ]
    return {
        "claim": "At the end the NC1 part of the loss is the largest, in every network",
        "held": len(good) > 0 and all(good),
        "evidence": f"in {sum(good)} of {len(good)} networks; parts NC1, NC2/3 and off the path; "
        + "; ".join(words),
    }


def _fastest(rows: Sequence[Row], names: Sequence[str]) -> Claim:
    """By the factors from the largest value up to zero error to the value there."""
    good, words = [], []
    for name in names:
        ends = terminal_phase(rows, name)
        if ends is None:
            good.append(False)
            words.append(f"{name}: never at zero error")
            continue
        reached = int(ends[0]["epoch"])
        before = [row for row in history(rows, name) if int(row["epoch"]) <= reached]
        nc1, nc23, off = (max(values(before, key)) / values(before, key)[-1] for key in CURVES)
        good.append(nc23 > max(nc1, off))
        words.append(f"{name}: {nc1:.3g}, {nc23:.3g} and {off:.3g}")
    return {
        "claim": "From its largest value to zero training error the NC2/3 part falls by the "
        "largest factor, in every network",
        "held": len(good) > 0 and all(good),
        "evidence": f"in {sum(good)} of {len(good)} networks; factors of the parts NC1, NC2/3 and "
        f"off the path; {'; '.join(words)}",
    }


def drawings(config: MSETraining, rows: Sequence[Row]) -> list[Drawing]:
    """Figure 2 of the paper."""

    def draw(panel: Axes, names: Sequence[str]) -> None:
        for run in names:
            curves(panel, rows, run, CURVES)

    caption = (
        "MSE figure 2: parts of the MSE loss over training: what the least-squares classifier "
        "loses to variability (NC1) and to the class means (NC2/3), and what the classifier loses "
        "by not being that one (off the central path); the dashed line is the first epoch of zero "
        "training error."
    )
    return [Drawing("fig-2", caption, grid(config, list(config.runs), "part of the loss", draw))]


RECIPE: Recipe[MSETraining] = Recipe(
    id="mse/decomposition",
    title="The parts of the MSE loss while networks train",
    lead=(
        "The MSE loss is what the best classifier on the features would lose, to variability and "
        "to the class means, plus what the network's own classifier loses beyond that. The last "
        "part fades early: from then on the network is near the central path."
    ),
    source="MSE section 2, theorems 1 and 2, figure 2",
    config=MSETraining,
    parts=parts,
    claims=claims,
    drawings=drawings,
    columns=("epoch", "accuracy", "mse_loss", *CURVES),
    scales={
        "paper": MSETraining(runs=paper_runs(("mse",), GROUPS)),
        "small": MSETraining(runs=small_runs(("mse",), GROUPS)),
    },
    cost={"paper": "25 GPU-hours (estimated)", "small": "5 minutes on one core"},
)
