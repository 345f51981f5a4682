"""What a notebook shows of a problem: its equations, its experiments, its unknowns with bounds."""

from collections.abc import Sequence
from typing import Any

from igpe.core.markup import folded, heading, table
from igpe.core.mathml import mathml
from igpe.problem.losses import NormalPrior
from igpe.problem.written import equations

MOST = 30  # equations and rows that are not folded
HEADS = ("", "measured", "values", "times", "starts", "inputs", "standard deviations")


def problem_html(problem: Any) -> str:
    """Equations, experiments and unknowns."""
    return (
        f"{heading('Equations')}{typeset(problem_equations(problem))}"
        f"{heading('Experiments')}{table(HEADS, [_row(e) for e in problem.experiments])}"
        f"{heading('Unknowns')}{_unknowns(problem)}"
    )


def experiment_html(experiment: Any) -> str:
    """One experiment as a table with one row."""
    return table(HEADS, [_row(experiment)])


def problem_equations(problem: Any) -> list[Any]:
    """The equations of the first experiment."""
    first = problem.experiments[0]
    return equations(problem.model, first.start_time, float(first.times[-1]), first)


def typeset(trees: Sequence[Any]) -> str:
    """Equations below each other; those of large models are folded."""
    lines = [f"<p>{mathml(one)}</p>" for one in trees]
    more = folded(f"{len(lines) - MOST} more equations", "".join(lines[MOST:]))
    return "".join(lines[:MOST]) + more * (len(lines) > MOST)


def _row(e: Any) -> tuple[str, ...]:
    units = {name: f" [{unit}]" for name, unit in e.units.items()}
    sigma = "given" if e.sigma_known else "estimated" if e.estimated_sigma else "unknown"
    return (
        e.name or "experiment",
        ", ".join(f"{n}{units.get(n, '')}" for n in e.measured),
        str(len(e.measurements.value)),
        f"{len(e.times)} from {e.times[0]:g} to {e.times[-1]:g}{units.get('time', '')}",
        ", ".join(f"{n} = {_start(v)}" for n, v in e.start.items()) or "by the model",
        ", ".join(e.inputs),
        "follow the model" if e.error_models else sigma,
    )


def _start(value: Any) -> str:
    if hasattr(value, "lower"):
        return f"unknown in [{value.lower:g}, {value.upper:g}]"
    return value if isinstance(value, str) else f"{value:g}"


def _unknowns(problem: Any) -> str:
    box = problem.unknowns
    rows = [
        (name, f"{low:.6g}", f"{high:.6g}", problem.unit(name), _remark(problem, name))
        for name, low, high in zip(box.names, box.lower, box.upper, strict=True)
    ]
    written = table(("", "from", "to", "unit", "remark"), rows)
    return folded(f"{len(rows)} unknowns", written) if len(rows) > MOST else written


def _remark(problem: Any, name: str) -> str:
    if name in problem.fixed:
        return f"held at {problem.fixed[name]:g}"
    prior = problem.priors.get(name)
    if isinstance(prior, NormalPrior):
        return f"prior {prior.mean:g} ± {prior.deviation:g}"
    return f"{prior.law} prior" if prior else ""
