"""Outputs of README, pages and notebooks: written again by one command, compared by tests.

    python tests/outputs.py [PAGE ...]

In a page, a `text` block right after a `python` block is what that block prints. The blocks of a
page run one after the other in one process, in a folder with copies of `data/` and `models/`.
A picture of a page, `![...](pictures/fit.png)`, is the file `fit.png` that its blocks write.
Notebooks are stored as they were run, with one form of each output and pictures in few colours.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import unescape
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ".ipynb"
FOLDERS = (ROOT / "docs").glob("*.md"), (ROOT / "notebooks").glob(f"*{NOTEBOOK}")
PAGES = [ROOT / "README.md", *(page for pages in FOLDERS for page in sorted(pages))]
SETTING = {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "IGPE_PROOFS": ""}  # as users have it
# Dask's workers log an error when a heartbeat meets a closing cluster. Errors of tasks reach igpe.
SETTING |= {"DASK_LOGGING__DISTRIBUTED": "critical"}
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<said>.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
BETWEEN = "\x1e"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")
TIME = re.compile(r"\d+(?:\.\d*)? (?:ms|s|min)\b")
LONG = 3  # significant digits from which a number must agree
CLOSE, COUNTS, FEW = 0.01, 0.25, 3  # relative, of long numbers; of short ones and counts; counts
SECONDS = re.compile(r"\b(?:seconds|median s)\b")  # in the head of a table
PNG, HTML, PLAIN = "image/png", "text/html", "text/plain"
COLOURS = 256  # of a picture in a notebook
PICTURE = re.compile(r"!\[[^]]*\]\(pictures/([\w-]+\.png)\)")
MEMORY = re.compile(r"<[\w.]+ (?:object )?at 0x[0-9a-f]+>")


def examples(page: Path) -> list[tuple[str, str | None]]:
    """Return code and stored output (None where there is none) of each Python block."""
    return [(m["code"], m["said"]) for m in BLOCK.finditer(page.read_text(encoding="utf-8"))]


@cache
def prepare() -> None:
    """Compile what proofs need: pages show what an installation in use prints."""
    words = [sys.executable, "-m", "igpe.proofs.prover.certify"]
    subprocess.run(words, cwd=ROOT, env=os.environ | SETTING, check=True)


def pictures(page: Path) -> list[str]:
    """Return the names of the pictures that a page shows and its blocks name."""
    codes = "".join(code for code, _ in examples(page))
    shown = PICTURE.findall(page.read_text(encoding="utf-8"))
    return [name for name in shown if f'"{name}"' in codes]


def run(codes: Sequence[str], shown: Sequence[str] = (), into: Path | None = None) -> list[str]:
    """Return what blocks of code print, which run one after the other and warn of nothing.

    shown   names of pictures that the blocks must write
    into    folder to which these are copied; none: they are not

    raises  RuntimeError with the traceback or warning, or the name of a picture that is missing
    """
    prepare()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("data", "models"):
            shutil.copytree(ROOT / name, Path(folder) / name)
        words = [sys.executable, "-W", "error", "-c", f"\nprint({BETWEEN!r}, end='')\n".join(codes)]
        done = subprocess.run(
            words,
            cwd=folder,
            env=os.environ | SETTING | {"MPLBACKEND": "Agg"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        for name in () if done.returncode else shown:
            if not (written := Path(folder) / name).exists():
                raise RuntimeError(f"no block writes {name}")
            if into:
                (into / name).write_bytes(_in_few_colours(written.read_bytes()))
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
        timed = bool(old) and (timed or bool(SECONDS.search(old)))  # until the table ends
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


def execute(page: Path) -> tuple[Any, Any]:
    """Return a notebook as it is stored, and as it is after running.

    raises  RuntimeError with what it writes to standard error, or nbclient's error of a cell
    """
    prepare()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own packages
        import nbformat  # noqa: PLC0415
        from nbclient import NotebookClient  # noqa: PLC0415

        stored, notebook = (nbformat.read(page, as_version=4) for _ in range(2))
        where = {"metadata": {"path": str(page.parent)}}
        client = NotebookClient(notebook, timeout=None, kernel_name="python3", resources=where)
        own = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
        client.execute(env=own | SETTING)
    notebook.metadata = stored.metadata
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined(kept for output in cell.outputs if (kept := _kept(output)))
    return stored, notebook


def _kept(output: Any) -> Any | None:
    """Return an output with its best form only; None for an empty one."""
    if output.output_type == "stream":
        if output.name == "stderr":
            raise RuntimeError(output.text)
        return output
    best = next(kind for kind in (PNG, HTML, PLAIN) if kind in output.data)
    output.data = {best: output.data[best]}
    if best == PNG:
        output.data[PNG] = b64encode(_in_few_colours(b64decode(output.data[PNG]))).decode()
    return output if output.data[best] else None


def _in_few_colours(png: bytes) -> bytes:
    from PIL import Image  # noqa: PLC0415

    content = BytesIO()
    picture = Image.open(BytesIO(png)).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(content, "png", optimize=True)
    return content.getvalue()


def _texts(notebook: Any) -> Iterator[str]:
    """Yield what each code cell shows, as text."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            yield "\n\n".join(map(_text, _joined(cell.outputs)))


def _joined(outputs: Iterable[Any]) -> list[Any]:
    """The outputs, what is printed in pieces in one: where they are cut is a matter of time."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        is_stream = output.output_type == "stream"
        if is_stream and last and (last.output_type, last.name) == ("stream", output.name):
            last.text += output.text
        else:
            joined.append(output)
    return joined


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    ((kind, content),) = output.data.items()
    if kind == PNG:
        return "(picture)"
    if kind == HTML:
        rows = " ".join(content.split()).replace("</tr>", "\n").replace("</table>", "\n\n")
        return unescape(re.sub(r" *<[^>]*> *", " ", rows))
    return str(content)


def compared(page: Path, into: Path | None = None) -> Iterator[tuple[str | None, str]]:
    """Yield stored and new output of each example of a page or notebook.

    into  folder for the pictures that the examples of a page write; none: they are not kept
    """
    if page.suffix == NOTEBOOK:
        yield from zip(*map(_texts, execute(page)), strict=True)
    elif any("import igpe" in code or said for code, said in examples(page)):
        codes, stored = zip(*examples(page), strict=True)
        yield from zip(stored, run(codes, pictures(page), into), strict=True)


def write_page(page: Path) -> None:
    """Write the outputs of a page or notebook again."""
    if page.suffix == NOTEBOOK:
        import nbformat  # noqa: PLC0415

        nbformat.write(execute(page)[1], page)
        return
    said = iter([new for _, new in compared(page, ROOT / "docs" / "pictures")])

    def replaced(match: re.Match[str]) -> str:
        now = next(said, "")
        if match["said"] is None:
            return match[0]
        return f"```python\n{match['code']}```\n\n```text\n{now.strip(chr(10))}\n```\n"

    text = page.read_text(encoding="utf-8")
    page.write_text(BLOCK.sub(replaced, text), encoding="utf-8")


def main(names: Sequence[str]) -> None:
    """Write all outputs again, or those of some pages and notebooks."""
    for page in [Path(n).resolve() for n in names] or PAGES:
        sys.stderr.write(f"{page.relative_to(ROOT)}\n")
        write_page(page)


if __name__ == "__main__":
    main(sys.argv[1:])
