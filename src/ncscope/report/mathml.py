"""LaTeX formulas of the registry as MathML, which browsers typeset without a script."""

import re
from collections.abc import Callable
from html import escape

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\s+|.", re.DOTALL)

_LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε",
    "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "pi": "π",
    "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "omega": "ω", "ell": "ℓ", "Gamma": "Γ",
    "Delta": "Δ", "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Omega": "Ω",
}  # fmt: skip
_OPERATORS = {
    "sum": "∑", "prod": "∏", "cdot": "⋅", "cdots": "⋯", "ldots": "…", "dots": "…",
    "times": "×", "otimes": "⊗", "odot": "⊙", "in": "∈", "ne": "≠", "neq": "≠", "le": "≤",
    "leq": "≤", "ge": "≥", "geq": "≥", "succeq": "⪰", "to": "→", "mapsto": "↦", "dagger": "†",
    "top": "⊤", "perp": "⊥", "infty": "∞", "lVert": "‖", "rVert": "‖", "Vert": "‖", "|": "‖",
    "lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "langle": "⟨", "rangle": "⟩",
    "lbrace": "{", "rbrace": "}", "{": "{", "}": "}", "pm": "±", "approx": "≈", "propto": "∝",
    "star": "⋆", "circ": "∘", "prime": "′", "partial": "∂", "nabla": "∇", "equiv": "≡",
    "colon": ":", "setminus": "∖", "cup": "∪", "cap": "∩", "subset": "⊂", "forall": "∀",
}  # fmt: skip
_ACCENTS = {
    "tilde": "~", "widetilde": "~", "bar": "¯", "overline": "¯", "hat": "^", "widehat": "^",
    "vec": "→", "dot": "˙",
}  # fmt: skip
_SPACES = {",": "0.17em", ";": "0.28em", ":": "0.22em", " ": "0.3em", "quad": "1em", "!": "0"}
_UPRIGHT = {"operatorname", "mathrm", "text", "textrm", "mathsf"}
_STYLES = {"mathbf": "bold", "boldsymbol": "bold", "mathbb": "double-struck", "mathcal": "script"}
_IGNORED = re.compile(r"left|right|middle|[bB]igg?[lrm]?|displaystyle|limits")
_THIN_SPACE = '<mspace width="0.17em"></mspace>'
_DOUBLE_STRUCK = {"R": "ℝ", "E": "𝔼", "N": "ℕ", "C": "ℂ", "P": "ℙ", "1": "𝟙"}
_SCRIPT = {"L": "ℒ", "H": "ℋ", "N": "𝒩", "O": "𝒪", "B": "ℬ"}


def formula(latex: str) -> str:
    r"""Convert a LaTeX formula to a ``<math>`` element.

    Covers what the registry writes: fractions, roots, scripts, accents, norms, named operators.
    A command it does not know appears by its name.

    Args:
        latex: The formula, without dollar signs or with.

    Returns:
        MathML, safe to put into a page; empty for an empty formula.

    Example:
        >>> formula(r"\frac{1}{K}")
        '<math><mfrac><mn>1</mn><mi>K</mi></mfrac></math>'
    """
    if not latex:
        return ""
    return f"<math>{_Reader(latex.replace('$', '')).rows()}</math>"


class _Reader:
    """One pass over the tokens of a formula."""

    def __init__(self, latex: str) -> None:
        self.tokens = _TOKEN.findall(latex)
        self.place = 0

    def peek(self) -> str:
        """Return the next token that is not white space; empty at the end."""
        while self.place < len(self.tokens) and not self.tokens[self.place].strip():
            self.place += 1
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        """Return the next token and pass it."""
        token = self.peek()
        self.place += 1
        return token

    def rows(self) -> str:
        """Everything that is left, a stray closing brace skipped."""
        parts = []
        while self.peek():
            parts.append(self.row())
            self.take()
        return "".join(parts)

    def row(self) -> str:
        """Atoms with their scripts, up to the closing brace or the end."""
        parts = []
        while self.peek() and self.peek() != "}":
            parts.append(self.scripted())
            if "<mtext>" in parts[-1] and re.match(r"[\\\w]", self.peek()):
                parts.append(_THIN_SPACE)
        return "".join(parts)

    def scripted(self) -> str:
        base = "" if self.peek() in ("_", "^") else self.atom()
        scripts: dict[str, str] = {}
        while self.peek() and self.peek() in "_^'":
            mark = self.take()
            if mark == "'":
                scripts["^"] = scripts.get("^", "") + "<mo>′</mo>"
            else:
                scripts[mark] = scripts.get(mark, "") + self.argument()
        under, over = scripts.get("_"), scripts.get("^")
        base = _one(base)
        if under and over:
            return f"<msubsup>{base}{_one(under)}{_one(over)}</msubsup>"
        if under:
            return f"<msub>{base}{_one(under)}</msub>"
        return f"<msup>{base}{_one(over)}</msup>" if over else base

    def atom(self) -> str:
        token = self.take()
        if token == "{":
            inner = self.row()
            self.take()
            return _one(inner)
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[:1].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{escape(token)}</mi>"
        return f"<mo>{'−' if token == '-' else escape(token)}</mo>"

    def command(self, name: str) -> str:
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _OPERATORS:
            return f"<mo>{_OPERATORS[name]}</mo>"
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"></mspace>'
        if name in _ACCENTS:
            return f'<mover accent="true">{self.argument()}<mo>{_ACCENTS[name]}</mo></mover>'
        if _IGNORED.fullmatch(name):
            return ""
        if name in _UPRIGHT:
            return f"<mtext>{escape(self.raw())}</mtext>"
        structures: dict[str, Callable[[], str]] = {
            "frac": self.fraction,
            "tfrac": self.fraction,
            "dfrac": self.fraction,
            "sqrt": lambda: f"<msqrt>{self.argument()}</msqrt>",
        }
        if name in structures:
            return structures[name]()
        return self.styled(name) if name in _STYLES else f"<mtext>{escape(name)}</mtext>"

    def fraction(self) -> str:
        return f"<mfrac>{self.argument()}{self.argument()}</mfrac>"

    def argument(self) -> str:
        """One atom; of a number its first digit, as in LaTeX."""
        digits = self.peek()
        if digits.isdigit():
            self.tokens[self.place : self.place + 1] = digits
        return _one(self.atom())

    def styled(self, name: str) -> str:
        text = self.raw()
        if name == "mathbb":
            text = _DOUBLE_STRUCK.get(text, text)
        if name == "mathcal":
            text = _SCRIPT.get(text, text)
        if _STYLES[name] == "bold":
            return f'<mi style="font-weight: bold">{escape(text)}</mi>'
        return f"<mi>{escape(text)}</mi>"

    def raw(self) -> str:
        """Return the next token or braced group as it stands."""
        if self.peek() != "{":
            return _letter(self.take())
        self.take()
        words = []
        while self.place < len(self.tokens) and self.tokens[self.place] != "}":
            words.append(_letter(self.tokens[self.place]))
            self.place += 1
        self.place += 1
        return "".join(words)


def _letter(token: str) -> str:
    if token in ("\\,", "\\ ", "~"):
        return " "
    name = token.removeprefix("\\")
    return _LETTERS.get(name, name)


def _one(markup: str) -> str:
    """Wrap the markup as one element, which scripts and fractions require of each part."""
    return markup if _is_single(markup) else f"<mrow>{markup}</mrow>"


def _is_single(markup: str) -> bool:
    depth = 0
    for tag in re.finditer(r"<(/?)[a-z]+[^>]*>", markup):
        depth += -1 if tag.group(1) else 1
        if depth == 0:
            return tag.end() == len(markup)
    return False
