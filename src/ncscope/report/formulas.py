r"""LaTeX formulas as inline SVG, so that a page looks alike wherever it is opened.

Matplotlib's mathtext sets the formula with a font of its own, and the glyphs become one path. The
page needs no font, no script and no network; the path takes the colour of the text around it.
"""

from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path as File
from typing import Any

import matplotlib as mpl
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.path import Path
from matplotlib.textpath import TextToPath

from ncscope.report.mathtext import Reader, cut_for_lines, joined

# Computer Modern, whatever a user has set for figures.
_FONTS = "cm"
_SETTINGS: Any = {
    "mathtext.default": mpl.rcParamsDefault["mathtext.default"],
    "mathtext.fallback": mpl.rcParamsDefault["mathtext.fallback"],
}

# Path coordinates are whole numbers of 1/500 em: 0.03 pixels at the size of a page's text.
_EM = 500
# A formula of more tokens may break into lines after a relation or an operator.
_LONG = 16


@cache
def formula(latex: str, *, display: bool = False) -> str:
    r"""Set a LaTeX formula as inline SVG.

    The formula is cut into pieces after the relations and operators outside of its brackets if it
    is long; a browser may begin a line at each of them.

    Args:
        latex: Formula without dollar signs; not from outside, for a bad one is an error.
        display: Set fractions and limits at full height, as on a line of their own.

    Returns:
        HTML, safe to put into a page, without ids; empty for an empty formula.

    Raises:
        ValueError: If the formula cannot be set.

    Example:
        >>> formula(r"\sqrt K").partition("<svg")[0]
        '<span class="formula" role="img" aria-label="\\sqrt K">'
    """
    if not latex.strip():
        return ""
    try:
        reader = Reader(latex, display=display)
        atoms = reader.everything()
        parts = cut_for_lines(atoms) if len(reader.tokens) > _LONG else [atoms]
        drawn = [_typesetter().draw(joined(part)) for part in parts]
    except ValueError as error:
        msg = f"cannot set the formula {latex!r}: {_reason(error)}"
        raise ValueError(msg) from None
    label = escape(" ".join(latex.split()))
    return f'<span class="formula" role="img" aria-label="{label}">{"<wbr>".join(drawn)}</span>'


def _reason(error: ValueError) -> str:
    """Return the last line of what mathtext's parser says."""
    return str(error).strip().rpartition("\n")[2]


_Point = tuple[int, int]
_LETTERS = {Path.LINETO: "l", Path.CURVE3: "q", Path.CURVE4: "c"}


def _unit(length: float) -> int:
    return round(length * _EM / TextToPath.FONT_SCALE)


def _em(length: int) -> str:
    return f"{length / _EM:g}em"


class _Contour:
    """A closed line of a glyph, as commands of an SVG path relative to the point before."""

    def __init__(self, start: list[_Point]) -> None:
        self.points = start
        self.commands = ""
        self._letter = "m"

    def append(self, letter: str, points: list[_Point]) -> None:
        """Add a line or a curve to the last of the points."""
        base_x, base_y = self.points[-1]
        numbers = _numbers((x - base_x, y - base_y) for x, y in points)
        if letter != self._letter:
            self.commands += letter
        elif not numbers.startswith("-"):
            self.commands += " "
        self.commands += numbers
        self.points.extend(points)
        self._letter = letter


class _Drawing:
    """A path in the making, and the box around it; the vertical axis points down."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._pen = (0, 0)
        self._corners = [(0, 0)]

    def contours(self, contours: Iterable[_Contour], x: int, y: int) -> None:
        """Draw the outline of a glyph, its origin at a point."""
        for contour in contours:
            points = [(x + right, y + down) for right, down in contour.points]
            self._closed(points, contour.commands)

    def rule(self, left: int, right: int, top: int, bottom: int) -> None:
        """Draw a filled rectangle."""
        across, down = right - left, bottom - top
        self._closed([(left, top), (right, bottom)], f"h{across}v{down}h{-across}")

    def svg(self, width: int) -> str:
        """Return the element; at least as wide as the glyphs are."""
        across, down = [x for x, _ in self._corners], [y for _, y in self._corners]
        left, right = min(across), max(*across, width)
        top, bottom = min(down), max(down)
        return (
            f'<svg width="{_em(right - left)}" height="{_em(bottom - top)}" '
            f'style="vertical-align:{_em(-bottom)}" viewBox="{left} {top} {right - left} '
            f'{bottom - top}" fill="currentColor" aria-hidden="true">'
            f'<path d="{"".join(self._words)}"/></svg>'
        )

    def _closed(self, points: list[_Point], commands: str) -> None:
        x, y = points[0]
        self._words.append(f"m{_numbers([(x - self._pen[0], y - self._pen[1])])}{commands}z")
        self._pen = (x, y)
        self._corners.extend(points)


def _numbers(points: Iterable[_Point]) -> str:
    """Write coordinates; a minus sign needs no space before it."""
    return " ".join(f"{x} {y}" for x, y in points).replace(" -", "-")


class _Typesetter:
    """Matplotlib's mathtext with one font, and the glyphs that it has used so far."""

    def __init__(self) -> None:
        self._text_to_path = TextToPath()
        self._font = FontProperties(math_fontfamily=_FONTS, size=TextToPath.FONT_SCALE)
        self._glyphs: dict[str, tuple[Any, Any]] = {}
        self._bars: dict[str, float] = {}
        for bar in (r"\vert", r"\Vert"):
            [(name, *_)], _, width = self._set(bar)
            self._bars[name] = width

    def draw(self, mathtext: str) -> str:
        """Return an SVG element that holds a formula, or a piece of one."""
        glyphs, rules, width = self._set(mathtext)
        # A bar that is as high as a fraction is not as thick: it grows in height only, and what
        # follows moves to the left.
        saved = [
            (x, (size - 1) * self._bars[name])
            for name, x, _, size in glyphs
            if name in self._bars and size > 1
        ]

        def place(x: float) -> int:
            return _unit(x - sum(length for bar, length in saved if bar < x))

        drawing = _Drawing()
        for name, x, y, size in glyphs:
            across = min(size, 1.0) if name in self._bars else size
            drawing.contours(self._outline(name, across, size), place(x), -_unit(y))
        for corners, _ in rules:
            (left, low), (right, high) = corners[0], corners[2]
            drawing.rule(place(left), place(right), -_unit(high), -_unit(low))
        return drawing.svg(place(width))

    def _set(self, mathtext: str) -> tuple[list[Any], list[Any], float]:
        """Return the glyphs with their positions, the rules, and the width."""
        source = f"${mathtext}$"
        with mpl.rc_context(_SETTINGS):
            placed, outlines, rules = self._text_to_path.get_glyphs_mathtext(self._font, source)
            width, _, _ = self._text_to_path.get_text_width_height_descent(source, self._font, True)
        self._glyphs.update(outlines)
        return placed, rules, float(width)

    @cache  # noqa: B019 - there is one typesetter
    def _outline(self, name: str, across: float, up: float) -> list[_Contour]:
        vertices, codes = self._glyphs[name]
        contours: list[_Contour] = []
        for points, code in Path(vertices * [across, -up], codes).iter_segments(simplify=False):
            here = [(_unit(x), _unit(y)) for x, y in zip(points[::2], points[1::2], strict=True)]
            if code == Path.MOVETO:
                contours.append(_Contour(here))
            elif code != Path.CLOSEPOLY:
                contours[-1].append(_LETTERS[code], here)
        return contours


@cache
def _typesetter() -> _Typesetter:
    _list_bundled_fonts()
    return _Typesetter()


def _list_bundled_fonts() -> None:
    """Add Matplotlib's bundled fonts to its list of fonts where they are missing.

    The list is read from the user's cache folder. A Matplotlib that was being removed can have
    written it there without them; formulas would then have the letters of another font.
    """
    listed = {font.fname for font in fontManager.ttflist}
    for file in sorted(File(mpl.get_data_path(), "fonts", "ttf").glob("*.ttf")):
        if str(file) not in listed:
            fontManager.addfont(file)
