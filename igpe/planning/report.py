"""From the best design found to the plan: settings, courses, errors before and after."""

from typing import Any

import numpy as np
import pandas as pd

from igpe.arrays import FloatArray
from igpe.dynamic.base import constraints
from igpe.experiment import Experiment
from igpe.planning.evidence import LEAST, Judge, covariance
from igpe.planning.plan import Plan
from igpe.planning.planned_experiment import PlannedExperiment
from igpe.planning.posing import Posed, planned_name
from igpe.planning.search import Found, Search
from igpe.problem import Problem
from igpe.simulation import simulate

POINTS = 200  # of the courses
TRACE = 1e-3  # of the largest value: a smaller one is hardly measured as exactly
UNKNOWN = 0.1 / np.sqrt(LEAST)
"""A relative standard error as large comes from what every unknown is given beforehand."""


def report(posed: Posed, search: Search, found: Found) -> Plan:
    """The plan of the best design."""
    before, after = posed.known(posed.values), _after(search, found)
    judge = Judge(posed.criterion, search.space.interest)
    experiments = tuple(_experiment(posed, found, k) for k in range(len(found.design)))
    courses = pd.concat([_course(posed, e) for e in experiments], ignore_index=True)
    return Plan(
        experiments=experiments,
        bounds={c.label: (c.lower, c.upper) for c in posed.plan.choices},
        errors=_errors(posed, before, after),
        covariance=_covariance(posed, after),
        covariance_before=_covariance(posed, before),
        criterion=posed.criterion,
        before=_error(judge, before),
        after=_error(judge, after),
        efficiency=found.chosen.efficiency,
        courses=courses,
        sigma_known=posed.sigma_known,
        starts=tuple(sorted(float(np.exp(-v / 2)) for v in found.values)),
        seed=search.seed,
        notes=_notes(posed, courses),
    )


def _after(search: Search, found: Found) -> FloatArray:
    """(n, n) information at the parameters given, the first scenario."""
    evidence = search.evidence(found.design)
    assert evidence is not None, "the search returns what can be integrated"
    return evidence.informations(found.chosen.taken.astype(float))[0]


def _error(judge: Judge, information: FloatArray) -> float:
    return float(np.exp(-judge(information) / 2))


def _covariance(posed: Posed, information: FloatArray) -> FloatArray:
    """(n, n) of the whole problem's unknowns in their units; infinite where nothing is known."""
    found = covariance(information)
    n = len(posed.sizes)
    lost = np.sqrt(np.diag(found))[:n] > UNKNOWN
    own = found[:n, :n] * np.outer(posed.sizes, posed.sizes)
    own[lost, :] = own[:, lost] = np.inf
    return np.asarray(own)


def _errors(posed: Posed, before: FloatArray, after: FloatArray) -> pd.DataFrame:
    box = posed.whole.box
    errors = [np.sqrt(np.diag(_covariance(posed, f))) for f in (before, after)]
    with np.errstate(invalid="ignore"):
        ratio = errors[0] / errors[1]
    return pd.DataFrame(
        {
            "value": box.vector(posed.values),
            "unit": [posed.whole.unit(n) for n in box.names],
            "before": errors[0],
            "after": errors[1],
            "ratio": ratio,
        },
        index=pd.Index(box.names, name="name"),
    )


def _experiment(posed: Posed, found: Found, k: int) -> PlannedExperiment:
    taken, numbers = found.chosen.taken[k], found.design[k]
    start, inputs = posed.plan.settings(numbers)
    labels = [c.label for c in posed.plan.choices]
    return PlannedExperiment(
        name=planned_name(posed.whole, k),
        settings=dict(zip(labels, map(float, numbers), strict=True)),
        start=start,
        inputs=inputs,
        start_time=posed.plan.conditions.begin,
        times=posed.allowed.times[taken.any(axis=1)],
        measured=tuple(n for n, q in zip(posed.noise, taken.any(axis=0), strict=True) if q),
    )


def _course(posed: Posed, planned: PlannedExperiment) -> pd.DataFrame:
    """Integrated as any experiment is, not by what the design was found with."""
    end = posed.plan.conditions.end
    table = pd.DataFrame({"time": [end]} | {n: [0.0] for n in posed.noise})
    experiment = Experiment(
        table,
        name=planned.name,
        start=planned.start,
        start_time=planned.start_time,
        inputs=planned.inputs,
    )
    values = posed.plan.values(posed.values)
    alone = Problem(
        posed.whole.model, parameters=list(posed.whole.parameters), experiments=experiment
    )
    grid = np.union1d(np.linspace(planned.start_time, end, POINTS), posed.allowed.times)
    run: Any = simulate(alone, values, grid)
    return pd.concat(
        [
            pd.DataFrame({
                "experiment": planned.name,
                "name": n,
                "time": run["time"],
                "predicted": run[n],
                "sigma": np.hypot(noise.absolute, noise.relative * run[n]),
            })
            for n, noise in posed.noise.items()
        ],
        ignore_index=True,
    )


def _notes(posed: Posed, courses: pd.DataFrame) -> tuple[str, ...]:
    kept = constraints(posed.whole)
    notes = [f"The plan takes no account of the model's constraints {kept}."] if kept else []
    traces = [n for n, noise in posed.noise.items() if not noise.absolute and _traces(courses, n)]
    if traces:
        notes.append(
            f"The errors of {traces} are a share of their values, however small, and some planned "
            f"ones are below {TRACE:g} of the largest: the plan counts on exact traces. Say how "
            "exact they are at best: igpe.Noise(absolute=..., relative=...)."
        )
    return tuple(notes)


def _traces(courses: pd.DataFrame, name: str) -> bool:
    sizes = courses.loc[courses["name"] == name, "predicted"].abs()
    return bool(sizes.min() < TRACE * sizes.max())
