"""A hook of mkdocs: formulas in LaTeX become MathML, which browsers show without a script."""

import re
from typing import Any

from latex2mathml.converter import convert

CODE = r"(?P<code>^```.*?^```|`[^`\n]+`)"
BLOCK = r"\$\$(?P<block>.+?)\$\$"
INLINE = r"\$(?P<inline>[^$\s](?:[^$\n]*[^$\s])?)\$"
FORMULA = re.compile(f"{CODE}|{BLOCK}|{INLINE}", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace `$$...$$` and `$...$` outside of code."""
    return FORMULA.sub(_written, markdown)


def _written(match: re.Match[str]) -> str:
    if match["code"]:
        return match[0]
    if match["block"]:
        return f'<div class="formula">{convert(match["block"], display="block")}</div>'
    return convert(match["inline"])
