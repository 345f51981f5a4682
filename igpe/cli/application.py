"""The application: how errors end it, and what it says of itself."""

from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


class Commands(TyperGroup):
    """Every error of igpe becomes one message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        from igpe.errors import EstimationFailed, IgpeError

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
    typer.echo(str(error), err=True)
    raise SystemExit(code)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(version("igpe"))
        except PackageNotFoundError:
            typer.echo("igpe is not installed; it runs from its source.")
        raise typer.Exit


@app.callback()
def before(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which igpe.")
    ] = False,
) -> None:
    """Globally optimal parameters of dynamic models, from measurements."""
