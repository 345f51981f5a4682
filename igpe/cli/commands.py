"""igpe check, estimate, simulate, compare, profile, report, design, certify, verify."""

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from igpe.cli.application import (
    FAILED,
    DataFile,
    JsonFile,
    Model,
    PlotFile,
    ResultFile,
    Seed,
    answer,
    estimated,
    finished,
    page_file,
    problem_of,
    replaceable,
    rows,
    typed,
    written,
)
from igpe.core.errors import EstimationFailed, ProblemError, Unsupported
from igpe.core.markup import filled
from igpe.core.progress import reported
from igpe.core.status import Status

COLOURS = {"good": "green", "fair": "yellow", "bad": "red"}

if TYPE_CHECKING:
    from igpe.estimation.campaigns import Comparison
    from igpe.problem.problem import Problem


def check(
    model: Model, data: DataFile = None, json: JsonFile = None, plot: PlotFile = None
) -> None:
    """Report which parameters the measurements can determine, and the reasons for the others."""
    from igpe.pipeline import check as analyse

    structure = analyse(problem_of(model, data))
    body = {"table": rows(structure.to_frame(), "name")}
    answer("check", typed(str(structure), model), body, json, picture=(structure.plot, plot))


def estimate(
    model: Model,
    *,
    data: DataFile = None,
    plot: PlotFile = None,
    report: Annotated[
        Path | None, typer.Option(callback=page_file, help="Write a report of the result (.html).")
    ] = None,
    seed: Seed = None,
    json: JsonFile = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Time limit in seconds; at the limit, igpe returns the best result so far."
        ),
    ] = None,
    petab: Annotated[
        Path | None,
        typer.Option(
            callback=replaceable(), help="Write the estimates to a PEtab parameter table (.tsv)."
        ),
    ] = None,
) -> None:
    """Estimate the parameters globally, in five steps.

    A function settings() in the file may return other igpe.Settings.

    Ctrl-C ends with the best estimate so far, if there is one.
    """
    from igpe.cli.model_file import is_petab
    from igpe.results.answer import verdict
    from igpe.results.report import TITLE

    problem = problem_of(model, data)
    if petab is not None and not is_petab(model):
        raise typer.BadParameter(f"--petab needs a PEtab problem (.yaml); '{model}' is not one.")
    with reported(True) as tell:
        result = estimated(model, problem, seed, tell, time_limit)
    words = typed(str(result), model)
    body = result.to_dict() | {"table": rows(result.to_frame(), "name")}
    if is_petab(model):
        from igpe.formats.petab.errors import write_petab_parameters

        sentences, objective, errors = _of_petab(problem, result)
        words += sentences
        body |= objective | {"petab": [] if errors is None else rows(errors, "name")}
        if petab is not None:
            write_petab_parameters(result, model, petab, errors)
            written(petab)

    is_interrupted = result.stopped_by is Status.INTERRUPTED
    answer(
        "estimate",
        words,
        body,
        json,
        picture=(result.plot, plot),
        page=None
        if report is None
        else (lambda: result.report(report, title=f"{TITLE}: {model.stem}"), report),
        unfinished="The estimates are the best values found so far." if is_interrupted else "",
        marks={line.head: COLOURS[line.grade] for line in verdict(result)},
    )


def _of_petab(problem: "Problem", result: Any) -> tuple[str, dict[str, float], Any]:
    """Sentences on PEtab's objective at the estimates, the objective, and the table of errors.

    An estimate near which the model cannot be integrated is an estimate all the same.
    """
    from igpe.formats.petab.errors import petab_errors, petab_objective

    sentences, objective, errors = "", dict[str, float](), None
    try:
        values = [petab_objective(problem, result.parameters, priors=p) for p in (False, True)]
        objective = dict(
            zip(("negative_log_likelihood", "negative_log_posterior"), values, strict=True)
        )
        with_priors = f", with priors {values[1]:.7g}" if values[1] != values[0] else ""
        sentences += f"\nPEtab: negative log-likelihood {values[0]:.7g}{with_priors}."
        errors = petab_errors(problem, result)
    except EstimationFailed as error:
        missing = "standard errors" if objective else "objective and no standard errors"
        sentences += f"\nPEtab: no {missing}. {error}"
    return sentences, objective, errors


def simulate(
    model: Model,
    values: Annotated[
        list[str] | None, typer.Option("--set", help="Value of an unknown, for example k1=2.5.")
    ] = None,
    data: DataFile = None,
    plot: PlotFile = None,
    json: JsonFile = None,
) -> None:
    """Integrate the model at given parameters and print a table (CSV)."""
    from igpe.dynamics.simulation import simulate as run
    from igpe.formats.petab.conditions import PetabModel
    from igpe.results.plots.fit import plot_simulation

    problem = problem_of(model, data)
    given = dict(problem.model.nominal) if isinstance(problem.model, PetabModel) else {}
    named = dict.fromkeys(one.rpartition("=")[0].strip() for one in values or [])
    if len(named) < len(values or []):
        raise ProblemError(
            f"--set gives one of {[*named]} more than one value. Give one value for each."
        )
    for one in values or []:
        name, _, text = one.rpartition("=")
        try:
            name, number = name.strip(), float(text)
        except ValueError:
            raise ProblemError(f"--set {one} is not of the form name=number.") from None
        if problem.fixed.get(name, number) != number:
            raise ProblemError(
                f"--set {one} gives a value for '{name}', but the model file fixes '{name}' at "
                f"{problem.fixed[name]:g}. Omit this option, or change the model file."
            )
        given[name] = number
    table = run(problem, given)
    text, body = table.to_csv(index=False), {"parameters": given, "table": rows(table)}
    picture = (lambda: plot_simulation(table), plot)
    answer("simulate", text.removesuffix("\n"), body, json, picture=picture)


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
        list[MethodName] | None,
        typer.Option(help="Method to compare; repeat the option to compare several. Default: all."),
    ] = None,
    starts: Annotated[
        int, typer.Option(min=1, help="Number of starts; igpe spreads them within the bounds.")
    ] = 10,
    between: Annotated[
        tuple[float, float],
        typer.Option(
            help="Range for the starts of unknowns that lack bounds, for example --between 0 100."
        ),
    ] = (0.0, 10.0),
    data: DataFile = None,
    plot: PlotFile = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the starts.")] = 0,
    json: JsonFile = None,
) -> None:
    """Compare how often and how fast each method finds the best optimum from the same starts.

    Ctrl-C ends with the runs that are finished, if there are any.
    """
    problem = problem_of(model, data)
    points, remarks = _starts(problem, starts, seed, between)
    with reported(True) as tell:
        comparison, notes = _compared(problem, method or [], points, tell)
    notes = [*remarks, *notes]
    if not comparison.complete and comparison.runs.empty:
        raise KeyboardInterrupt
    body = {
        "table": rows(comparison.table, "method"),
        "best": comparison.best,
        "runs": comparison.runs.to_dict("list"),
        "notes": notes,
    }
    text = "\n".join([str(comparison), *map(filled, notes)])
    unfinished = f"{len(comparison.runs)} runs were complete when igpe stopped."
    picture, unfinished = (comparison.plot, plot), "" if comparison.complete else unfinished
    answer("compare", text, body, json, picture=picture, unfinished=unfinished)


def _starts(
    problem: "Problem", count: int, seed: int, between: tuple[float, float]
) -> tuple[list[dict[str, float]], list[str]]:
    """Starts spread within the bounds, and notes on unknowns without bounds."""
    import numpy as np

    from igpe.core.box import Box

    box = problem.box
    low, high = (np.clip(end, box.lower, box.upper) for end in between)
    lower = np.where(np.isfinite(box.lower), box.lower, low)
    upper = np.where(np.isfinite(box.upper), box.upper, high)
    loose = {
        n: f"[{a:g}, {b:g}]"
        for n, a, b, known in zip(box.names, lower, upper, box.finite, strict=True)
        if not known
    }
    if any(lower > upper):
        raise ProblemError(
            f"--between {between[0]:g} {between[1]:g} contains no values within the bounds. Give a "
            "lower and a higher number, for example --between 0 100."
        )
    starts = Box(box.names, lower, upper, box.logarithmic).sobol(count, seed)
    where = ", ".join(f"{n} in {ends}" for n, ends in loose.items())
    remark = (
        "Some unknowns lack a lower or upper bound. igpe draws their starts from these ranges: "
        f"{where}. Choose another range with --between LOW HIGH."
    )
    return [box.mapping(x) for x in starts], [remark] * bool(loose)


def _compared(
    problem: "Problem", named: list[MethodName], starts: list[dict[str, float]], tell: Any
) -> tuple["Comparison", list[str]]:
    """Compare the methods; the notes say why some of them were left out.

    raises Unsupported if a method that was named cannot do what the problem asks, or none can
    """
    from igpe.dynamics.collocation.collocation import Collocation
    from igpe.dynamics.shooting.incremental_shooting import IncrementalShooting
    from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
    from igpe.dynamics.shooting.single_shooting import SingleShooting
    from igpe.estimation.campaigns import compare, joined

    kinds = (SingleShooting, IncrementalShooting, MultipleShooting, Collocation)
    known: dict[str, Any] = {kind.__name__: kind for kind in kinds}
    comparisons, notes = [], []
    for name in (one.value for one in dict.fromkeys(named or MethodName)):
        try:
            methods = {name: known[name]()}
            comparisons.append(compare(problem, methods, starts, progress=tell))
        except Unsupported as error:
            if named:
                raise
            notes.append(f"Left out: {error}")
            continue
        if not comparisons[-1].complete:
            break
    if not comparisons:
        raise Unsupported("\n".join(notes))
    return joined(comparisons), notes


def profile(
    model: Model,
    *,
    result: ResultFile = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            help="Parameter or start value to profile; repeat the option to profile several. "
            "Default: all.",
        ),
    ] = None,
    data: DataFile = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    plot: PlotFile = None,
    json: JsonFile = None,
) -> None:
    """Estimate, and compute an exact interval of each parameter by profile likelihood.

    Ctrl-C ends with the profiles that are finished, if there are any.
    """
    from igpe.results.result import Result
    from igpe.uncertainty.profile import profile as follow

    problem = problem_of(model, data)
    with reported(True) as tell:
        at = Result.from_json(result) if result else finished(estimated(model, problem, None, tell))
        profiles = follow(problem, at, names, confidence=confidence, progress=tell)
    body = profiles.to_dict() | {"table": rows(profiles.to_frame(), "name")}
    unfinished = "" if profiles.complete else "The profiles above were complete when igpe stopped."
    answer(
        "profile",
        typed(str(profiles), model),
        body,
        json,
        picture=(profiles.plot, plot),
        unfinished=unfinished,
    )


def report(
    result: Annotated[
        Path, typer.Argument(help="Stored result: the JSON file from `igpe estimate --json`.")
    ],
    page: Annotated[Path, typer.Argument(callback=page_file, help="HTML file to write.")],
    *,
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Estimated parameters",
    author: Annotated[str, typer.Option(help="Author, printed below the title.")] = "",
    date: Annotated[
        str | None,
        typer.Option(help="Date, printed below the title exactly as given; default: today."),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Write an HTML report of a stored result: estimates, fits, residuals and steps."""
    from igpe.results.result import Result

    stored = Result.from_json(result)
    stored.report(page, title=title, author=author, date=date)
    body = {"file": str(page), "table": rows(stored.to_frame(), "name")}
    answer("report", f"Written: {page}", body, json)


def design(
    model: Model,
    data: DataFile = None,
    plot: PlotFile = None,
    seed: Seed = None,
    json: JsonFile = None,
) -> None:
    """Plan the next experiment, with the settings that the file's function design() returns."""
    from inspect import signature

    from igpe.cli.model_file import load_design, load_settings
    from igpe.planning.design import design as plan
    from igpe.planning.design_search import INTERRUPTED

    problem, settings = problem_of(model, data), load_design(model)
    known = set(signature(plan).parameters) - {"problem"}
    if unknown_names := sorted(set(settings) - known):
        raise ProblemError(
            f"design() in '{model}' returned unknown settings: "
            f"{unknown_names}. igpe.design accepts {sorted(known)}."
        )
    if seed is not None:
        settings["seed"] = seed
    elif "seed" not in settings and (general := load_settings(model)) is not None:
        settings["seed"] = general.seed
    with reported(True) as tell:
        at = settings.pop("parameters", None) or finished(estimated(model, problem, seed, tell))
        tell("Planning the next experiment")
        proposed = plan(problem, at, **settings)
    body = proposed.to_dict() | {"table": rows(proposed.table())}
    unfinished = "The plan is the best one so far." if INTERRUPTED in proposed.notes else ""
    answer(
        "design", str(proposed), body, json, picture=(proposed.plot, plot), unfinished=unfinished
    )


def certify(
    model: Model,
    *,
    result: ResultFile = None,
    gap: Annotated[float, typer.Option(help="Relative gap at which the proof is complete.")] = 1e-3,
    region: Annotated[
        float | None,
        typer.Option(
            help="Compute a proven enclosure of the likelihood region at this confidence level "
            "(for example 0.95)."
        ),
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds.")] = 60.0,
    certificate: Annotated[
        Path | None,
        typer.Option(
            callback=replaceable(kind='"stored": "certificate"'),
            help="Write the certificate to this JSON file, for `igpe verify`.",
        ),
    ] = None,
    data: DataFile = None,
    plot: PlotFile = None,
    json: JsonFile = None,
) -> None:
    """Prove that no parameters within the bounds fit better than the estimate.

    With --region, prove a region that contains all parameters that explain the data well enough.
    Ctrl-C ends the search; igpe then reports what has been proved.
    """
    from igpe.proofs.prover.certify import certify as prove
    from igpe.proofs.prover.regions import certify_region as prove_region
    from igpe.results.certificates import CertifiedRegion
    from igpe.results.result import Result

    problem = problem_of(model, data)
    known = None if result is None else Result.from_json(result)
    with reported(True) as tell:
        if region is None:
            proof = prove(problem, known, gap=gap, time_limit=time_limit, progress=tell)
        else:
            proof = prove_region(problem, known, region, time_limit=time_limit, progress=tell)
    if certificate is not None:
        proof.to_json(certificate)
    columns = zip(proof.unknowns, proof.parameters, proof.lower, proof.upper, strict=True)
    table = [dict(zip(("name", "value", "lower", "upper"), row, strict=True)) for row in columns]
    stored = proof.without_tree().to_dict().items()
    body = {k: v for k, v in stored if k not in ("stored", "format", "tree")}
    body |= {"table": table, "closed": proof.closed, "remaining": rows(proof.remaining)}
    if isinstance(proof, CertifiedRegion):
        body |= {"intervals": rows(proof.to_frame())}
    is_interrupted = proof.status is Status.INTERRUPTED
    unfinished = "igpe proved the statement above before it stopped." if is_interrupted else ""
    words = typed(str(proof), model)
    answer("certify", words, body, json, picture=(proof.plot, plot), unfinished=unfinished)


def verify(
    certificate: Annotated[
        Path, typer.Argument(help="Certificate: the JSON file from `igpe certify --certificate`.")
    ],
    model: Model,
    *,
    seconds: Annotated[
        float,
        typer.Option(
            "--time-limit",
            "--seconds",
            help="Time limit in seconds; boxes that are not checked by then count as not "
            "confirmed.",
        ),
    ] = 600.0,
    arb: Annotated[
        bool,
        typer.Option(
            "--arb",
            help="Also check the objective and some leaves of the branch-and-bound tree with Arb.",
        ),
    ] = False,
    data: DataFile = None,
    json: JsonFile = None,
) -> None:
    """Check a certificate with independent code. The exit code is 0 if it is verified, else 1."""
    from igpe.proofs.checker.verify import verify as check

    problem = problem_of(model, data)
    with reported(True) as tell:
        verdict = check(certificate, problem, seconds, with_="arb" if arb else None, progress=tell)
    box = problem.box
    ends = zip(box.names, box.lower.tolist(), box.upper.tolist(), strict=True)
    body = {
        "verdict": verdict.verdict.value,
        "lower_bound": verdict.lower_bound,
        "objective": verdict.objective,
        "gap": verdict.gap,
        "share_not_confirmed": verdict.volume,
        "seconds": verdict.seconds,
        "arb": None if verdict.arb is None else asdict(verdict.arb),
        "regions": [asdict(region) for region in verdict.regions],
        "table": [{"name": name, "lower": low, "upper": high} for name, low, high in ends],
    }
    unfinished = "igpe did not check all boxes." if verdict.interrupted else ""
    answer("verify", str(verdict), body, json, unfinished=unfinished)
    if not verdict:
        raise typer.Exit(FAILED)
