"""Messages stand on one line, and what a name holds is shown and not obeyed."""

import re
import unicodedata

import pytest

from ncscope.errors import InputError, printable

SHOWN = {
    "plain, with spaces": "plain, with spaces",
    "größer 日本 🙂": "größer 日本 🙂",
    "no-break\u00a0space": "no-break\u00a0space",
    "\x1b[31mred\x07": "\\x1b[31mred\\x07",
    "a\nb\r\tc": "a\\nb\\r\\tc",
    "\u202eexe.pt": "\\u202eexe.pt",
    "\x9b31m\x7f": "\\x9b31m\\x7f",
    "zero\u200bwidth\u2028": "zero\\u200bwidth\\u2028",
    "stray \udcff": "stray \\udcff",
}


@pytest.mark.parametrize("text", SHOWN)
def test_what_steers_or_hides_is_shown(text: str) -> None:
    shown = printable(text)
    assert shown == SHOWN[text] == printable(shown)
    shown.encode()


def test_no_character_of_a_kind_that_steers_is_left() -> None:
    every = "".join(map(chr, range(0x20000)))
    kinds = {unicodedata.category(char) for char in printable(every, keep="\n") if char != "\n"}
    assert not kinds & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert "\n" in printable(every, keep="\n")


def test_a_message_is_one_printable_line() -> None:
    error = InputError(expected="a\nfile", found="'\x1b[2J'\n  at  1", fix="look\u202e")
    assert str(error) == "expected a file, found '\\x1b[2J' at 1; look\\u202e"
    assert error.found == "'\x1b[2J'\n  at  1"


def test_a_long_path_does_not_make_a_long_message() -> None:
    path = "/data/" + "x" * 5000 + ".npz"
    error = InputError(expected="a file", found=f"nothing at {path}", fix="check the path")
    assert len(str(error)) < 500
    assert re.search(r"nothing at /data/x+…x+\.npz; check the path", str(error))
    assert path in error.found


def test_a_copy_has_the_parts_that_are_passed_and_else_those_of_the_error() -> None:
    error = InputError(expected="labels", found="none", fix="pass labels")
    assert str(error.but(found="two")) == "expected labels, found two; pass labels"
    assert (
        str(error.but(expected="names", fix="name all")) == "expected names, found none; name all"
    )
