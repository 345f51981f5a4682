"""The command `igpe`: each subcommand is one function.

Uses everything below. Add a subcommand to `COMMANDS`; what it computes belongs elsewhere. Typer
reads annotations at run time. Commands import slow modules inside, so `igpe --help` is quick.
"""

from igpe.cli.application import app
from igpe.cli.commands import (
    certify,
    check,
    compare,
    design,
    estimate,
    profile,
    report,
    simulate,
    verify,
)
from igpe.cli.files import convert, new

COMMANDS = (check, estimate, simulate, profile, report, design, compare, certify, verify, convert)
"""In the order of `igpe --help`, after `new`."""

app.command(context_settings={"allow_extra_args": True})(new)
for _command in COMMANDS:
    app.command()(_command)

__all__ = ["COMMANDS", "app", "main"]


def main() -> None:
    """Run the command line."""
    app(prog_name="igpe")
