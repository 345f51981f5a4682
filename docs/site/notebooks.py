"""A hook of mkdocs: every notebook becomes a page with its stored outputs; the gallery shows all.

In the page `gallery.md` the line `<!-- pictures -->` becomes one card for each notebook and each
page with a picture.
"""

import re
from base64 import b64decode
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # of a terminal
PNG = "image/png"
PICTURE = re.compile(r"!\[(?P<alt>[^]]*)\]\((?P<file>pictures/[\w-]+\.png)\)")
PLACE = "<!-- pictures -->"


def notebooks() -> list[Path]:
    """Return the notebooks in the order of their numbers."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"), key=lambda p: int(p.stem.split("_")[0]))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page and a picture for each notebook."""
    for path in notebooks():
        notebook = nbformat.read(path, as_version=4)
        name = f"notebooks/{path.stem}"
        files.append(File.generated(config, f"{name}.md", content=page(path, notebook)))
        if drawn := list(pictures(notebook)):
            files.append(File.generated(config, f"{name}.png", content=drawn[0]))
    return files


def on_page_markdown(markdown: str, files: Files, **_: Any) -> str:
    """Write the cards of the gallery."""
    return markdown.replace(PLACE, "\n".join(cards(files))) if PLACE in markdown else markdown


def cards(files: Files) -> Iterator[str]:
    """Yield the gallery: notebooks, then pages with a picture that is not on an earlier card."""
    yield '<div class="gallery">'
    for path in notebooks():
        notebook = nbformat.read(path, as_version=4)
        if any(pictures(notebook)):
            name = f"notebooks/{path.stem}"
            yield card(name, f"{name}.png", title_of(notebook.cells[0].source))
    seen = set()
    for file in sorted(files.documentation_pages(), key=lambda f: f.src_uri):
        text = "" if file.generated_by else file.content_string
        if (first := PICTURE.search(text)) and first["file"] not in seen:
            seen.add(first["file"])
            yield card(file.src_uri.removesuffix(".md"), first["file"], first["alt"])
    yield "</div>"


def card(name: str, picture: str, title: str) -> str:
    """Return a picture with a title, which leads to a page."""
    shown = escape(title)
    return f'<a href="{name}.html"><img src="{picture}" alt="" loading="lazy">{shown}</a>'


def title_of(markdown: str) -> str:
    """Return the first line without its mark."""
    return markdown.lstrip().partition("\n")[0].lstrip("# ")


def pictures(notebook: Any) -> Iterator[bytes]:
    """Yield the pictures that a notebook holds."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if encoded := output.get("data", {}).get(PNG):
                yield b64decode(encoded)


def page(path: Path, notebook: Any) -> str:
    """A notebook as Markdown."""
    title = title_of(notebook.cells[0].source)
    parts = [part for cell in notebook.cells for part in markdown(cell, title)]
    head, *rest = parts[0].partition("\n")
    return "\n\n".join([
        head,
        f"*The notebook `notebooks/{path.name}`.*",
        "".join(rest),
        *parts[1:],
    ])


def markdown(cell: Any, title: str) -> list[str]:
    """A cell with its outputs."""
    if cell.cell_type == "markdown":
        text = re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", cell.source)
        return [re.sub(r"`docs/((?:notes/)?\w+)\.md`", r"[\1](../\1.md)", text)]
    return [f"```python\n{cell.source}\n```", *(shown(o, title) for o in cell.get("outputs", []))]


def shown(output: Any, title: str) -> str:
    """An output: a picture, a table, or text."""
    data = output.get("data", {})
    if PNG in data:
        alt = escape(f"Plot in: {title}")
        return f'<img alt="{alt}" src="data:image/png;base64,{data[PNG].strip()}">'
    if "text/html" in data:
        return f"<div class=\"output\" markdown='0'>\n{data['text/html']}\n</div>"
    text = data.get("text/plain", output.get("text", ""))
    return f"```text\n{COLOUR.sub('', text).rstrip()}\n```"
