"""The command line: check, estimate, profile, simulate and design for a model file; reports.

A model file is a Python file with a function `problem()` that returns an `igpe.Problem`, or a PEtab
problem's YAML file.
Exit codes: 0 done, 1 nothing could be estimated, 2 the input is not usable, 130 interrupted.
Answers go to standard output, progress and errors to standard error.
"""

# Typer reads annotations at run time, and everything slow is imported inside the commands, so that
# `igpe --help` answers at once.
from igpe.cli import afterwards, estimation
from igpe.cli.application import app

__all__ = ["afterwards", "app", "estimation", "main"]


def main() -> None:
    """Run the command line."""
    app()
