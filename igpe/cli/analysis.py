"""igpe profile, report, design, certify, verify: work that follows an estimate."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from igpe.cli.application import FAILED, answer, rows
from igpe.cli.options import (
    DataFile,
    JsonFile,
    Model,
    PlotFile,
    ResultFile,
    Seed,
    certificate_file,
    estimated,
    page_file,
    problem_of,
)
from igpe.core.progress import reported


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
        at = Result.from_json(result) if result else estimated(model, problem, None, tell)
        profiles = follow(problem, at, names, confidence=confidence, progress=tell)
    body = profiles.to_dict() | {"table": rows(profiles.to_frame(), "name")}
    unfinished = "" if profiles.complete else "The profiles above were complete when igpe stopped."
    answer(
        "profile", str(profiles), body, json, picture=(profiles.plot, plot), unfinished=unfinished
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
    from igpe.core.errors import ProblemError
    from igpe.planning.design import design as plan

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
        at = settings.pop("parameters", None) or estimated(model, problem, seed, tell)
        tell("Planning the next experiment")
        proposed = plan(problem, at, **settings)
    body = proposed.to_dict() | {"table": rows(proposed.table())}
    answer("design", str(proposed), body, json, picture=(proposed.plot, plot))


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
            callback=certificate_file,
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
    from igpe.core.status import Status
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
    answer("certify", str(proof), body, json, picture=(proof.plot, plot), unfinished=unfinished)


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
    answer("verify", str(verdict), body, json)
    if not verdict:
        raise typer.Exit(FAILED)
