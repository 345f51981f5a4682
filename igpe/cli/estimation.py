"""igpe check, estimate, simulate, compare: structure, estimate, trajectories, methods compared."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from igpe.cli.application import answer, interrupted, progress_shown, rows, save
from igpe.cli.options import (
    DataFile,
    JsonFile,
    Model,
    PlotFile,
    ReportFile,
    Seed,
    estimated,
    nominal_of,
    problem_of,
    replaceable,
    values_of,
)

if TYPE_CHECKING:
    from igpe.dynamics.shooting.base import Estimator
    from igpe.estimation.campaigns import Comparison
    from igpe.problem.problem import Problem
    from igpe.results.result import Result


def check(
    model: Model, data: DataFile = None, json: JsonFile = None, plot: PlotFile = None
) -> None:
    """Say which parameters can be estimated from the measurements, and why not."""
    from igpe.pipeline import check as analyse

    structure = analyse(problem_of(model, data))
    answer("check", str(structure), {"table": rows(structure.to_frame(), "name")}, json)
    save(structure.plot, plot)


def estimate(
    model: Model,
    *,
    data: DataFile = None,
    plot: PlotFile = None,
    report: ReportFile = None,
    seed: Seed = None,
    json: JsonFile = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds, after which the best so far is the result.")
    ] = None,
    petab: Annotated[
        Path | None,
        typer.Option(
            "--petab", callback=replaceable, help="Write the parameter table of a PEtab problem."
        ),
    ] = None,
) -> None:
    """Estimate the parameters globally, in five steps.

    A function settings() in the file may return other igpe.Settings.

    Ctrl-C ends with the best estimate so far, if there is one.
    """
    from igpe.cli.model_file import is_petab
    from igpe.core.status import Status

    problem = problem_of(model, data)
    if petab is not None and not is_petab(model):
        raise typer.BadParameter(f"--petab needs a PEtab problem, but '{model}' is none.")
    with progress_shown() as tell:
        result = estimated(model, problem, seed, tell, time_limit)
    complete = result.status is not Status.INTERRUPTED
    text, body = str(result), result.to_dict() | {"table": rows(result.to_frame(), "name")}
    if is_petab(model):
        objective, errors = _petab(problem, result, model, petab)
        text += f"\nPEtab: negative log-likelihood {objective:.7g}."
        body |= {"negative_log_likelihood": objective, "petab": errors}
    answer("estimate", text, body, json, complete=complete)
    save(result.plot, plot)
    if report is not None:
        result.report(report)
    if not complete:
        interrupted("The estimates are the best so far.")


def simulate(
    model: Model,
    values: Annotated[
        list[str] | None, typer.Option("--set", help="Value of an unknown, as k1=2.5.")
    ] = None,
    data: DataFile = None,
    plot: PlotFile = None,
    json: JsonFile = None,
) -> None:
    """Integrate the model at given parameters and print a table (CSV)."""
    from igpe.dynamics.simulation import simulate as run
    from igpe.results.plots.fit import plot_simulation

    problem = problem_of(model, data)
    given = {**nominal_of(problem), **values_of(values or [])}
    table = run(problem, given)
    text = table.to_csv(index=False).removesuffix("\n")
    answer("simulate", text, {"parameters": given, "table": rows(table)}, json)
    save(lambda: plot_simulation(table), plot)


def _petab(
    problem: "Problem", result: "Result", model: Path, table: Path | None
) -> tuple[float, list[dict[str, Any]]]:
    """PEtab's objective and errors on its scales, as rows; writes the parameter table if given."""
    from igpe.formats.petab.errors import petab_errors, petab_objective, write_petab_parameters

    errors = petab_errors(problem, result)
    if table is not None:
        write_petab_parameters(result, model, table, errors)
    return petab_objective(problem, result.parameters, priors=True), rows(errors, "name")


class MethodName(Enum):
    """The estimators on the dynamics, by the names of their classes."""

    single = "SingleShooting"
    incremental = "IncrementalShooting"
    multiple = "MultipleShooting"
    collocation = "Collocation"


def compare(
    model: Model,
    *,
    method: Annotated[
        list[MethodName] | None, typer.Option("--method", help="One of them; all if none is named.")
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
    problem: "Problem", wanted: list[MethodName], search: tuple[int, int], tell: Any
) -> tuple["Comparison", list[str]]:
    """What the methods found, and why some of them were left out.

    raises Unsupported if a method that was asked for cannot do what the problem asks, or none can
    """
    from igpe.core.errors import Unsupported
    from igpe.estimation.campaigns import compare, joined

    starts, seed = search
    found, notes = [], []
    for one in dict.fromkeys(wanted or MethodName):
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


def _made(method: MethodName) -> "Estimator":
    from igpe.dynamics.collocation.collocation import Collocation
    from igpe.dynamics.shooting.incremental.incremental_shooting import IncrementalShooting
    from igpe.dynamics.shooting.multiple.multiple_shooting import MultipleShooting
    from igpe.dynamics.shooting.single_shooting import SingleShooting

    made: dict[MethodName, Estimator] = {
        MethodName.single: SingleShooting(),
        MethodName.incremental: IncrementalShooting(),
        MethodName.multiple: MultipleShooting(),
        MethodName.collocation: Collocation(),
    }
    return made[method]
