"""A figure that goes into a report and into a file of its own."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """A Matplotlib figure with what a reader needs to read it.

    Attributes:
        name: Name of its file, without a suffix.
        caption: Subject of the figure and what to look for, in one or two sentences.
        figure: Drawn under `panels.STYLE`.
    """

    name: str
    caption: str
    figure: "Figure"
