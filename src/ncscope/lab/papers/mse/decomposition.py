"""The parts of the MSE loss while networks train: is the classifier the least-squares one?

Source: MSE section 2, theorems 1 and 2, figure 2. Command: ``ncscope reproduce
mse/decomposition``. Settings of both scales: `ncscope.lab.papers.mse.training`.

Results at the small scale (seed 0): the NC2/3 part fell fastest, by factors of 233 to 7570 up to
zero error, and at the end the NC1 part was the largest in all five networks, as in the paper. The
part off the central path was not negligible: at the end it was 14 to 76 % of the least-squares
part. Training adapts the classifier to features normalised by batch statistics, but the
measurements use features normalised by running averages. In the VGG on digits after 40 epochs, the
classifier deviated from the least-squares classifier by 3 % for the former features and by 50 % for
the latter. In batches of 128 the deviation is smaller.
"""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.training import (
    ZERO_ERROR,
    MSETraining,
    curves,
    grid,
    paper_runs,
    small_runs,
    zero_error,
)
from ncscope.lab.papers.trained import (
    ends,
    history,
    interpolation_epoch,
    on_runs,
    ratio,
    training_parts,
    values,
)
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.report import panels
from ncscope.report.claims import Claim

GROUPS = ("nc4", "mse")
NEGLIGIBLE = 0.1
"""A part counts as negligible below this share of the others; the paper states no number."""

CURVES: Mapping[str, tuple[str, str]] = {
    "mse_nc1": ("NC1", panels.ACCENT),
    "mse_nc23": ("NC2/3", panels.SERIES[2]),
    "mse_off_path": ("off the central path", panels.SERIES[4]),
}
"""The parts of the loss, with the name and the colour of each curve."""


def _parts(config: MSETraining) -> list[Part]:
    """Return a part for each network."""
    return training_parts(config.runs)


def _claims(config: MSETraining, rows: Sequence[Observation]) -> list[Claim]:
    """Test which part of the loss is negligible, which dominates and which vanishes first."""
    paths = {name: history(rows, name) for name in config.runs}
    return [
        zero_error(rows, list(config.runs)),
        _negligible(paths),
        _early(paths),
        _dominant(paths),
        _fastest(paths),
    ]


def _parts_of_loss(path: Sequence[Observation]) -> list[list[float]]:
    return [values(path, key) for key in CURVES]


def _shares(path: Sequence[Observation]) -> list[float]:
    """Compute the part off the central path as a share of the least-squares part."""
    return [ratio(off, nc1 + nc23) for nc1, nc23, off in zip(*_parts_of_loss(path), strict=True)]


def _negligible(paths: Mapping[str, Sequence[Observation]]) -> Claim:
    shares = {name: (_shares(path) or [math.nan])[-1] for name, path in paths.items()}
    text = (
        f"At the end the part off the central path is below {NEGLIGIBLE:.0%} of the least-squares "
        "part, in every network"
    )
    return on_runs(
        text, {name: (one < NEGLIGIBLE, f"{one:.1%}") for name, one in shares.items()}, source="MSE"
    )


def _early(paths: Mapping[str, Sequence[Observation]]) -> Claim:
    verdicts = {}
    for name, path in paths.items():
        zero, since = interpolation_epoch(path, ZERO_ERROR), _negligible_since(path)
        epochs = ["at no epoch" if since is None else f"below from epoch {since} on"]
        epochs.append("zero error " + ("never" if zero is None else f"from epoch {zero:.0f} on"))
        held = zero is not None and since is not None and since <= zero
        verdicts[name] = held, ", ".join(epochs)
    text = (
        f"The part off the central path is below {NEGLIGIBLE:.0%} of the least-squares part at "
        "every epoch from zero training error on, if not before, in every network"
    )
    return on_runs(text, verdicts, source="MSE")


def _negligible_since(path: Sequence[Observation]) -> int | None:
    """Return the epoch from which on the off-path part is negligible; None if it never is."""
    large = [at for at, share in enumerate(_shares(path)) if not share < NEGLIGIBLE]
    rest = path[large[-1] + 1 :] if large else path
    return rest[0].epoch if rest else None


def _dominant(paths: Mapping[str, Sequence[Observation]]) -> Claim:
    verdicts = {}
    for name, path in paths.items():
        nc1, *others = (ends(path, key)[1] for key in CURVES)
        verdicts[name] = all(nc1 > part for part in others), _listed(nc1, *others)
    text = "At the end the NC1 part of the loss is the largest, in every network"
    return on_runs(text, verdicts, "parts NC1, NC2/3 and off the path; ", source="MSE")


def _fastest(paths: Mapping[str, Sequence[Observation]]) -> Claim:
    """Test which part falls fastest, by the factor from its largest value to that at zero error."""
    verdicts = {}
    for name, path in paths.items():
        zero = interpolation_epoch(path, ZERO_ERROR)
        if zero is None:
            verdicts[name] = False, "never at zero error"
            continue
        before = [row for row in path if row.epoch <= zero]
        nc1, nc23, off = (ratio(max(part), part[-1]) for part in _parts_of_loss(before))
        verdicts[name] = all(nc23 > part for part in (nc1, off)), _listed(nc1, nc23, off)
    text = (
        "From its largest value to zero training error the NC2/3 part falls by the largest factor, "
        "in every network"
    )
    return on_runs(
        text, verdicts, "factors of the parts NC1, NC2/3 and off the path; ", source="MSE"
    )


def _listed(nc1: float, nc23: float, off: float) -> str:
    return f"{nc1:.3g}, {nc23:.3g} and {off:.3g}"


def _drawings(config: MSETraining, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figure 2 of the paper."""

    def draw(panel: Axes, names: Sequence[str]) -> None:
        for run in names:
            curves(panel, rows, run, CURVES)

    caption = (
        "MSE figure 2: parts of the MSE loss over training: the loss of the least-squares "
        "classifier from variability (NC1) and from the class means (NC2/3), and the excess of the "
        "network's classifier (off the central path); the dashed line is the first epoch of zero "
        "training error."
    )
    return [Drawing("fig-2", caption, grid(config, list(config.runs), "part of the loss", draw))]


RECIPE: Recipe[MSETraining] = Recipe(
    id="mse/decomposition",
    title="The parts of the MSE loss while networks train",
    lead=(
        "The MSE loss is the loss of the best classifier on the features, from variability and "
        "from the class means, plus the excess loss of the network's classifier. The paper says "
        "that the excess fades early: from then on the network is near the central path."
    ),
    source="MSE section 2, theorems 1 and 2, figure 2",
    config=MSETraining,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    columns=("epoch", "accuracy", "mse_loss", *CURVES),
    scales={
        "paper": MSETraining(runs=paper_runs(("mse",), GROUPS)),
        "small": MSETraining(runs=small_runs(("mse",), GROUPS)),
    },
    cost={"paper": "25 GPU-hours (estimated)", "small": "5 minutes on one core"},
)
