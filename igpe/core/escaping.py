"""Names and texts of others, made safe for where they are shown: one function for each target.

HTML is escaped in `igpe.core.markup`. A target that is not listed here gets no text of others.
"""

import json
from unicodedata import category

UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, marks that turn text around, line separators
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with what a spreadsheet's formula begins


def printable(text: str, keep: str = "\n\t") -> str:
    """The text for a terminal: control characters, but for those to keep, as Python writes them."""
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or category(c) not in UNSEEN else c.encode("unicode_escape").decode()
        for c in text
    )


def one_line(text: str) -> str:
    """The text for a comment of a Python file: line breaks too as Python writes them."""
    return printable(text, keep="")


def docstring(text: str) -> str:
    """The text for a line of a docstring, which it cannot end."""
    return one_line(text).replace("\\", "/").replace('"', "'")


def quoted(text: str) -> str:
    """The text as Python writes it in double quotes."""
    return one_line(json.dumps(text, ensure_ascii=False))


def label(text: str) -> str:
    """The text for a picture: a name with $ is a name, no formula."""
    return printable(text).replace("$", r"\$")


def cell(text: str) -> str:
    """The text for a cell of a spreadsheet: an apostrophe before what would be a formula."""
    if text.startswith(FORMULA):
        try:
            float(text)
        except ValueError:
            return f"'{printable(text)}"
    return printable(text)
