"""Picture and table of the similarity between layers."""

import math
from html import escape

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.errors import printable
from ncscope.measurement.similarity import SimilarityRecord
from ncscope.report import panels
from ncscope.report.names import figure_text

_NUMBERED = 12
"""Most layers of a side for which the picture shows the numbers."""

_NAMED = 30
"""Most layer names beside an axis."""


def similarity_figure(record: SimilarityRecord) -> Figure:
    """Draw the CKA of all pairs of layers as a picture, first layers at the lower left.

    Args:
        record: CKA between layers.

    Returns:
        A figure that belongs to no window; ``figure.savefig("x.png")`` writes it.
    """
    values = np.asarray(record.values, dtype=float)
    height, width = (2.2 + 0.42 * min(size, _NAMED) for size in values.shape)
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(width + 1.2, height), layout="constrained")
        axes = figure.add_subplot()
        least = min(0.0, float(np.nanmin(values, initial=0.0)))
        image = axes.imshow(values, origin="lower", cmap="viridis", vmin=least, vmax=1)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        _name(axes, "x", record.columns)
        _name(axes, "y", record.rows)
        axes.set_title(f"CKA between layers, {record.num_samples:,} samples")
        axes.set_xlabel("layer of the other model" if record.two_models else "layer")
        axes.set_ylabel("layer of the model" if record.two_models else "layer")
        if max(values.shape) <= _NUMBERED:
            _number(axes, values, least)
        figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def _name(axes: Axes, way: str, names: tuple[str, ...]) -> None:
    every = math.ceil(len(names) / _NAMED)
    shown = range(0, len(names), every)
    texts = [figure_text(names[index]) for index in shown]
    if way == "x":
        axes.set_xticks(shown, texts, rotation=40, ha="right")
    else:
        axes.set_yticks(shown, texts)


def _number(axes: Axes, values: np.ndarray, least: float) -> None:
    for (row, column), value in np.ndenumerate(values):
        dark = not math.isnan(value) and value < least + 0.6 * (1 - least)
        text = "–" if math.isnan(value) else f"{value:.2f}"
        colour = "white" if dark else "#1d2327"
        axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=colour)


def similarity_table(record: SimilarityRecord) -> str:
    """Build an HTML table of the CKA of all pairs of layers, for a notebook.

    Args:
        record: CKA between layers.
    """
    head = "".join(f"<th>{_text(name)}</th>" for name in record.columns)
    body = "".join(
        f"<tr><th>{_text(name)}</th>{''.join(map(_cell, row))}</tr>"
        for name, row in zip(record.rows, record.values, strict=True)
    )
    caption = f"CKA between layers, {record.num_samples:,} samples"
    return f"<table><caption>{caption}</caption><tr><th></th>{head}</tr>{body}</table>"


def _text(name: str) -> str:
    return escape(printable(name))


def _cell(value: float) -> str:
    if math.isnan(value):
        return "<td>undefined</td>"
    share = min(max(value, 0.0), 1.0)
    return f'<td style="background:rgba(49,104,142,{0.6 * share:.2f})">{value:.3f}</td>'
