"""Output to the terminal, in which names are shown as text and never interpreted."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ncscope.errors import printable


class Terminal(Console):
    """A console that shows names from files and models as plain text.

    Control characters appear as visible escapes. Markup and emoji codes of rich appear unchanged: a
    layer may be named ``[red]`` or ``:warning:``.

    Args:
        stderr: Write to standard error if True.
        options: Options of rich's console.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render anything with printable text; all output passes through this method."""
        if isinstance(renderable, str):
            renderable = printable(renderable, keep="\n")
        elif isinstance(renderable, Text):
            renderable = _printable(renderable)
        return super().render(renderable, options)


def _printable(text: Text) -> Text:
    plain = printable(text.plain, keep="\n")
    if plain == text.plain:
        return text
    shown = text.copy()
    shown.plain = plain
    return shown
