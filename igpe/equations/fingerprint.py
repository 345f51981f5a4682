"""What an estimate from a problem depends on, as a hash: equations, data, unknowns."""

from collections.abc import Iterator
from typing import Any

import casadi as ca

from igpe.core.arguments import digest
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.problem.problem import Problem


def fingerprint(problem: Problem) -> str:
    """The same for problems that say the same, in whatever process and however they were built.

    raises ModelError, DataError as the translation does
    """
    box = problem.box
    bounds = [box.names, box.lower, box.upper, box.logarithmic, problem.fixed]
    objective = [problem.priors, problem.loss, problem.time_varying]
    each = [list(_experiment(problem, k)) for k in range(len(problem.experiments))]
    models = [list(_model(problem, k)) for k in range(len(problem.experiments))]
    return digest(bounds, objective, each, models)


def _experiment(problem: Problem, k: int) -> Iterator[Any]:
    """Data of an experiment, and its initial value problem as CasADi writes it."""
    experiment = problem.experiments[k]
    ivp = compiled(problem).initial_value_problem(k, switching=True)
    yield [experiment.name, experiment.measurements]
    yield [experiment.sigma_known, experiment.weights_unknown]
    if (spectra := experiment.spectra) is not None:
        yield [spectra.times, spectra.wavelengths, spectra.values, spectra.noise, spectra.species]
        yield [spectra.pure, spectra.nonnegative, spectra.smooth, spectra.unwanted, spectra.shared]
    yield [experiment.error_models, experiment.estimated_sigma, experiment.start]
    yield [ivp.states, ivp.implicit, ivp.unknowns, ivp.t0, ivp.tables]
    yield [ivp.scale, ivp.largest, ivp.unknown_scale, ivp.implicit_scale]
    yield [ivp.guess, ivp.lower, ivp.upper]
    yield _serialized(ivp, [ivp.f, ivp.g, ivp.start, ivp.measured])
    if ivp.switching is not None:
        jumps = ivp.switching.jumps
        yield [ivp.switching.modes, [j.gap for j in jumps]]
        columns = [[0 if j.at is None else j.at, j.after, j.delay] for j in jumps]
        yield _serialized(ivp, [ivp.switching.gaps, *(ca.vertcat(*c) for c in columns)])
    if ivp.rest is not None:
        yield [ivp.rest.tables, _serialized(ivp.rest, [ivp.rest.f, ivp.rest.g, ivp.rest.start])]


def _serialized(ivp: InitialValueProblem, columns: list[Any]) -> str:
    symbols = [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q]
    return str(ca.Function("equations", symbols, columns).serialize())


def _model(problem: Problem, k: int) -> Iterator[Any]:
    """What the model says beside its equations: constraints, and bounds of what runs over time."""
    instance = problem.instances[k]
    yield {name: str(c.expr) for name, c in problem.starts[k].others.items()}
    for name, series in instance.inequalities.items():
        yield [name, [str(c.expr) for c in series.values()]]
    for name, series in instance.states.items():
        first = next(iter(series.values()))
        yield [name, first.bounds, first.value]
