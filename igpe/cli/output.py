"""What the commands write, and how they show that they work."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator


def write(path: Path, text: str) -> None:
    if str(path) == "-":
        typer.echo(text)
    else:
        path.write_text(text + "\n", encoding="utf-8")


def save(axes: Any, path: Path) -> None:
    axes[0].figure.savefig(path)


def progress_shown() -> Any:
    """A spinner on standard error that shows the step and the time it has taken."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    @contextmanager
    def shown() -> "Iterator[Any]":
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        console = Console(stderr=True)
        hidden = not console.is_terminal  # else a log would begin with an empty line
        with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
            task = progress.add_task("Reading the model")
            yield lambda sentence: progress.update(task, description=sentence)

    return shown()
