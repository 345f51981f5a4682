"""Commands that say or do something else."""

from collections.abc import Callable
from typing import Any

from click.exceptions import Exit

from house.planting import fault, given, replacement


def _command(name: str, wrong: Callable[..., Any]) -> None:
    """Replace what a command calls by `wrong(right, *arguments)`."""
    from igpe.cli import app  # noqa: PLC0415 - only where a fault is planted

    for known in app.registered_commands:
        if (known.name or known.callback.__name__) == name:  # type: ignore[union-attr]
            known.callback = replacement(known.callback, wrong)
            return
    raise LookupError(f"there is no command {name}")


def _exit_codes(codes: dict[int, int]) -> None:
    """Commands end with other codes."""
    from igpe.cli import app  # noqa: PLC0415

    group: Any = app.info.cls
    right = group.invoke

    def invoke(self: Any, context: Any) -> Any:
        try:
            return right(self, context)
        except SystemExit as end:
            raise SystemExit(codes.get(end.code, end.code)) from None  # type: ignore[arg-type, call-overload]
        except Exit as end:
            raise Exit(codes.get(end.exit_code, end.exit_code)) from None

    group.invoke = invoke


@fault("test_commands test_interrupted_commands")
def interrupted_commands_succeed() -> None:
    """A command that was interrupted ends with the code of success."""
    _exit_codes({130: 0})


@fault("test_commands test_mistakes")
def refusals_look_like_failures() -> None:
    """A command that refuses its input ends with the code of an estimate that failed."""
    _exit_codes({2: 1})


@fault("test_commands test_answers")
def command_ignores_the_data() -> None:
    """The command estimate uses the data of the model file, not those of --data."""
    _command("estimate", given(data=lambda _: None))


@fault("test_commands")
def command_ignores_the_seed() -> None:
    """The command estimate ignores --seed."""
    _command("estimate", given(seed=lambda _: None))
