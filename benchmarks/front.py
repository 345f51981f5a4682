"""The front: README, site, notebooks and examples, counted.

    python benchmarks/front.py [words] [pages] [outputs] [examples] [sentences]
                               [--sample FILE] [--seed N] [--marks FILE ...] [--json FILE]

words      of README.md
pages      of the built site ('.[docs]' is needed): pages, those with a picture, links that lead
           nowhere inside the site, in README.md and in the other Markdown files at the top
outputs    stored outputs of pages and notebooks that are run again and agree; notebooks executed,
           and the longest run of one (wall time, so on a quiet machine)
examples   public classes and functions without an example in a page or notebook
sentences  what users read, collected from README, pages, notebooks, docstrings of the public door,
           messages and help texts. --sample writes 300 of them, mixed with 300 of SciPy's
           docstrings and drawn with --seed, to FILE: readers who do not know whose they are
           mark lines with an x in the first column. --marks counts these, by reader, and
           those of most readers: one reader alone also marks what two others read without pause

The set-up commands in a fresh environment are timed by `quick_start.py`.
"""

import argparse
import ast
import inspect
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from figures import Row, at_least, at_most, command

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
SAMPLE, SEED, STUMBLES = 300, 28, 5
SCIPY = ("scipy.optimize", "scipy.integrate", "scipy.interpolate", "scipy.stats")
NUMPYDOC = re.compile(r"^(?:-+|\.\. .*|\s*[\w*, ]+ : .*)$", re.MULTILINE)
COMPUTED = (property, cached_property)
LEAST_WORDS = 5  # of what counts as a sentence
LONGEST_RUN = 60.0  # s
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CALLED = re.compile(r"`([^`\n]*\([^`\n]*)`")
PYTHON = re.compile(r"^```(?:python|py)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
ENTRY = re.compile(r"\n *(\w+(?:, \w+)*)(?:  +|\n {4,}(?=\S))")  # of an aligned list
# A displayed formula belongs to the sentence around it, which may go on below it.
FORMULA = re.compile(
    r"(?<![.:])\n\n(?:```\n.*?\n```|\$\$.*?\$\$| {4}\S[^\n]*)\n\n(?:(?=igpe|[^a-z])|(\w))",
    re.DOTALL,
)
BOLD = re.compile(r"(?<!\w)\*\*(\S|\S.*?\S)\*\*(?!\w)", re.DOTALL)
BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*] |[1-9]\. |\|[ -]|#))")
BULLET = re.compile(r"^(?:[-*#>\s]+ |[1-9]\. )+")
CELL = re.compile(r"(?<!\\)\|")
END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?]\)))(?<!e\.g\.|Ind\.|Eng\.|Ann\.|, J\.)(?<!Chem\.|Symb\.)"
    r"\s+(?=[(\[]?[A-Z`*'\"]|igpe\b|parmest\b|libRoad)|(?<=:)\s+(?=[A-Z])"
)
Sentence: TypeAlias = tuple[str, str, str]
"""Where it stands, the sentence before it in its paragraph, and the sentence."""
MARKUP = re.compile(r"</|/>|\bconst |^import |@media|^<style")


def words(_: argparse.Namespace) -> Iterator[Row]:
    """Words of README.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    yield at_most("README.md", "words", len(text.split()), limit=500)


class _Page(HTMLParser):
    """Links, places to link to, and pictures in the content of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.pictures, self.depth = 0, 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.depth += tag == "article"
        self.places |= {given[n] for n in ("id", "name") if n in given}
        self.links += [given[n] for n in ("href", "src") if n in given]
        self.pictures += bool(self.depth) and tag in ("img", "svg") and "twemoji" not in str(given)

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "article"


def pages(_: argparse.Namespace) -> Iterator[Row]:
    """Pages of the site, with pictures; links that lead nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "--site-dir", folder],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"},
            check=True,
        )
        read = {p: _Page(p.read_text(encoding="utf-8")) for p in site.rglob("*.html")}
        shown = {p: one for p, one in read.items() if p.name != "404.html"}
        broken = [f"{p.relative_to(site)}: {to}" for p, to in _broken(shown)]
    checked = sum(not urlsplit(to).scheme for one in shown.values() for to in one.links)
    for path in sorted(ROOT.glob("*.md")):
        targets = LINK.findall(CODE.sub("", path.read_text(encoding="utf-8")))
        checked += len(targets)
        broken += [
            f"{path.name}: {t}" for t in targets if not (ROOT / t.partition("#")[0]).exists()
        ]
    sys.stderr.writelines(f"broken: {one}\n" for one in broken)
    yield at_most("site", "pages", len(shown))
    yield at_most("site", "pages with a picture", sum(one.pictures > 0 for one in shown.values()))
    yield at_most("site and repository", "links", checked)
    yield at_most("site and repository", "broken links", len(broken), limit=0)


def _broken(read: dict[Path, _Page]) -> Iterator[tuple[Path, str]]:
    """Yield links inside the site to files or places that do not exist."""
    for path, one in read.items():
        for link in set(one.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            known = {p.resolve(): other for p, other in read.items()}
            place = unquote(parts.fragment)
            if not target.exists() or (
                place and target in known and place not in known[target].places
            ):
                yield path, link


def outputs(_: argparse.Namespace) -> Iterator[Row]:
    """Run all pages and notebooks again."""
    import outputs as stored  # noqa: PLC0415 - of tests/, only for this section

    compared = wrong = notebooks = 0
    longest = 0.0
    for page in stored.PAGES:
        began = time.perf_counter()
        pairs = [(old, new) for old, new in stored.compared(page) if old is not None]
        seconds = time.perf_counter() - began
        compared += len(pairs)
        wrong += sum(bool(stored.difference(old, new)) for old, new in pairs)
        if page.suffix == stored.NOTEBOOK:
            notebooks, longest = notebooks + 1, max(longest, seconds)
    yield at_most("pages and notebooks", "outputs compared", compared)
    yield at_most("pages and notebooks", "outputs that differ", wrong, limit=0)
    yield at_least(
        "notebooks", "executed", notebooks, "-", len(list(ROOT.glob("notebooks/*.ipynb")))
    )
    yield at_most("notebooks", "longest run", longest, "s", LONGEST_RUN)


def examples(_: argparse.Namespace) -> Iterator[Row]:
    """Public names that occur in no code of a page or notebook."""
    from front_door import PUBLIC  # noqa: PLC0415 - of tests/, only for this section

    code = "\n".join(
        block
        for text in (page.read_text(encoding="utf-8") for page in _markdown())
        for block in [*PYTHON.findall(text), *CALLED.findall(CODE.sub("", text))]
    )
    code += "\n".join(source for kind, source in _cells() if kind == "code")
    used = set(re.findall(r"\w+", code))
    missing = [name for name in PUBLIC if name.rpartition(".")[2] not in used]
    sys.stderr.writelines(f"no example: {name}\n" for name in missing)
    yield at_most("public door", "names", len(PUBLIC))
    yield at_most("public door", "names without an example", len(missing), limit=0)


def sentences(given: argparse.Namespace) -> Iterator[Row]:
    """Collect, draw, and count marks."""
    ours = list(dict.fromkeys(_sentences()))
    yield at_most("sentences", "collected", len(ours))
    scipys = list(dict.fromkeys(_scipys())) if given.sample or given.marks else []
    if given.sample:
        draw = random.Random(given.seed)
        mixed = [*draw.sample(ours, SAMPLE), *draw.sample(scipys, SAMPLE)]
        draw.shuffle(mixed)
        lines = (
            f"  [{place.rpartition('/')[2]}]{f' (before: {before})' * bool(before)}\t{text}\n"
            for place, before, text in mixed
        )
        given.sample.write_text("".join(lines), encoding="utf-8")
    if given.marks:
        yield from _marked(given.marks, {text for *_, text in scipys})


def _marked(files: list[Path], of_scipy: set[str]) -> Iterator[Row]:
    """Yield how many sentences each reader marks, and how many most readers mark."""
    texts = [path.read_text(encoding="utf-8").splitlines() for path in files]
    readers = [{s.partition("\t")[2] for s in lines if s.startswith("x")} for lines in texts]
    times = Counter(text for marked in readers for text in marked)
    of_most = {text for text, count in times.items() if 2 * count > len(readers)}
    by = {f"reader {k}": marked for k, marked in enumerate(readers, 1)} | {"most readers": of_most}
    for who, marked in by.items():
        limit = STUMBLES if marked is of_most else None
        yield at_most("igpe", f"marked of {SAMPLE} by {who}", len(marked - of_scipy), limit=limit)
        yield at_most("SciPy", f"marked of {SAMPLE} by {who}", len(marked & of_scipy))


def _scipys() -> Iterator[Sentence]:
    """Yield the sentences of SciPy's docstrings, without examples, references and tables."""
    for package in SCIPY:
        module = import_module(package)
        for name in sorted(module.__all__):
            text = inspect.getdoc(getattr(module, name)) or ""
            text = re.split(r"\n(?:References|Examples)\n", text)[0]
            for one in _split(name, NUMPYDOC.sub("\n", text)):
                if not re.search(r":math:|\[\d\]_|✅|===", one[2]):
                    yield one


def _markdown() -> list[Path]:
    """README and pages; notes are for developers."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _cells() -> Iterator[tuple[str, str]]:
    """Yield kind and source of all cells of notebooks."""
    import nbformat  # noqa: PLC0415 - only for these sections

    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            yield cell.cell_type, cell.source


def _sentences() -> Iterator[Sentence]:
    """Yield place and sentence of all that users read."""
    for page in _markdown():
        yield from _split(page.name, _prose(page.read_text(encoding="utf-8")))
    for kind, source in _cells():
        if kind == "markdown":
            yield from _split("notebook", _prose(source))
    for name, text in _docstrings():
        entries = ENTRY.sub(r"\n\n\1 - ", text.replace("\nraises ", "\n\nraises "))
        yield from _split(name, entries)
    for path in sorted((ROOT / "igpe").rglob("*.py")):
        place = str(path.relative_to(ROOT))
        for text in _literals(ast.parse(path.read_text(encoding="utf-8"))):
            yield from _split(place, text)


def _docstrings() -> Iterator[tuple[str, str]]:
    """Yield the docstrings of the public door and of its members."""
    from front_door import PUBLIC  # noqa: PLC0415 - of tests/, only for this section

    for name, thing in PUBLIC.items():
        yield name, inspect.getdoc(thing) or ""
        for member in vars(thing) if inspect.isclass(thing) else ():
            is_shown = callable(getattr(thing, member, None)) or isinstance(
                vars(thing)[member], COMPUTED
            )
            if not member.startswith("_") and is_shown:
                yield f"{name}.{member}", inspect.getdoc(getattr(thing, member)) or ""


def _literals(tree: ast.Module) -> Iterator[str]:
    """Yield the string literals that users may read: no docstrings, assertions, lists of words."""
    hidden = ast.Expr | ast.JoinedStr | ast.FormattedValue | ast.Assert
    lists = ("split", "word_set", "_fields")  # what takes words apart
    outside = [
        part
        for one in ast.walk(tree)
        for part in ast.iter_child_nodes(one)
        if not isinstance(one, hidden)
        and ast.unparse(getattr(one, "func", ast.Pass())) not in lists
        if not (isinstance(one, ast.Attribute) and one.attr in lists)
    ]
    yield from (text for text in map(_literal, outside) if text and not MARKUP.search(text))


def _literal(node: ast.AST) -> str:
    """A string or f-string, with {...} where it is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) or "{...}" for part in node.values)
    value: Any = node.value if isinstance(node, ast.Constant) else ""
    return value if isinstance(value, str) else ""


def _prose(text: str) -> str:
    """Return Markdown without code and bold type; a formula becomes [formula] in its sentence."""
    text = FORMULA.sub(lambda m: f" [formula]{' ' + m[1] if m[1] else chr(10) * 2}", text)
    return BOLD.sub(r"\1", CODE.sub("", text))


def _split(place: str, text: str) -> Iterator[Sentence]:
    """Yield the sentences of paragraphs, list items and cells of tables."""
    for block in BLOCK.split(text):
        for part in CELL.split(block) if block.startswith(("| ", "|-")) else [block]:
            before = ""
            for sentence in END.split(BULLET.sub("", " ".join(part.split()))):
                if len(sentence.split()) >= LEAST_WORDS and re.search(r"[a-z] [a-z]", sentence):
                    yield place, before, sentence
                before = sentence


def options(parser: argparse.ArgumentParser) -> None:
    """Files of the sentences."""
    parser.add_argument("--sample", type=Path, help="file for 600 sentences to mark")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--marks", type=Path, nargs="+", help="marked with x, one for each reader")


if __name__ == "__main__":
    sections = {
        "words": words,
        "pages": pages,
        "outputs": outputs,
        "examples": examples,
        "sentences": sentences,
    }
    command(__doc__, "front", sections, options)
