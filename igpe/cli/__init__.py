"""The command line: a problem file from tables, and what can be done with one; stored results.

A model file is a Python file with a function `problem()` that returns an `igpe.Problem`, or a PEtab
problem's YAML file.
Exit codes: 0 done, 1 nothing could be estimated or verified, 2 bad input, 130 interrupted.
Answers go to standard output, progress and errors to standard error.
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
