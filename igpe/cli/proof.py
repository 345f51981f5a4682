"""igpe certify, verify: a proof that nothing fits better, and whether it is one."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from igpe.cli.application import FAILED, app
from igpe.cli.completion import results
from igpe.cli.options import DataFile, JsonFile, Model, PlotFile, problem_of, replaceable
from igpe.cli.output import answer, interrupted, progress_shown, rows, save


@app.command()
def certify(
    model: Model,
    *,
    result: Annotated[
        Path | None,
        typer.Option(
            "--result", autocompletion=results, help="Stored result (JSON): what is to be proven."
        ),
    ] = None,
    gap: Annotated[
        float, typer.Option(help="Of the bound to the sum of squares, relative.")
    ] = 1e-3,
    time_limit: Annotated[float, typer.Option(help="Seconds.")] = 60.0,
    certificate: Annotated[
        Path | None,
        typer.Option(callback=replaceable, help="Write the proof (JSON) for igpe verify."),
    ] = None,
    data: DataFile = None,
    plot: PlotFile = None,
    json: JsonFile = None,
) -> None:
    """Prove that no parameters within the bounds fit better than the result, or than what is found.

    Ctrl-C ends with what is proved so far.
    """
    from igpe.core.status import Status
    from igpe.proofs.prover.certify import certify as prove
    from igpe.results.result import Result

    problem = problem_of(model, data)
    known = None if result is None else Result.from_json(result)
    with progress_shown() as tell:
        proof = prove(problem, known, gap=gap, time_limit=time_limit, progress=tell)
    if certificate is not None:
        proof.to_json(certificate)
    table = [
        {"name": name, "value": value, "lower": low, "upper": high}
        for name, value, low, high in zip(
            proof.unknowns, proof.parameters, proof.lower, proof.upper, strict=True
        )
    ]
    told = {k: v for k, v in proof.without_tree().to_dict().items() if k not in ("format", "tree")}
    body = told | {"table": table, "closed": proof.closed, "remaining": rows(proof.remaining)}
    complete = proof.status is not Status.INTERRUPTED
    answer("certify", str(proof), body, json, complete=complete)
    save(proof.plot, plot)
    if not complete:
        interrupted("What is told above was proved before.")


@app.command()
def verify(
    certificate: Annotated[
        Path, typer.Argument(autocompletion=results, help="Of certify --certificate (JSON).")
    ],
    model: Model,
    *,
    seconds: Annotated[float, typer.Option(help="After which the rest is not confirmed.")] = 600.0,
    data: DataFile = None,
    json: JsonFile = None,
) -> None:
    """Prove a certificate again by other code: verified (exit code 0), refuted or not (1)."""
    from igpe.proofs.checker.verify import verify as check

    problem = problem_of(model, data)
    with progress_shown() as tell:
        tell("Proving the certificate again")
        found = check(certificate, problem, seconds)
    box = problem.box
    ends = zip(box.names, box.lower.tolist(), box.upper.tolist(), strict=True)
    body = {
        "verdict": found.verdict.value,
        "lower_bound": found.lower_bound,
        "objective": found.objective,
        "gap": found.gap,
        "share_not_confirmed": found.volume,
        "seconds": found.seconds,
        "regions": [asdict(region) for region in found.regions],
        "table": [{"name": name, "lower": low, "upper": high} for name, low, high in ends],
    }
    answer("verify", str(found), body, json)
    if not found:
        raise typer.Exit(FAILED)
