r"""LaTeX formulas as inline SVG, so that a page looks alike wherever it is opened.

Matplotlib's mathtext sets the formula with a font of its own, and the glyphs become one path. The
page needs no font, no script and no network; the path takes the colour of the text around it.

MathML would need no code for this, and browsers render it, but only as well as the fonts allow. It
needs a font with a table for mathematics, which Debian does not install with a browser. Without
one (Chromium 150 with DejaVu), norm bars do not grow with the fraction between them, brackets are
three lines high around one letter, primes vanish and superscripts stand above the line.

A screen reader says the formula in words, which this module writes first. Then it reads LaTeX and
writes the spelling that mathtext understands; the rest draws what mathtext sets.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path as File
from typing import Any

import matplotlib as mpl
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.path import Path
from matplotlib.textpath import TextToPath

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


_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)
_SYMBOL = re.compile(r"\\.+|[\w+*/<>=:,.;!?()\[\]|-]|[^\x00-\x7f]")

# Spellings that mathtext does not know, or that it would space as relations also in a script.
_SPELLINGS = {
    r"\le": r"\leq", r"\ge": r"\geq", r"\ne": r"\neq", r"\to": r"\rightarrow",
    r"\dots": "…", r"\ldots": "…", r"\top": "⊤", r"\perp": "⊥", r"\dagger": "†",
    r"\lVert": r"\Vert", r"\rVert": r"\Vert", r"\|": r"\Vert",
    r"\lvert": r"\vert", r"\rvert": r"\vert", "|": r"\vert", "Π": r"\Pi",
}  # fmt: skip
# The font has these brackets in the size of a text line under other names only.
_SMALL = {r"\{": r"\lbrace", r"\}": r"\rbrace", r"\langle": "⟨", r"\rangle": "⟩"}
_DOUBLE_STRUCK = {"R": "ℝ", "E": "𝔼"}
_RELATIONS = frozenset(
    [
        *("=", "<", ">", ":", r"\leq", r"\geq", r"\neq", r"\rightarrow", r"\mapsto", r"\in"),
        *(r"\subset", r"\approx", r"\propto", r"\mid", r"\succeq"),
    ]
)
_BINARY = frozenset(
    [r"+", r"-", r"\pm", r"\times", r"\otimes", r"\odot", r"\cdot", r"\cap", r"\cup"]
)
_OPENING = frozenset(["(", "[", r"\{", r"\langle", r"\lVert", r"\lvert"])
_CLOSING = frozenset([")", "]", r"\}", r"\rangle", r"\rVert", r"\rvert"])
_PUNCTUATION = frozenset([",", ";"])
_LIMITS = frozenset([r"\sum", r"\prod", r"\min", r"\max"])
_NAMES = frozenset([r"\log", r"\exp", r"\cos", r"\sin", r"\tan", r"\arg", r"\min", r"\max"])
_ACCENTS = frozenset([r"\tilde", r"\bar", r"\hat", r"\dot"])
_FRACTIONS = frozenset([r"\frac", r"\tfrac", r"\dfrac"])
_UNCHANGED = _ACCENTS | {r"\sqrt", r"\overline", r"\mathbf", r"\mathrm", r"\mathcal"}
_LEFT = frozenset([r"\left", r"\bigl", r"\Bigl", r"\biggl", r"\Biggl"])
_RIGHT = frozenset([r"\right", r"\bigr", r"\Bigr", r"\biggr", r"\Biggr"])
_SIZES = _LEFT | _RIGHT
_SPACES = frozenset((r"\,", r"\;", r"\:", r"\ ", r"\!", r"\quad", r"\qquad"))


_SPOKEN = {
    "=": "equals", "+": "plus", "-": "minus", "/": "over", "<": "less than", ">": "greater than",
    "'": "prime", "|": "bar", r"\mid": "given", r"\odot": "times", r"\times": "times",
    r"\propto": "proportional to", r"\le": "at most", r"\leq": "at most", r"\ge": "at least",
    r"\geq": "at least", r"\ne": "not equal to", r"\neq": "not equal to", r"\to": "to",
    r"\in": "in", r"\approx": "about", r"\sum": "sum", r"\prod": "product", r"\log": "log",
    r"\exp": "exp", r"\cos": "cosine", r"\min": "minimum", r"\max": "maximum",
    r"\lVert": "norm of", r"\rVert": "end norm", r"\lvert": "size of", r"\rvert": "end size",
    r"\langle": "inner product of", r"\rangle": "end product", r"\{": "{", r"\}": "}",
    r"\top": "transposed", r"\dagger": "pseudo-inverse", r"\perp": "perpendicular",
    r"\ell": "l", r"\dots": "and so on", r"\ldots": "and so on", r"\quad": ",",
}  # fmt: skip
_SPOKEN_ACCENTS = {r"\bar": "bar", r"\overline": "bar", r"\hat": "hat", r"\tilde": "tilde"}
_SPOKEN_POWERS = {"2": "squared", "3": "cubed", "minus 1": "inverse", "transposed": "transposed"}
_SPOKEN_POWERS |= {word: word for word in ("prime", "pseudo-inverse", "perpendicular")}
_SILENT = _SIZES | _SPACES | {r"\mathbf", r"\mathrm", r"\mathcal", r"\mathbb", r"\operatorname"}


def speak_formula(latex: str) -> str:
    r"""Write a LaTeX formula in words, for a screen reader.

    Args:
        latex: Formula without dollar signs.

    Example:
        >>> speak_formula(r"\operatorname{Tr}\Sigma_W/\operatorname{Tr}\Sigma_B")
        'Tr Sigma sub W over Tr Sigma sub B'
        >>> speak_formula(r"\frac{\lVert\tilde\mu_c\rVert^2}{K-1}")
        'fraction norm of mu tilde sub c end norm squared over K minus 1 end fraction'
    """
    tokens = [token for token in _TOKEN.findall(latex) if token not in _SILENT]
    tokens.reverse()

    def read(*, argument: bool = False) -> str:
        """Return the words of the next symbol or group; an argument is one digit, not a number."""
        while tokens and tokens[-1].isspace():
            tokens.pop()
        token = tokens.pop() if tokens else ""
        if token == "{":
            words = []
            while tokens and tokens[-1] != "}":
                words.append(read())
                while tokens and tokens[-1].isspace():
                    tokens.pop()
            tokens[-1:] = []
            # Letters in a row, such as those of a name, are one word.
            letters = "" if any(len(word) > 1 for word in words) else "".join(words)
            return letters if letters.isalpha() and len(letters) > 1 else join(words)
        if token == r"\text":
            end = len(tokens) - 1 - tokens[::-1].index("}")
            text = "".join(reversed(tokens[end + 1 : -1])).strip()
            del tokens[end:]
            return text
        if token in _FRACTIONS:
            above, below = read(argument=True), read(argument=True)
            short = " " not in above + below
            return (
                f"{above} over {below}" if short else f"fraction {above} over {below} end fraction"
            )
        if token == r"\sqrt":
            return f"root of {read()}"
        if token in _SPOKEN_ACCENTS:
            return f"{read()} {_SPOKEN_ACCENTS[token]}"
        if token == "_":
            return f"sub {read(argument=True)}"
        if token == "^":
            power = read(argument=True)
            return _SPOKEN_POWERS.get(power, f"to the power {power}")
        while token.isdigit() and not argument and tokens and tokens[-1].isdigit():
            token += tokens.pop()
        return _SPOKEN.get(token, token.removeprefix("\\"))

    def join(words: Iterable[str]) -> str:
        text = " ".join(word for word in words if word)
        return re.sub(r"(?<=[(\[{]) | (?=[)\]},;])", "", text)

    words = []
    while tokens:
        words.append(read())
    return join(words)


@dataclass(frozen=True)
class Atom:
    """One symbol or group with its scripts, in mathtext.

    Attributes:
        text: Source for mathtext.
        kind: ``"ordinary"``, ``"operator"``, ``"binary"``, ``"relation"``, ``"open"``,
            ``"close"``, ``"bar"``, ``"punctuation"``, ``"text"`` or ``"space"``.
    """

    text: str
    kind: str = "ordinary"


def join_atoms(atoms: list[Atom]) -> str:
    """Write the atoms one after the other, a thin space on the sides of an operator."""
    words = []
    for index, atom in enumerate(atoms):
        before = atoms[index - 1].kind if index else "open"
        if (atom.kind == "operator" and before in ("ordinary", "close", "operator")) or (
            before == "operator" and atom.kind == "ordinary"
        ):
            words.append(r"\,")
        words.append(atom.text)
    return " ".join(words)


def cut_for_lines(atoms: list[Atom]) -> Iterator[list[Atom]]:
    """Cut a formula where a line may end: after relations and operators outside of brackets."""
    part: list[Atom] = []
    depth, in_bars = 0, False
    for atom in atoms:
        part.append(atom)
        depth += (atom.kind == "open") - (atom.kind == "close")
        # A bar opens and closes with the same symbol, so that only their number tells.
        in_bars ^= atom.kind == "bar"
        if depth == 0 and not in_bars and atom.kind in ("binary", "relation", "space"):
            yield part
            part = []
    if part:
        yield part


class Reader:
    """One pass over the tokens of a formula, which writes what mathtext understands."""

    def __init__(self, latex: str, *, display: bool) -> None:
        self.tokens = _TOKEN.findall(latex)
        self.index = 0
        self.display = display
        self.in_script = False

    def _peek(self) -> str:
        """Return the next token that is not white space; empty at the end."""
        while self.index < len(self.tokens) and self.tokens[self.index].isspace():
            self.index += 1
        return self.tokens[self.index] if self.index < len(self.tokens) else ""

    def _take(self) -> str:
        """Return the next token and pass it.

        Raises:
            ValueError: If there is none.
        """
        token = self._peek()
        if not token:
            msg = "it ends too early"
            raise ValueError(msg)
        self.index += 1
        return token

    def read_formula(self) -> list[Atom]:
        """Read the whole formula.

        Raises:
            ValueError: If a brace closes that was never opened.
        """
        atoms = self._read_row()
        if self._peek():
            msg = f"unexpected {self._peek()}"
            raise ValueError(msg)
        return atoms

    def _read_row(self) -> list[Atom]:
        r"""Read atoms with their scripts up to a closing brace, a ``\right``, or the end."""
        atoms: list[Atom] = []
        while self._peek() and self._peek() != "}" and self._peek() not in _RIGHT:
            token = self._peek()
            before = atoms[-1].kind if atoms else "open"
            base = Atom("{}") if token in ("_", "^") else self._read_atom(before)
            scripts = {"_": "", "^": ""}
            while self._peek() and self._peek() in "_^'":
                mark = self._take()
                if mark == "'":
                    scripts["^"] += r"\prime"
                    continue
                outside = self.in_script, self.display
                self.in_script, self.display = True, False
                scripts[mark] += self._read_argument()
                self.in_script, self.display = outside
            text = base.text
            under, over = scripts["_"], scripts["^"]
            if (under or over) and token in _ACCENTS:
                # Scripts stand as high as beside the letter alone, not as beside a tall box.
                text += "{}"
            if (under or over) and token in _LIMITS and not self.display:
                # In braces, a sum is no operator to mathtext, which would put limits below it.
                text = f"{{{text}}}"
            text += f"_{{{under}}}" * bool(under) + f"^{{{over}}}" * bool(over)
            atoms.append(Atom(text, base.kind))
        return atoms

    def _read_atom(self, before: str) -> Atom:
        """Read a symbol or a command with its arguments, after an atom of the kind ``before``."""
        token = self._take()
        if token == "{":
            return Atom(f"{{{self._read_group()}}}")
        if token in _SPACES:
            return Atom(token, "space" if "quad" in token else "ordinary")
        if token in _LEFT:
            left, inner = self._take(), join_atoms(self._read_row())
            if self._take() not in _RIGHT:
                msg = r"\left without \right"
                raise ValueError(msg)
            left, right = (_SPELLINGS.get(bracket, bracket) for bracket in (left, self._take()))
            return Atom(rf"\left{left} {inner} \right{right}")
        if token in _FRACTIONS:
            # A fraction within a fraction is small, whatever the size of the outer one.
            outside, full = self.display, self.display and token != r"\tfrac"
            self.display = False
            above, below = self._read_argument(), self._read_argument()
            self.display = outside
            return Atom(rf"\{'dfrac' if full else 'frac'}{{{above}}}{{{below}}}")
        if token == r"\mathbb":
            letter = self._read_argument()
            return Atom(rf"\mathrm{{{_DOUBLE_STRUCK.get(letter, letter)}}}")
        if token == r"\operatorname":
            return Atom(rf"\mathrm{{{self._read_argument()}}}", "operator")
        if token == r"\text":
            return Atom(rf"\text{{{self._read_raw_group()}}}", "text")
        if token in _UNCHANGED:
            return Atom(rf"{token}{{{self._read_argument()}}}")
        if not _SYMBOL.fullmatch(token):
            msg = f"there is no symbol {token}"
            raise ValueError(msg)
        name = _SMALL.get(token) or _SPELLINGS.get(token, token)
        if token in _NAMES and not (self.display and token in _LIMITS):
            return Atom(rf"\mathrm{{{token[1:]}}}", "operator")
        if token in _LIMITS:
            return Atom(name, "operator")
        if name in _RELATIONS:
            return Atom(rf"\! {name} \!" if self.in_script else name, "relation")
        if name in _BINARY:
            unary = before in ("open", "relation", "binary", "punctuation", "operator", "space")
            return Atom(f"{{{name}}}") if unary or self.in_script else Atom(name, "binary")
        if token in _OPENING:
            return Atom(name, "open")
        if token in _CLOSING:
            return Atom(name, "close")
        if token in _PUNCTUATION:
            return Atom(name, "punctuation")
        return Atom(name, "bar" if name in (r"\vert", r"\Vert") else "ordinary")

    def _read_argument(self) -> str:
        """Read one atom or a braced group."""
        if self._peek() == "{":
            self._take()
            return self._read_group()
        return self._read_atom("open").text

    def _read_group(self) -> str:
        """Read up to the closing brace and pass it."""
        text = join_atoms(self._read_row())
        if self._take() != "}":
            msg = "a brace is not closed"
            raise ValueError(msg)
        return text

    def _read_raw_group(self) -> str:
        """Read a braced group as it stands."""
        if self._take() != "{" or "}" not in self.tokens[self.index :]:
            msg = r"\text without braces"
            raise ValueError(msg)
        end = self.tokens.index("}", self.index)
        text = "".join(self.tokens[self.index : end])
        self.index = end + 1
        return text


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
        '<span class="formula" role="img" aria-label="root of K">'
    """
    if not latex.strip():
        return ""
    try:
        reader = Reader(latex, display=display)
        atoms = reader.read_formula()
        parts = cut_for_lines(atoms) if len(reader.tokens) > _LONG else [atoms]
        pieces = [_load_typesetter().draw(join_atoms(part)) for part in parts]
    except ValueError as error:
        # Mathtext's parser shows the whole source first; its last line says what is wrong.
        reason = str(error).strip().rpartition("\n")[2]
        msg = f"cannot set the formula {latex!r}: {reason}"
        raise ValueError(msg) from None
    label = escape(speak_formula(latex))
    return f'<span class="formula" role="img" aria-label="{label}">{"<wbr>".join(pieces)}</span>'


_Point = tuple[int, int]
_LETTERS = {Path.LINETO: "l", Path.CURVE3: "q", Path.CURVE4: "c"}


def _to_units(length: float) -> int:
    return round(length * _EM / TextToPath.FONT_SCALE)


def _format_em(length: int) -> str:
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
        numbers = _format_points((x - base_x, y - base_y) for x, y in points)
        if letter != self._letter:
            self.commands += letter
        elif not numbers.startswith("-"):
            self.commands += " "
        self.commands += numbers
        self.points.extend(points)
        self._letter = letter


class _SvgPath:
    """A path in the making, and the box around it; the vertical axis points down."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._pen = (0, 0)
        self._corners = [(0, 0)]

    def add_contours(self, contours: Iterable[_Contour], x: int, y: int) -> None:
        """Draw the outline of a glyph, its origin at a point."""
        for contour in contours:
            points = [(x + right, y + down) for right, down in contour.points]
            self._add_loop(points, contour.commands)

    def add_rule(self, left: int, right: int, top: int, bottom: int) -> None:
        """Draw a filled rectangle."""
        across, down = right - left, bottom - top
        self._add_loop([(left, top), (right, bottom)], f"h{across}v{down}h{-across}")

    def format_svg(self, width: int) -> str:
        """Return the element; at least as wide as the glyphs are."""
        across, down = [x for x, _ in self._corners], [y for _, y in self._corners]
        left, right = min(across), max(*across, width)
        top, bottom = min(down), max(down)
        return (
            f'<svg width="{_format_em(right - left)}" height="{_format_em(bottom - top)}" '
            f'style="vertical-align:{_format_em(-bottom)}" viewBox="{left} {top} {right - left} '
            f'{bottom - top}" fill="currentColor" aria-hidden="true">'
            f'<path d="{"".join(self._words)}"/></svg>'
        )

    def _add_loop(self, points: list[_Point], commands: str) -> None:
        """Add a closed line, which begins at the first of the points."""
        x, y = points[0]
        self._words.append(f"m{_format_points([(x - self._pen[0], y - self._pen[1])])}{commands}z")
        self._pen = (x, y)
        self._corners.extend(points)


def _format_points(points: Iterable[_Point]) -> str:
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
            [(name, *_)], _, width = self._lay_out(bar)
            self._bars[name] = width

    def draw(self, mathtext: str) -> str:
        """Return an SVG element that holds a formula, or a piece of one."""
        glyphs, rules, width = self._lay_out(mathtext)
        # A bar that is as high as a fraction is not as thick: it grows in height only, and what
        # follows moves to the left.
        saved = [
            (x, (size - 1) * self._bars[name])
            for name, x, _, size in glyphs
            if name in self._bars and size > 1
        ]

        def place(x: float) -> int:
            return _to_units(x - sum(length for bar, length in saved if bar < x))

        path = _SvgPath()
        for name, x, y, size in glyphs:
            across = min(size, 1.0) if name in self._bars else size
            path.add_contours(self._trace_outline(name, across, size), place(x), -_to_units(y))
        for corners, _ in rules:
            (left, low), (right, high) = corners[0], corners[2]
            path.add_rule(place(left), place(right), -_to_units(high), -_to_units(low))
        return path.format_svg(place(width))

    def _lay_out(self, mathtext: str) -> tuple[list[Any], list[Any], float]:
        """Return the glyphs with their positions, the rules, and the width."""
        source = f"${mathtext}$"
        with mpl.rc_context(_SETTINGS):
            placed, outlines, rules = self._text_to_path.get_glyphs_mathtext(self._font, source)
            width, _, _ = self._text_to_path.get_text_width_height_descent(source, self._font, True)
        self._glyphs.update(outlines)
        return placed, rules, float(width)

    @cache  # noqa: B019 - there is one typesetter
    def _trace_outline(self, name: str, across: float, up: float) -> list[_Contour]:
        vertices, codes = self._glyphs[name]
        contours: list[_Contour] = []
        for points, code in Path(vertices * [across, -up], codes).iter_segments(simplify=False):
            # Rounded before differences are taken, so that errors do not add up along a line.
            here = [
                (_to_units(x), _to_units(y)) for x, y in zip(points[::2], points[1::2], strict=True)
            ]
            if code == Path.MOVETO:
                contours.append(_Contour(here))
            elif code != Path.CLOSEPOLY:
                contours[-1].append(_LETTERS[code], here)
        return contours


@cache
def _load_typesetter() -> _Typesetter:
    # Matplotlib reads its list of fonts from the user's cache folder. A Matplotlib that was being
    # removed can have written it there without the bundled fonts; formulas would then have the
    # letters of another font.
    listed = {font.fname for font in fontManager.ttflist}
    for file in sorted(File(mpl.get_data_path(), "fonts", "ttf").glob("*.ttf")):
        if str(file) not in listed:
            fontManager.addfont(file)
    return _Typesetter()
