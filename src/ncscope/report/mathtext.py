r"""LaTeX in the spelling that Matplotlib's mathtext understands, cut where a line may end."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
_FONT_COMMANDS = frozenset([r"\mathbf", r"\mathrm", r"\mathcal"])
_LEFT = frozenset([r"\left", r"\bigl", r"\Bigl", r"\biggl", r"\Biggl"])
_RIGHT = frozenset([r"\right", r"\bigr", r"\Bigr", r"\biggr", r"\Biggr"])
_SPACES = frozenset((r"\,", r"\;", r"\:", r"\ ", r"\!", r"\quad", r"\qquad"))


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


def joined(atoms: list[Atom]) -> str:
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

    def everything(self) -> list[Atom]:
        """Read the whole formula.

        Raises:
            ValueError: If a brace closes that was never opened.
        """
        atoms = self._row()
        if self._peek():
            msg = f"unexpected {self._peek()}"
            raise ValueError(msg)
        return atoms

    def _row(self) -> list[Atom]:
        r"""Read atoms up to a closing brace, a ``\right``, or the end."""
        atoms: list[Atom] = []
        while self._peek() and self._peek() != "}" and self._peek() not in _RIGHT:
            atoms.append(self._scripted(atoms[-1].kind if atoms else "open"))
        return atoms

    def _scripted(self, before: str) -> Atom:
        """Read one atom and its scripts."""
        token = self._peek()
        base = Atom("{}") if token in ("_", "^") else self._atom(before)
        scripts = {"_": "", "^": ""}
        while self._peek() and self._peek() in "_^'":
            mark = self._take()
            if mark == "'":
                scripts["^"] += r"\prime"
            else:
                scripts[mark] += self._script()
        text = base.text
        under, over = scripts["_"], scripts["^"]
        if (under or over) and token in _ACCENTS:
            # Scripts stand as high as beside the letter alone, not as beside a tall box.
            text += "{}"
        if (under or over) and token in _LIMITS and not self.display:
            text = f"{{{text}}}"
        text += f"_{{{under}}}" * bool(under) + f"^{{{over}}}" * bool(over)
        return Atom(text, base.kind)

    def _script(self) -> str:
        outside, self.in_script = (self.in_script, self.display), True
        self.display = False
        text = self._argument()
        self.in_script, self.display = outside
        return text

    def _atom(self, before: str) -> Atom:
        token = self._take()
        if token == "{":
            return Atom(f"{{{self._group()}}}")
        if token in _SPACES:
            return Atom(token, "space" if "quad" in token else "ordinary")
        if token in _LEFT:
            return self._delimited()
        if token in _FRACTIONS:
            return self._fraction(token)
        if token == r"\sqrt":
            return Atom(rf"\sqrt{{{self._argument()}}}")
        if token in _ACCENTS:
            return Atom(rf"{token}{{{self._argument()}}}")
        if token == r"\overline":
            return Atom(rf"\overline{{{self._argument()}}}")
        if token == r"\mathbb":
            letter = self._argument()
            return Atom(rf"\mathrm{{{_DOUBLE_STRUCK.get(letter, letter)}}}")
        if token in _FONT_COMMANDS:
            return Atom(f"{token}{{{self._argument()}}}")
        if token == r"\operatorname":
            return Atom(rf"\mathrm{{{self._argument()}}}", "operator")
        if token == r"\text":
            return Atom(rf"\text{{{self._raw()}}}", "text")
        return self._symbol(token, before)

    def _symbol(self, token: str, before: str) -> Atom:
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

    def _delimited(self) -> Atom:
        left = self._take()
        inner = joined(self._row())
        if self._take() not in _RIGHT:
            msg = r"\left without \right"
            raise ValueError(msg)
        right = self._take()
        return Atom(
            rf"\left{_SPELLINGS.get(left, left)} {inner} \right{_SPELLINGS.get(right, right)}"
        )

    def _fraction(self, token: str) -> Atom:
        outside, full = self.display, self.display and token != r"\tfrac"
        self.display = False
        above, below = self._argument(), self._argument()
        self.display = outside
        return Atom(rf"\{'dfrac' if full else 'frac'}{{{above}}}{{{below}}}")

    def _argument(self) -> str:
        """Read one atom or a braced group."""
        if self._peek() == "{":
            self._take()
            return self._group()
        return self._atom("open").text

    def _group(self) -> str:
        """Read up to the closing brace and pass it."""
        text = joined(self._row())
        if self._take() != "}":
            msg = "a brace is not closed"
            raise ValueError(msg)
        return text

    def _raw(self) -> str:
        """Read a braced group as it stands."""
        if self._take() != "{" or "}" not in self.tokens[self.index :]:
            msg = r"\text without braces"
            raise ValueError(msg)
        end = self.tokens.index("}", self.index)
        text = "".join(self.tokens[self.index : end])
        self.index = end + 1
        return text
