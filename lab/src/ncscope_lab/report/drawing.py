"""A figure for a report and for a separate file."""

import io
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """A Matplotlib figure with its name and caption.

    Attributes:
        name: Name of the figure's file, without suffix.
        caption: Subject of the figure and the expected result, in one or two sentences.
        figure: Matplotlib figure, drawn with the style `panels.STYLE`.
    """

    name: str
    caption: str
    figure: Figure


def render(drawing: Drawing, suffix: Literal["svg", "pdf"]) -> bytes:
    """Render a figure to a file's bytes, which are the same for the same figure.

    Args:
        drawing: Figure to render.
        suffix: Format of the file.
    """
    buffer = io.BytesIO()
    date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}[suffix]
    with mpl.rc_context({"svg.hashsalt": drawing.name}):
        drawing.figure.savefig(buffer, format=suffix, metadata=date)
    return buffer.getvalue()
