"""Matplotlib panels: each draws one thing on axes that it is given."""

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.metrics.metric import Metric
from ncscope.report.curves import (
    SPECTRUM_TITLES,
    collect_layer_values,
    geodesic_curves,
    list_layers,
    relative_positions,
    select_drawable,
)
from ncscope.report.labels import SHORT_TITLES, find_label, find_value, is_fixed
from ncscope.report.wording import COUNTS, format_figure_text, format_plain

ACCENT, SECOND, SOFT, GRID = "#0b6a70", "#c2570c", "#6b747b", "#e4e6e2"
SERIES = ("#0b6a70", "#c2570c", "#44398a", "#7a8288", "#a8761a")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": "#1d2327",
    "ytick.labelcolor": "#1d2327",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    # Names are never read as TeX; `format_figure_text` escapes what mathtext would read.
    "text.usetex": False,
    "text.parse_math": True,
}
"""Settings under which every figure is drawn; global ones stay as they are."""


class ReportFigure(Figure):
    """Figure whose PDF and PostScript files hold TrueType fonts, of type 42.

    Publishers refuse Matplotlib's default, type 3. The setting counts when a file is written, which
    is after the figure was drawn.
    """

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        """Write the figure as `matplotlib.figure.Figure.savefig` does."""
        with mpl.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):
            super().savefig(*args, **kwargs)


DASHED = (0, (3, 2))
_MARKERS = ("o", "D", "s", "^", "v")
# A panel is wide enough for the labels of so many marks.
_MOST_MARKS = 5
_LONGEST_LABEL = 15
"""Letters of an axis's label that fit beside a panel of a paper's figure."""


def make_cosine_colours() -> Colormap:
    """Return the colours of cosines: orange through paper white to blue."""
    return LinearSegmentedColormap.from_list("cosine", ["#b8560b", "#f7f7f4", "#0b5d8a"])


def place_on_log_axis(values: Sequence[float], scale: Sequence[float]) -> list[float]:
    """Return values as they stand on a logarithmic axis: 0 below the scale, NaN below 0.

    Args:
        values: Values of a curve.
        scale: All values on the axis.
    """
    zero = _place_zero(scale)
    return [zero if value == 0 else value if value > 0 else math.nan for value in values]


def _place_zero(scale: Sequence[float]) -> float:
    """Return where the mark of 0 stands: below all values, by a share of their range or more."""
    logs = [math.log10(value) for value in scale if 0 < value < math.inf]
    if not logs:
        return 1.0
    return float(10 ** (min(logs) - max(0.15 * (max(logs) - min(logs)), 0.15)))


def make_logarithmic(axes: Axes, way: Literal["x", "y"], scale: Sequence[float]) -> None:
    """Make an axis logarithmic, with round marks and, if a value is 0, a grey strip for it.

    Args:
        axes: Axes on which everything is drawn, as `place_on_log_axis` places it.
        way: Axis to change.
        scale: All values on the axis.
    """
    positive = [value for value in scale if 0 < value < math.inf]
    zero = _place_zero(scale) if 0 in scale else None
    if positive or zero:
        axes.set(**{f"{way}scale": "log"})
    _mark_round_values(axes, way, zero, positive, empty=not positive)


def is_logarithmic(key: str, scale: Sequence[float]) -> bool:
    """Return whether the axis of a metric is logarithmic: of all that fall towards 0.

    Args:
        key: Key of the metric.
        scale: All values on the axis, of which one at least is positive and none is negative.
    """
    label = find_label(key)
    falls = label.log_scale or (label.better == "low" and label.at_collapse is None)
    return falls and max(scale, default=0.0) > 0 and min(scale) >= 0


def collect_pfc_values(model: ModelRecord, key: str) -> list[float]:
    """Return all values that `draw_pfc` draws."""
    places = relative_positions(model)
    values = zip(model.layers, collect_layer_values(model, key), strict=True)
    measurements = [value for record, value in values if not places or record.layer in places]
    if not places or model.geodesic is None:
        return measurements
    return measurements + geodesic_curves(model.geodesic)[key]


def draw_pfc(
    axes: Axes,
    model: ModelRecord,
    key: str,
    colour: str = ACCENT,
    prediction_colour: str = SECOND,
    name: str = "measured",
    scale: Sequence[float] = (),
) -> None:
    """Draw a metric of every layer against its position, with the geodesic's prediction.

    Against relative position where it is known, of the comparable layers only; else against
    the layer's place.

    Args:
        axes: Axes to draw on.
        model: Measurement of several layers.
        key: ``"pfc1"``, ``"pfc2"`` or ``"pfc3"``.
        colour: Colour of the measured values.
        prediction_colour: Colour of the prediction.
        name: Name in the legend.
        scale: All values on the axes, if several measurements are drawn on them.
    """
    label, places = find_label(key), relative_positions(model)
    scale = scale or collect_pfc_values(model, key)
    log = label.log_scale and any(value > 0 for value in scale)

    def place(values: Sequence[float]) -> Sequence[float]:
        return place_on_log_axis(values, scale) if log else values

    values = collect_layer_values(model, key)
    records = list(zip(model.layers, values, strict=True))
    if places:
        points = [(places[r.layer], value) for r, value in records if r.layer in places]
        axes.set_xlabel("relative position")
        if model.geodesic is not None:
            predicted = place(geodesic_curves(model.geodesic)[key])
            axes.plot(model.geodesic.t, predicted, color=prediction_colour, linestyle=DASHED)
    else:
        points = [(float(index), value) for index, value in enumerate(values)]
        _name_layers(axes, [record.layer for record in model.layers])
    x, y = [at for at, _ in points], place([value for _, value in points])
    axes.plot(x, y, "o-", color=colour, markersize=4.5, linewidth=0.8, label=name)
    if log:
        make_logarithmic(axes, "y", scale)
    axes.set_title(f"{key.upper()}: {label.title[:1].lower()}{label.title[1:]}")


def draw_gram(axes: Axes, gram: Sequence[Sequence[float]], title: str) -> AxesImage:
    """Draw the cosines between class means as a picture."""
    image = axes.imshow(np.asarray(gram, dtype=float), cmap=make_cosine_colours(), vmin=-1, vmax=1)
    axes.set_title(title)
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    return image


def simplex_cosines(count: int) -> list[list[float]]:
    """Return the cosines of the simplex equiangular tight frame."""
    off = -1 / (count - 1) if count > 1 else 0.0
    return [[1.0 if row == column else off for column in range(count)] for row in range(count)]


def draw_spectra(axes: Axes, record: LayerRecord) -> None:
    """Draw the eigenvalues of the covariances against index, both axes logarithmic."""
    colours = {"total": SOFT, "within": SECOND, "between": ACCENT}
    is_empty = True
    for name, colour in colours.items():
        if values := record.spectra.get(name):
            index, visible, _ = select_drawable(name, values)
            is_empty = is_empty and not visible
            axes.plot(
                index, visible, "o-", color=colour, markersize=3, linewidth=0.9,
                label=SPECTRUM_TITLES[name],
            )  # fmt: skip
    if not is_empty:  # a logarithmic axis refuses to be empty
        axes.set_xscale("log")
        axes.set_yscale("log")
        _mark_round_values(axes, "x")
        _mark_round_values(axes, "y")
    axes.set_xlabel("index")
    axes.set_title("Covariance eigenvalues")
    axes.legend()


def draw_key_metrics(axes: Axes, record: LayerRecord, labels: Sequence[Metric]) -> None:
    """Draw values as dots on a logarithmic axis, the number beside each; NaN as text alone."""
    values = [find_value(record.metrics, label.key) for label in labels]
    places = range(len(labels))[::-1]
    scale = [value for value in values if value is not None and math.isfinite(value)]
    for place, value in zip(places, values, strict=True):
        if value is not None and math.isfinite(value):
            axes.plot(place_on_log_axis([value], scale), [place], "o", color=ACCENT, markersize=6)
    make_logarithmic(axes, "x", scale)
    axes.set_yticks(list(places), [label.title for label in labels])
    axes.set_ylim(-0.6, len(labels) - 0.4)
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(
        list(places), ["" if value is None else format_plain(value) for value in values]
    )
    beside.spines[:].set_visible(False)
    axes.tick_params(axis="y", length=0)
    beside.tick_params(axis="y", length=0)
    axes.set_title("Key metrics")


def _mark_round_values(
    axes: Axes,
    way: Literal["x", "y"],
    zero: float | None = None,
    positive: Sequence[float] = (),
    empty: bool = False,
) -> None:
    """Mark a logarithmic axis at round values, so few that their labels do not touch.

    An axis without two round values is widened to the next ones: marks at equal distances and of
    equal differences would be read as those of a linear axis. Small marks at 2, 3, ..., 9 times the
    powers of ten show what the axis is.

    Matplotlib labels 2, 3, 4, ... times a power of ten where an axis spans about one, and these
    labels overlap.

    Args:
        axes: Axes with the logarithmic axis.
        way: Axis to mark.
        zero: Place of the value 0, below all others; None without such a value.
        positive: Values on the axes, and on those that share their scale.
        empty: No value is positive if True: there are no other marks.
    """
    axis = axes.xaxis if way == "x" else axes.yaxis
    begin, end = axes.get_xlim() if way == "x" else axes.get_ylim()
    begin, end = min([begin, *positive]), max([end, *positive])
    low, high = begin, end
    if zero is not None:  # no mark so near to that of 0 that their labels touch
        begin = min(begin, zero * (zero / high) ** 0.05)
        low = zero * (high / zero) ** 0.14
    marks: list[float] = []
    powers = range(0)
    if not empty:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for multiples in ((1, 2, 5), (1, 3), (1,)):
            # Read from text, since 3 * 10**-1 is not 0.3.
            marks = [float(f"{many}e{power}") for power in powers for many in multiples]
            marks = [mark for mark in marks if low <= mark <= high]
            if len(marks) <= _MOST_MARKS:
                break
        else:
            marks = marks[:: math.ceil(len(marks) / _MOST_MARKS)]
        if len(marks) < (2 if zero is None else 1):
            near = [
                float(f"{many}e{power}")
                for power in range(powers[0] - 1, powers[-1] + 1)
                for many in (1, 1.5, 2, 3, 5, 7)
            ]
            if zero is None:
                begin = low = max(mark for mark in near if mark <= low)
            end = high = min(mark for mark in near if mark >= high)
            marks = sorted({*marks, high, *([low] if zero is None else [])})
    as_powers = bool(marks) and (marks[0] < 1e-3 or marks[-1] >= 1e4)

    def format_mark(mark: float) -> str:
        if not as_powers:
            return f"{mark:g}"
        factor, _, exponent = f"{mark:.1e}".partition("e")
        times = "" if factor == "1.0" else rf"{float(factor):g}\times"
        return rf"${times}10^{{{int(exponent)}}}$"

    zeros = [] if zero is None else [zero]
    axis.set_major_locator(FixedLocator([*zeros, *marks]))
    axis.set_major_formatter(FixedFormatter(["0" for _ in zeros] + list(map(format_mark, marks))))
    between = [float(f"{many}e{power}") for power in powers for many in range(2, 10)]
    axis.set_minor_locator(FixedLocator([mark for mark in between if low <= mark <= high]))
    axis.set_minor_formatter(NullFormatter())
    if zero is not None and positive:
        border = math.sqrt(zero * min(positive))
        span = axes.axvspan if way == "x" else axes.axhspan
        span(begin, border, color=GRID, linewidth=0, zorder=0)
    if not empty:
        axes.set(**{f"{way}lim": (begin, end)})


def place_steps(axes: Axes, times: Sequence[float], unit: str) -> list[float]:
    """Label the axis of steps, and return where each step stands.

    Counts that are far apart at the end, as powers of two are, stand at log(1 + t).

    Args:
        axes: Axes whose abscissa shows the steps.
        times: Steps of all curves on the axes.
        unit: Unit of the steps.
    """
    distinct = sorted(set(times))
    label = format_figure_text(unit)
    is_count = unit in COUNTS and distinct[0] >= 0
    middle = distinct[len(distinct) // 2] - distinct[0]
    if not is_count or len(distinct) < 3 or 4 * middle >= distinct[-1] - distinct[0]:
        axes.set_xlabel(label)
        if all(float(time).is_integer() for time in distinct):
            most = 4 if len(f"{distinct[-1]:.0f}") <= 3 else 2  # labels of a narrow panel
            axes.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10], integer=True))
        return list(times)
    last, marks = distinct[-1], [0]
    for power in range(len(str(int(last)))):
        marks += [step * 10**power for step in (1, 2, 5)] if last < 1000 else [10**power]
    marks = sorted({mark for mark in marks if distinct[0] <= mark <= last})
    marks = _thin_marks(axes, marks, last)
    axes.xaxis.set_major_locator(FixedLocator([math.log10(1 + mark) for mark in marks]))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{mark:,}" for mark in marks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"{label}, as log(1 + t)")
    return [math.log10(1 + time) for time in times]


def _thin_marks(axes: Axes, marks: Sequence[int], last: float) -> list[int]:
    """Leave out marks whose labels would touch the next one's; the last stays."""
    figure = axes.get_figure(root=True)
    inches = axes.get_position().width * (1.0 if figure is None else figure.get_figwidth())
    letter = 0.65 * mpl.rcParams["font.size"] / 72  # inches, with some air
    thin: list[int] = []
    for mark in reversed(marks):
        if thin:
            gap = inches * math.log((1 + thin[0]) / (1 + mark)) / math.log(1 + last)
            if gap < letter * (len(f"{mark:,}{thin[0]:,}") / 2 + 1):
                continue
        thin.insert(0, mark)
    return thin


def draw_history(
    axes: Axes, times: Sequence[float], curves: Mapping[str, Sequence[float]], unit: str
) -> None:
    """Draw metrics of one layer on a logarithmic axis; see `place_steps` for the other axis."""
    at = place_steps(axes, times, unit)
    scale = [value for values in curves.values() for value in values]
    for place, (key, values) in enumerate(curves.items()):
        label = find_label(key).title
        axes.plot(
            at,
            place_on_log_axis(values, scale),
            marker=_MARKERS[place % 5],
            color=SERIES[place % 5],
            markersize=4,
            label=label,
        )
    make_logarithmic(axes, "y", scale)
    if curves:
        axes.legend()


_MOST_DOTS = 12
"""Most dots on a curve."""


def draw_runs(
    axes: Axes, runs: Mapping[str, Mapping[str, Sequence[Measurement]]], key: str, unit: str
) -> None:
    """Draw one metric of the last layer against the step: a colour a run, a dash a split.

    The splits of a single run have colours too.
    """
    lines: list[tuple[int, int, str, list[float], list[float]]] = []
    has_fixed = False
    for colour, (run, splits) in enumerate(runs.items()):
        for dash, (split, of_split) in enumerate(splits.items()):
            last_layers = [each.model_record.last for each in of_split]
            if all(is_fixed(key, record.k) for record in last_layers):
                has_fixed = True
                continue
            values = [
                _find_metric(each, record.layer, key)
                for each, record in zip(of_split, last_layers, strict=True)
            ]
            if not all(map(math.isnan, values)):
                several = (run if len(runs) > 1 else "", split if len(splits) > 1 else "")
                name = ", ".join(filter(None, several))
                shade = colour if len(runs) > 1 else dash
                lines.append((shade, dash, name, [each.step for each in of_split], values))
    if has_fixed:
        _say_fixed(axes, key, has_curves=bool(lines))
    if has_fixed and not lines:
        return
    every = [step for *_, steps, _ in lines for step in steps]
    scale = [value for *_, values in lines for value in values if math.isfinite(value)]
    log = is_logarithmic(key, scale)
    places = iter(place_steps(axes, every, unit)) if every else iter(())
    for colour, dash, name, steps, values in lines:
        axes.plot(
            [next(places) for _ in steps],
            place_on_log_axis(values, scale) if log else values,
            # A colour for each run: of more runs than colours, from dark to light.
            color=SERIES[colour % len(SERIES)]
            if len(runs) <= len(SERIES)
            else colormaps["viridis"](0.9 * colour / (len(runs) - 1)),
            linestyle=DASHED if dash else "-",
            linewidth=1.1,
            marker=_MARKERS[colour % len(_MARKERS)],
            markersize=2.6,
            # Hollow dots tell the splits apart where curves cover each other, and few of them
            # leave the dashes to be seen.
            markerfacecolor="white" if dash else None,
            markeredgewidth=0.8,
            markevery=math.ceil(len(steps) / _MOST_DOTS),
            label=format_figure_text(name) if name else None,
        )
    if log:
        make_logarithmic(axes, "y", scale)
    _name_metric(axes, key)


def _name_metric(axes: Axes, key: str) -> None:
    # The panel's title says which of NC1 to NC4 it is.
    title = SHORT_TITLES.get(key) or re.sub(r"^NC\d: ", "", find_label(key).title)
    axes.set_ylabel(textwrap.fill(title[:1].upper() + title[1:], _LONGEST_LABEL))


def _say_fixed(axes: Axes, key: str, *, has_curves: bool = False) -> None:
    """Say that two classes fix a metric, in the place of a curve that would look like collapse."""
    fixed = find_label(key).for_two_classes
    assert fixed is not None, "the callers asked is_fixed"
    value = format_plain(fixed)
    text, at = f"{value} by construction:\ntwo classes", 0.5
    if has_curves:
        text, at = f"not drawn: {value} of two classes", 0.95
    axes.text(
        0.5, at, text, transform=axes.transAxes, ha="center", va="center" if at == 0.5 else "top",
        color=SOFT,
    )  # fmt: skip
    if not has_curves:
        axes.set(xticks=[], yticks=[])
        _name_metric(axes, key)


def draw_layers(axes: Axes, model: ModelRecord, key: str) -> None:
    """Draw one metric of every layer that has it, in forward order.

    Args:
        axes: Axes to draw on.
        model: Measurement of several layers.
        key: Key of the metric.
    """
    if all(is_fixed(key, record.k) for record in model.layers):
        _say_fixed(axes, key)
        return
    values = collect_layer_values(model, key)
    scale = [value for value in values if math.isfinite(value)]
    log = is_logarithmic(key, scale)
    drawn = place_on_log_axis(values, scale) if log else values
    axes.plot(range(len(values)), drawn, "o-", color=ACCENT, markersize=3.5)
    _name_layers(axes, [record.layer for record in model.layers])
    if log:
        make_logarithmic(axes, "y", scale)
    _name_metric(axes, key)


def _name_layers(axes: Axes, names: Sequence[str]) -> None:
    """Name layers below the axis, so few that the names fit."""
    every = max(1, math.ceil(len(names) / 10))
    # Counted from the end, so that the last layer is named always.
    ticks = range((len(names) - 1) % every, len(names), every)
    axes.set_xticks(
        ticks, [format_figure_text(names[tick]) for tick in ticks], rotation=40, ha="right"
    )
    axes.set_xlabel("layer")


def collect_metric_values(measurements: Sequence[Measurement], key: str) -> list[float]:
    """Return all values that `draw_metric` draws."""
    return [
        value
        for each in measurements
        for record in each.model_record.layers
        if math.isfinite(value := _find_metric(each, record.layer, key))
    ]


def draw_metric(
    axes: Axes,
    splits: Mapping[str, Sequence[Measurement]],
    key: str,
    unit: str,
    scale: Sequence[float],
) -> None:
    """Draw one metric of every layer against the step; splits after the first are dashed.

    Args:
        axes: Axes to draw on.
        splits: Measurements by split.
        key: Key of the metric.
        unit: Unit of the steps.
        scale: All values on the axes, and on those that share their scale.
    """
    names = list_layers(each.model_record for of_split in splits.values() for each in of_split)
    log = is_logarithmic(key, scale)
    for rank, (split, of_split) in enumerate(splits.items()):
        for index, name in enumerate(names):
            values = [_find_metric(each, name, key) for each in of_split]
            if all(map(math.isnan, values)):
                continue
            depth = index / (len(names) - 1) if len(names) > 1 else 1.0
            axes.plot(
                [each.step for each in of_split],
                place_on_log_axis(values, scale) if log else values,
                # Darker from the first to the last layer; the first yellows vanish on white.
                color=colormaps["viridis_r"](0.15 + 0.85 * depth),
                linestyle=DASHED if rank else "-",
                marker=_MARKERS[rank % 5],
                markersize=3,
                label=format_figure_text(", ".join(([name] if len(names) > 1 else []) + [split])),
            )
    if log:
        make_logarithmic(axes, "y", scale)
    axes.set_xlabel(format_figure_text(unit))


def _find_metric(measurement: Measurement, layer: str, key: str) -> float:
    """Return a metric of one layer, or a further number beside the last one's; NaN without."""
    if key in measurement.values and layer == measurement.model_record.last.layer:
        return measurement.values[key]
    values = (
        find_value(record.metrics, key)
        for record in measurement.model_record.layers
        if record.layer == layer
    )
    return next((value for value in values if value is not None), math.nan)
