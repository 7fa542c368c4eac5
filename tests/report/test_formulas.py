"""Formulas as SVG: what is drawn, and where it stands."""

import os
import re
import subprocess
import sys
import textwrap
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib as mpl
import pytest

from ncscope.metrics.registry import METRICS
from ncscope.report.classes import COLUMNS
from ncscope.report.formulas import formula, speak_formula

from ..pace import others_slow

SVG = "{http://www.w3.org/2000/svg}"
PATH = re.compile(r"([mlhvqcz])|(-?\d+)")
LENGTHS = {"m": 2, "l": 2, "h": 1, "v": 1, "q": 4, "c": 6, "z": 0}


def pieces(html: str) -> list[ElementTree.Element]:
    span = ElementTree.fromstring(html.replace("<wbr>", "<wbr/>"))
    return [child for child in span if child.tag == "svg"]


def contours(svg: ElementTree.Element) -> list[list[tuple[int, int]]]:
    """Corners and control points of every closed line, from the path's commands."""
    x = y = 0
    found: list[list[tuple[int, int]]] = []
    for letter, numbers in commands(svg[0].attrib["d"]):
        if letter == "z":
            x, y = found[-1][0]
        elif letter in "hv":
            x, y = (x + numbers[0], y) if letter == "h" else (x, y + numbers[0])
            found[-1].append((x, y))
        else:
            points = [(x + a, y + b) for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
            x, y = points[-1]
            if letter == "m":
                found.append([])
            found[-1].extend(points)
    return found


def commands(path: str) -> list[tuple[str, list[int]]]:
    parsed: list[tuple[str, list[int]]] = []
    for letter, number in PATH.findall(path):
        if letter:
            parsed.append((letter, []))
        elif len(parsed[-1][1]) == LENGTHS[parsed[-1][0]]:
            parsed.append((parsed[-1][0], [int(number)]))
        else:
            parsed[-1][1].append(int(number))
    assert all(len(numbers) == LENGTHS[letter] for letter, numbers in parsed)
    return parsed


def points(latex: str, **settings: bool) -> list[tuple[int, int]]:
    [svg] = pieces(formula(latex, **settings))
    return [point for line in contours(svg) for point in line]


def size(latex: str, **settings: bool) -> tuple[int, int]:
    """Width and height of the ink."""
    across, down = zip(*points(latex, **settings), strict=True)
    return max(across) - min(across), max(down) - min(down)


@pytest.mark.parametrize("key", others_slow(METRICS, *list(METRICS)[::3]))
def test_formula_of_every_metric_lies_in_its_box(key: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = [formula(METRICS[key].formula, display=display) for display in (False, True)]
    for svg in (svg for html in drawn for svg in pieces(html)):
        left, top, width, height = map(int, svg.attrib["viewBox"].split())
        for x, y in (point for line in contours(svg) for point in line):
            assert left <= x <= left + width
            assert top <= y <= top + height
        assert svg.attrib["width"] == f"{width / 500:g}em"
        assert svg.attrib["height"] == f"{height / 500:g}em"
        assert svg.attrib["style"] == f"vertical-align:{-(top + height) / 500:g}em"


def test_path_is_the_glyph_of_the_font() -> None:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    drawn = TextPath((0, 0), "$d$", size=500, prop=FontProperties(math_fontfamily="cm"))
    expected = [
        (x, -y) for (x, y), code in zip(drawn.vertices, drawn.codes, strict=True) if code != 79
    ]
    assert len(points("d")) == len(expected)
    for got, exact in zip(points("d"), expected, strict=True):
        assert got == pytest.approx(exact, abs=1.01)


def test_it_is_named_by_its_source_and_takes_the_colour_of_the_text() -> None:
    html = formula('a<b\\text{ "c"}\n+ 1')
    span = ElementTree.fromstring(html)
    assert span.attrib["aria-label"] == 'a less than b "c" plus 1'
    assert span.attrib["role"] == "img"
    assert span[0].attrib["fill"] == "currentColor"
    assert " id=" not in html
    assert '"c"' not in html


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\frac12x", r"\frac{1}{2}x"),
        (r"\sqrt K", r"\sqrt{K}"),
        (r"x_\lambda^2", r"x_{\lambda}^{2}"),
        (r"x'", r"x^{\prime}"),
        (r"a\le b", r"a \leq b"),
        (r"\Bigl(\frac1K\Bigr)", r"\left(\frac{1}{K}\right)"),
        (r"\mathbf 1", r"\mathbf{1}"),
        (r"\lVert x\rVert", r"\|x\|"),
        (r"\tilde M", r"\tilde{M}"),
        (r"\operatorname{log}x", r"\log x"),
    ],
)
def test_short_spellings_are_the_long_ones(written: str, meant: str) -> None:
    assert formula(written).partition("<svg")[2] == formula(meant).partition("<svg")[2]


@pytest.mark.parametrize("fraction", [r"\frac", r"\dfrac"])
def test_fractions_are_full_size_on_a_line_of_their_own(fraction: str) -> None:
    latex = fraction + "{K}{K}"
    assert size(latex, display=True)[0] == pytest.approx(1.43 * size(latex)[0], rel=0.05)
    nested = rf"\frac{{{latex}}}{{K}}"
    assert size(nested, display=True)[1] < 1.8 * size(latex, display=True)[1]


def test_limits_stand_below_only_on_a_line_of_their_own() -> None:
    wide, low = size(r"\sum_{y_i=c}"), size(r"\sum_{y_i=c}", display=True)
    assert low[0] < wide[0]
    assert low[1] > wide[1]


def test_no_space_beside_relations_in_scripts() -> None:
    narrow = size("x_{i=c}")[0] - size("x_{i}")[0] - size("x_{c}")[0] + size("x")[0]
    assert narrow < 1.25 * 0.7 * size("=")[0]


def test_a_unary_minus_is_not_spaced_as_a_binary_one() -> None:
    assert size("(a,-b)")[0] < size("(a-b)")[0] + size(",")[0]


def test_scripts_of_a_letter_with_an_accent_stand_as_those_of_the_letter() -> None:
    assert max(y for _, y in points(r"\tilde M_c")) == max(y for _, y in points("M_c"))


def test_high_bars_are_as_thick_as_low_ones() -> None:
    def first_bar(latex: str) -> list[tuple[int, int]]:
        return contours(pieces(formula(latex, display=True))[0])[0]

    def thickness(bar: list[tuple[int, int]]) -> int:
        return max(x for x, _ in bar) - min(x for x, _ in bar)

    low, high = first_bar(r"\lVert W\rVert"), first_bar(r"\Bigl\lVert\frac{W}{W}\Bigr\rVert")
    assert max(y for _, y in high) - min(y for _, y in high) > 900
    assert thickness(high) == thickness(low)
    both = size(r"\Bigl\lVert\frac{W}{W}\Bigr\rVert", display=True)[0]
    assert both < size(r"\frac{W}{W}", display=True)[0] + 500


def test_a_long_formula_may_break_after_relations_and_operators_outside_brackets() -> None:
    latex = r"a_{i=1}=(b+c+d+e)+|f+g|-\frac{h=1}{k},\quad l=m"
    drawn = pieces(formula(latex))
    assert len(drawn) == 6
    assert formula(latex).count("<wbr>") == 5
    assert len(pieces(formula("a=b+c"))) == 1


@pytest.mark.parametrize(
    ("latex", "reason"),
    [
        (r"\unknown x", r"\unknown"),
        (r"\frac1", "ends too early"),
        ("{x", "ends too early"),
        ("x}", "unexpected }"),
        (r"\left(x", "ends too early"),
        (r"x\right)", r"unexpected \right"),
        (r"\text x", r"\text without braces"),
        ("x $ y", "there is no symbol $"),
        ("x_", "ends too early"),
    ],
)
def test_a_bad_formula_is_one_clear_error(latex: str, reason: str) -> None:
    with pytest.raises(ValueError, match="cannot set the formula") as caught:
        formula(latex)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_formula_is_nothing() -> None:
    assert formula("") == formula(" ") == ""


def test_figures_settings_change_nothing() -> None:
    latex = r"d_{17}+\mu"
    plain = formula(latex)
    formula.cache_clear()
    with mpl.rc_context({"mathtext.default": "rm", "mathtext.fontset": "stix", "font.size": 30}):
        assert formula(latex) == plain


@pytest.mark.slow
def test_another_process_writes_the_same_bytes() -> None:
    latex = METRICS["nc2_etf"].formula
    code = f"from ncscope.report.formulas import formula; print(formula('x'), formula({latex!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{formula('x')} {formula(latex)}\n"


@pytest.mark.slow
def test_a_damaged_list_of_fonts_changes_nothing(tmp_path: Path) -> None:
    """Without Matplotlib's bundled fonts: what a program leaves whose Matplotlib is removed."""
    spoil = """
        from pathlib import Path
        import matplotlib as mpl
        from matplotlib import font_manager
        fonts = font_manager.fontManager
        fonts.ttflist = [font for font in fonts.ttflist if mpl.get_data_path() not in font.fname]
        [path] = Path(mpl.get_cachedir()).glob("fontlist*")
        font_manager.json_dump(fonts, path)
    """
    draw = r"""
        from matplotlib.font_manager import fontManager
        assert not any(font.name == "cmmi10" for font in fontManager.ttflist)
        from ncscope.report.formulas import formula
        print(formula(r"\tilde M_c"))
    """
    environment = os.environ | {"MPLCONFIGDIR": str(tmp_path)}
    for code in (spoil, draw):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
    assert done.stdout == formula(r"\tilde M_c") + "\n"
    assert done.stderr == ""


def test_a_screen_reader_hears_words() -> None:
    """No formula of the registry or of the table of classes has a name with LaTeX in it."""
    for row in (*METRICS.values(), *COLUMNS):
        words = speak_formula(row.formula)
        assert not re.search(r"[\\^_<>=+/|]|-(?!inverse)", words)
        assert words.count("fraction") == 2 * words.count("end fraction")
        assert words.count("norm") == 2 * words.count("end norm")
    assert speak_formula(r"\frac12\sum_c x_c^2=10^{-4}") == (
        "1 over 2 sum sub c x sub c squared equals 10 to the power minus 4"
    )
    assert speak_formula(r"\text{ with }K_{95}'") == "with K sub 95 prime"
