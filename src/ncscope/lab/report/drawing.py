"""A figure for a report and for a separate file."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    figure: "Figure"
