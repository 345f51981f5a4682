"""The application: how errors end it, and what it says of itself."""

from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from igpe.core.markup import printable

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


class Commands(TyperGroup):
    """Every error of igpe becomes one message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        from igpe.core.errors import EstimationFailed, IgpeError

        try:
            return super().invoke(ctx)
        except EstimationFailed as error:
            _complain(error, FAILED)
        except (IgpeError, OSError) as error:
            _complain(error, BAD_INPUT)
        except KeyboardInterrupt:
            _complain("Interrupted.", INTERRUPTED)


def _complain(error: object, code: int) -> NoReturn:
    typer.secho("Error: ", fg="red", bold=True, err=True, nl=False)
    told = printable(str(error))
    is_word = told.partition(" ")[0].isalpha()  # no name of a function or file
    typer.echo(told[:1].upper() + told[1:] if is_word else told, err=True)
    raise SystemExit(code)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from igpe.cli.versions import told

        typer.echo(told())
        raise typer.Exit


@app.callback()
def before(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Versions; solvers found."
        ),
    ] = False,
) -> None:
    """Globally optimal parameters of dynamic models, from measurements."""
