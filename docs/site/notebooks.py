"""A hook of mkdocs: every notebook becomes a page, with the outputs that are stored in it."""

import re
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # of a terminal


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        name = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, name, content=page(path)))
    return files


def page(path: Path) -> str:
    """A notebook as Markdown."""
    notebook = nbformat.read(path, as_version=4)
    parts = [part for cell in notebook.cells for part in markdown(cell)]
    title, *rest = parts[0].partition("\n")
    return "\n\n".join([
        title,
        f"*The notebook `notebooks/{path.name}`.*",
        "".join(rest),
        *parts[1:],
    ])


def markdown(cell: Any) -> list[str]:
    """A cell with what it put out."""
    if cell.cell_type == "markdown":
        text = re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", cell.source)
        return [re.sub(r"`docs/(\w+)\.md`", r"[\1](../\1.md)", text)]
    return [f"```python\n{cell.source}\n```", *(shown(o) for o in cell.get("outputs", []))]


def shown(output: Any) -> str:
    """An output: a picture, a table, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="figure" src="data:image/png;base64,{data["image/png"].strip()}">'
    if "text/html" in data:
        return f"<div markdown='0'>\n{data['text/html']}\n</div>"
    text = data.get("text/plain", output.get("text", ""))
    return f"```text\n{COLOUR.sub('', text).rstrip()}\n```"
