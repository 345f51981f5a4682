"""Printed outputs of README and pages: written again by one command, compared by tests.

    python tests/outputs.py [PAGE ...]

In a page, a `text` block right after a `python` block is what that block prints. The blocks of a
page run one after the other in one process, in a folder with copies of `data/` and `models/`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<said>.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
BETWEEN = "\x1e"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")
TIME = re.compile(r"\d+(?:\.\d*)? (?:ms|s|min)\b")
LONG = 3  # significant digits from which a number must agree
CLOSE, COUNTS, FEW = 0.01, 0.25, 3  # relative, of long numbers; of short ones and counts; counts
MEMORY = re.compile(r"<[\w.]+ (?:object )?at 0x[0-9a-f]+>")


def examples(page: Path) -> list[tuple[str, str | None]]:
    """Return code and stored output (None where there is none) of each Python block."""
    return [(m["code"], m["said"]) for m in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def run(codes: Sequence[str]) -> list[str]:
    """Return what blocks of code print, which run one after the other and warn of nothing.

    raises  RuntimeError with the traceback or warning
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in ("data", "models"):
            shutil.copytree(ROOT / name, Path(folder) / name)
        words = [sys.executable, "-W", "error", "-c", f"\nprint({BETWEEN!r}, end='')\n".join(codes)]
        setting = {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "COLUMNS": "80"}
        done = subprocess.run(
            words,
            cwd=folder,
            env=os.environ | setting,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
    if done.returncode or done.stderr:
        raise RuntimeError(done.stderr)
    return done.stdout.split(BETWEEN)


def difference(stored: str, new: str) -> str:
    """Return the first place where two outputs differ; empty if they agree.

    Words must be the same. Numbers agree but for rounding. Times, tables with a column
    of seconds, and addresses do not count.
    """
    timed = False
    for old, now in zip(*(_lines(text) for text in (stored, new)), strict=False):
        timed = bool(old) and (timed or "seconds" in old)  # a table with a column of times
        pairs = zip(NUMBER.findall(old), NUMBER.findall(now), strict=False)
        words = [" ".join(NUMBER.sub("#", line).split()) for line in (old, now)]
        if words[0] != words[1] or not (timed or all(_agree(*pair) for pair in pairs)):
            return f"stored: {old}\nnow:    {now}"
    counts = [len(_lines(text)) for text in (stored, new)]
    return (
        "" if counts[0] == counts[1] else f"{counts[0]} lines are stored, now there are {counts[1]}"
    )


def _lines(text: str) -> list[str]:
    plain = MEMORY.sub("", TIME.sub("", text.replace("\N{MINUS SIGN}", "-")))
    return [re.sub(r"[-─═━]{3,}", "---", line.rstrip()) for line in plain.strip().splitlines()]


def _agree(one: str, other: str) -> bool:
    a, b = float(one), float(other)
    digits = min(len(re.sub(r"e.*|\D", "", n).lstrip("0")) for n in (one, other))
    is_long = digits >= LONG and "." in one + other
    allowed = CLOSE * abs(a) if is_long else max(COUNTS * abs(a), FEW * (float(one) == int(a)))
    return abs(a - b) <= allowed + 1e-300


def write_page(page: Path) -> None:
    """Write the outputs of a page again."""
    found = examples(page)
    said = iter(run([code for code, _ in found]) if any(s is not None for _, s in found) else [])

    def replaced(match: re.Match[str]) -> str:
        now = next(said, "")
        if match["said"] is None:
            return match[0]
        return f"```python\n{match['code']}```\n\n```text\n{now.strip(chr(10))}\n```\n"

    text = page.read_text(encoding="utf-8")
    page.write_text(BLOCK.sub(replaced, text), encoding="utf-8")


def main(names: Sequence[str]) -> None:
    """Write all outputs again, or those of some pages."""
    for page in [Path(n).resolve() for n in names] or PAGES:
        sys.stderr.write(f"{page.relative_to(ROOT)}\n")
        write_page(page)


if __name__ == "__main__":
    main(sys.argv[1:])
