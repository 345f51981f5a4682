"""igpe compare: the methods on the dynamics, from the same starts."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from igpe.cli.application import app
from igpe.cli.options import DataFile, JsonFile, Model, PlotFile, problem_of
from igpe.cli.output import answer, interrupted, progress_shown, rows, save

if TYPE_CHECKING:
    from igpe.dynamics.shooting.base import Estimator
    from igpe.estimation.comparison import Comparison
    from igpe.problem.problem import Problem


class Method(Enum):
    """The estimators on the dynamics, by the names of their classes."""

    single = "SingleShooting"
    incremental = "IncrementalShooting"
    multiple = "MultipleShooting"
    collocation = "Collocation"


@app.command()
def compare(
    model: Model,
    *,
    method: Annotated[
        list[Method] | None, typer.Option("--method", help="One of them; all if none is named.")
    ] = None,
    starts: Annotated[
        int, typer.Option(min=1, help="How many starts, spread over the bounds.")
    ] = 10,
    data: DataFile = None,
    plot: PlotFile = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the starts.")] = 0,
    json: JsonFile = None,
) -> None:
    """Compare the methods from the same starts: how often each finds the best optimum, how fast.

    Ctrl-C ends with the runs that are finished, if there are any.
    """
    problem = problem_of(model, data)
    with progress_shown() as tell:
        found, notes = _compared(problem, method or [], (starts, seed), tell)
    if not found.complete and found.runs.empty:
        raise KeyboardInterrupt
    body = {
        "table": rows(found.table, "method"),
        "best": found.best,
        "runs": found.runs.to_dict("list"),
        "notes": notes,
    }
    answer("compare", "\n".join([str(found), *notes]), body, json, complete=found.complete)
    save(found.plot, plot)
    if not found.complete:
        interrupted(f"{len(found.runs)} runs had been made.")


def _compared(
    problem: "Problem", wanted: list[Method], search: tuple[int, int], tell: Any
) -> tuple["Comparison", list[str]]:
    """What the methods found, and why some of them were left out.

    raises Unsupported if a method that was asked for cannot do what the problem asks, or none can
    """
    from igpe.core.errors import Unsupported
    from igpe.estimation.comparison import compare, joined

    starts, seed = search
    found, notes = [], []
    for one in dict.fromkeys(wanted or Method):
        methods = {one.value: _made(one)}
        try:
            found.append(compare(problem, methods, starts, seed=seed, progress=tell))
        except Unsupported as error:
            if wanted:
                raise
            notes.append(f"Left out: {error}")
            continue
        if not found[-1].complete:
            break
    if not found:
        raise Unsupported("\n".join(notes))
    return joined(found), notes


def _made(method: Method) -> "Estimator":
    from igpe.dynamics.collocation.collocation import Collocation
    from igpe.dynamics.shooting.incremental.incremental_shooting import IncrementalShooting
    from igpe.dynamics.shooting.multiple.multiple_shooting import MultipleShooting
    from igpe.dynamics.shooting.single_shooting import SingleShooting

    made: dict[Method, Estimator] = {
        Method.single: SingleShooting(),
        Method.incremental: IncrementalShooting(),
        Method.multiple: MultipleShooting(),
        Method.collocation: Collocation(),
    }
    return made[method]
