"""The command `igpe`: each subcommand is one function in one file.

Uses everything below. Add a subcommand here; what it computes belongs elsewhere.
"""

# Typer reads annotations at run time, and everything slow is imported inside the commands, so that
# `igpe --help` answers at once.
# The order is that of `igpe --help`.
from igpe.cli import new  # isort: skip
from igpe.cli import estimation  # isort: skip
from igpe.cli import afterwards  # isort: skip
from igpe.cli import methods  # isort: skip
from igpe.cli import proof  # isort: skip
from igpe.cli import convert  # isort: skip
from igpe.cli.application import app

__all__ = ["afterwards", "app", "convert", "estimation", "main", "methods", "new", "proof"]


def main() -> None:
    """Run the command line."""
    app(prog_name="igpe")
