"""Figures of the central path: growth, collapse, discrete algorithm and unrestricted flow."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.lab.observations import Observation
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.histories import logarithmic_values
from ncscope.lab.report.rows import numbers, part_of
from ncscope.report.labels import find_label
from ncscope.report.panels import ACCENT, DASHED, SECOND, SERIES, SOFT, STYLE

FLOWS = (("projected", ACCENT, "1/4"), ("renormalised", SECOND, "1/2"))
_SIZE = (7.6, 3.1)


def drawings(config: Any, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw the figures; all numbers come from the rows."""
    with mpl.rc_context(STYLE):
        return [
            Drawing(
                "growth",
                "Singular values of the signal-to-noise matrix: simulated features (dots) and "
                "closed forms (lines). Dashed: the common asymptote.",
                _growth(rows),
            ),
            Drawing(
                "limits",
                "The limits of MSE corollaries 1 and 2. Left: singular values become equal. Right: "
                "features over the largest singular value tend to the simplex of the first "
                "singular vectors.",
                _limits(rows),
            ),
            Drawing(
                "collapse",
                "NC1 to NC4 along both flows; time is in units of n K^2.",
                _collapse(config, rows),
            ),
            Drawing(
                "descent",
                "Gradient steps, each followed by renormalisation. Left: the largest singular "
                "value and both laws. Right: largest relative deviation at the last time; the "
                "algorithm converges to the renormalised law, not to the projected law.",
                _descent(config, rows),
            ),
            Drawing(
                "unrestricted",
                "Gradient flow of classifier and features together, from the least-squares "
                "classifier and from a random one: parts of the MSE loss over time in units of "
                "n K. The part off the central path is small.",
                _unrestricted(config, rows),
            ),
        ]


def _positive(path: Sequence[Observation], key: str) -> list[float]:
    """Return the values for a logarithmic axis, with NaN in place of zero."""
    return [value if value > 0 else float("nan") for value in numbers(path, key)]


def _growth(rows: Sequence[Observation]) -> Figure:
    figure = Figure(figsize=_SIZE, layout="constrained")
    for axes, (part, _, power) in zip(figure.subplots(1, 2), FLOWS, strict=True):
        path = part_of(rows, part)[1:]
        times = numbers(path, "time")
        for index, key in enumerate(k for k in path[0].values if k.startswith("closed_")):
            colour = SERIES[index % len(SERIES)]
            name = key.removeprefix("closed_")
            axes.plot(times, numbers(path, key), color=colour, linewidth=1)
            axes.plot(
                times, numbers(path, f"omega_{name}"), "o", color=colour, markersize=2.6,
                label=rf"$\omega_{{{name}}}$",
            )  # fmt: skip
        exponent = {"1/4": 0.25, "1/2": 0.5}[power]
        last = float(path[-1]["closed_1"])
        guide = [last * (time / times[-1]) ** exponent for time in times]
        shown = [(t, y) for t, y in zip(times, guide, strict=True) if y > float(path[0]["omega_1"])]
        axes.plot(*zip(*shown, strict=True), color=SOFT, linestyle=DASHED, linewidth=0.9,
                  label=f"slope {power}")  # fmt: skip
        _logarithmic(axes, "time t", f"{part.capitalize()} flow")
        if len([k for k in path[0].values if k.startswith("closed_")]) <= 5:
            axes.legend()
    return figure


def _limits(rows: Sequence[Observation]) -> Figure:
    figure = Figure(figsize=_SIZE, layout="constrained")
    left, right = figure.subplots(1, 2)
    for part, colour, _ in FLOWS:
        path = part_of(rows, part)[1:]
        times = numbers(path, "time")
        gaps = [value - 1 for value in numbers(path, "ratio")]
        left.plot(times, gaps, "o-", color=colour, markersize=2.6, label=part)
        right.plot(times, numbers(path, "limit_distance"), "o-", color=colour, markersize=2.6,
                   label=part)  # fmt: skip
    _logarithmic(left, "time t", r"$\omega_{\max}/\omega_{\min}-1$")
    _logarithmic(right, "time t", r"Distance of $X/\omega_{\max}$ from its limit")
    left.legend()
    return figure


def _collapse(config: Any, rows: Sequence[Observation]) -> Figure:
    figure = Figure(figsize=(7.6, 5.2), layout="constrained")
    keys = ("nc1", "nc2_etf", "nc3_self_duality", "nc4_disagreement")
    for axes, key in zip(figure.subplots(2, 2).flat, keys, strict=True):
        for part, colour, _ in FLOWS:
            path = part_of(rows, part)[1:]
            times = [time / config.unit for time in numbers(path, "time")]
            axes.plot(times, numbers(path, key), "o-", color=colour, markersize=2.6, label=part)
        title = find_label(key).title.removeprefix("NC1: ")
        _logarithmic(
            axes,
            "time in units of $nK^2$",
            f"{key[:3].upper()}: {title}",
            key != "nc4_disagreement",
        )
    figure.axes[0].legend()
    return figure


def _descent(config: Any, rows: Sequence[Observation]) -> Figure:
    figure = Figure(figsize=_SIZE, layout="constrained")
    left, right = figure.subplots(1, 2)
    runs = [part_of(rows, f"descent in {m} steps") for m in config.descent_steps]
    for law, colour, _ in FLOWS:
        at = [time / config.unit for time in numbers(runs[-1], "time")]
        left.plot(at, numbers(runs[-1], f"{law}_1"), color=colour, label=f"{law} law")
        rates = [float(path[-1]["rate"]) / config.unit for path in runs]
        gaps = [float(path[-1][f"{law}_deviation"]) for path in runs]
        right.plot(rates, gaps, "o-", color=colour, markersize=4, label=f"from the {law} law")
    for index, path in enumerate(runs):
        at = [time / config.unit for time in numbers(path, "time")]
        shade = 0.25 + 0.75 * index / max(1, len(runs) - 1)
        left.plot(at, numbers(path, "omega_1"), "o", color="#1d2327", alpha=shade, markersize=3,
                  label=f"{config.descent_steps[index]:,} steps")  # fmt: skip
    left.set_xlabel("time in units of $nK^2$")
    left.set_title(r"$\omega_1$ under renormalised steps")
    left.legend(fontsize=7)
    _logarithmic(right, "step size in units of $nK^2$", "Relative deviation")
    right.legend()
    return figure


def _unrestricted(config: Any, rows: Sequence[Observation]) -> Figure:
    figure = Figure(figsize=_SIZE, layout="constrained")
    starts = ("on the path", "off the path")
    curves = (
        ("mse_loss", "#1d2327", r"$\mathcal{L}$"),
        ("mse_nc1", ACCENT, r"$\mathcal{L}_{NC1}$"),
        ("mse_nc23", SERIES[2], r"$\mathcal{L}_{NC2/3}$"),
        ("mse_off_path", SECOND, r"$\mathcal{L}_{LS}^\perp$"),
    )
    for axes, start in zip(figure.subplots(1, 2, sharey=True), starts, strict=True):
        path = part_of(rows, f"unrestricted, {start}")[1:]
        unit = config.num_classes * config.per_class
        times = [time / unit for time in numbers(path, "time")]
        for key, colour, name in curves:
            axes.plot(times, _positive(path, key), color=colour, label=name)
        axes.plot(times, _positive(path, "classifier_distance"), color=SOFT, linestyle=DASHED,
                  label=r"$\|W-W_{LS}\|/\|W_{LS}\|$")  # fmt: skip
        _logarithmic(axes, "time in units of $nK$", f"Started {start}")
    figure.axes[0].legend(fontsize=7)
    return figure


def _logarithmic(axes: Axes, across: str, title: str, both: bool = True) -> None:
    axes.set_xscale("log")
    if both:
        logarithmic_values(axes)
    axes.set_xlabel(across)
    axes.set_title(title)
