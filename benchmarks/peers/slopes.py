"""One simulation with forward sensitivities by others: each made ready for a relative tolerance.

All tell the same: what is measured at the measured times, and its derivatives by all unknowns.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.integrate import solve_ivp

import igpe
from igpe.core.arrays import FloatArray
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.operations import ARITHMETIC, Graph
from peers.sbml import conditions, sbml
from peers.told import PYTHON, told

ABSOLUTE = 1e-2  # of the relative tolerance
STEPS = 10**6


class UnavailableError(Exception):
    """The method cannot be asked."""


class Asked(NamedTuple):
    """One experiment at q (n_q,), which is told at `times`."""

    problem: igpe.Problem
    ivp: InitialValueProblem
    q: FloatArray
    times: FloatArray


class Came(NamedTuple):
    """Values (n_times, n_measured) and derivatives (n_times, n_measured, n_q)."""

    values: FloatArray
    derivatives: FloatArray


Run = Callable[[], Came]
Maker = Callable[[float], Run]


def asked_of(module: Any) -> Asked:
    """A published model with one experiment, at its optimum."""
    problem = module.problem()
    run = problem.experiments[0]
    ivp = compiled(problem).initial_value_problem(0)
    q = np.array([module.OPTIMUM[n] for n in ivp.unknowns])
    return Asked(problem, ivp, q, run.times)


def ours(asked: Asked, integrator: Any) -> Maker:
    """One of igpe's integrators."""

    def make(rtol: float) -> Run:
        method = integrator(rtol=rtol, atol=ABSOLUTE * rtol, max_steps=STEPS)
        made = method.simulation(asked.ivp, asked.times, sensitivities=True)

        def run() -> Came:
            came = made.run(asked.q)
            return Came(came.measured, came.measured_by_unknown)

        return run

    return make


def one_interval(asked: Asked) -> Maker:
    """igpe's integrator of intervals, which multiple shooting uses, on a single one."""
    ivp = asked.ivp
    begin = [ca.densify(v) for v in (ivp.start, ca.jacobian(ivp.start, ivp.q))]
    start = ca.Function("start", [ivp.q], begin)
    nodes = np.array([ivp.t0, asked.times[-1]])

    def make(rtol: float) -> Run:
        method = igpe.integrators.RungeKutta(rtol=rtol, atol=ABSOLUTE * rtol, slack=100.0)
        made = method.prepare(ivp, nodes, asked.times)

        def run() -> Came:
            x, by_q = (np.asarray(v) for v in start(asked.q))
            came = made.run(x.T, asked.q)
            return Came(came.measured, came.measured_by_start @ by_q + came.measured_by_unknown)

        return run

    return make


def _with_inputs(ivp: InitialValueProblem) -> tuple[Any, Any]:
    """f and h with inputs as functions of time."""
    if any(t.hold for t in ivp.tables):
        raise UnavailableError("inputs that jump")
    lines = []
    for t in ivp.tables:  # one point more: the last value is held
        times = [*t.times, float(t.times[-1]) + np.ptp(t.times)]
        lines.append(ca.pw_lin(ivp.t, ca.DM(times), ca.DM([*t.values, t.values[-1]])))
    return tuple(ca.substitute([ivp.f, ivp.measured], [ivp.u], [ca.vertcat(*lines)]))


def casadis(asked: Asked) -> Maker:
    """CVODES with CasADi's own forward sensitivities."""
    ivp = asked.ivp
    f, h = _with_inputs(ivp)
    system = {"t": ivp.t, "x": ivp.x, "p": ivp.q, "ode": f}
    start = ca.Function("start", [ivp.q], [ivp.start])
    told_at = ca.Function("told", [ivp.t, ivp.x, ivp.q], [h])
    grid = asked.times[asked.times > ivp.t0]
    is_first = len(grid) < len(asked.times)

    def make(rtol: float) -> Run:
        options = {
            "reltol": rtol,
            "abstol": ABSOLUTE * rtol,
            "quad_err_con": True,
            "max_num_steps": STEPS,
        }
        integrator = ca.integrator("peer", "cvodes", system, ivp.t0, grid, options)
        q = ca.MX.sym("q", ivp.q.numel())
        first = start(q)
        states = integrator(x0=first, p=q)["xf"]
        all_states = ca.horzcat(first, states) if is_first else states
        columns = ca.horzsplit(all_states)
        rows = [told_at(t, x, q) for t, x in zip(asked.times.tolist(), columns, strict=True)]
        told = ca.vertcat(*rows)
        # one direction for each unknown: forward, as a user asks for
        by = ca.jacobian(told, q, {"helper_options": {"ad_weight": 0}})
        both = ca.Function("both", [q], [told, by])
        shape = (len(asked.times), h.numel())

        def run() -> Came:
            values, derivatives = both(asked.q)
            return Came(
                np.asarray(values).reshape(shape),
                np.asarray(ca.densify(derivatives)).reshape((*shape, len(asked.q))),
            )

        return run

    return make


def scipys(method: str) -> Callable[[Asked], Maker]:
    """`solve_ivp` on the variational equations."""

    def prepare(asked: Asked) -> Maker:
        ivp, n_x, n_q = asked.ivp, asked.ivp.x.numel(), asked.ivp.q.numel()
        f, h = _with_inputs(ivp)
        s = ca.SX.sym("S", n_x, n_q)
        slopes = ca.vertcat(f, ca.vec(ca.jacobian(f, ivp.x) @ s + ca.jacobian(f, ivp.q)))
        wide = ca.vertcat(ivp.x, ca.vec(s))
        function = ca.Function("f", [ivp.t, wide, ivp.q], [ca.densify(slopes)])
        begin = ca.vertcat(ivp.start, ca.vec(ca.jacobian(ivp.start, ivp.q)))
        start = np.asarray(ca.Function("s", [ivp.q], [ca.densify(begin)])(asked.q)).ravel()
        by = ca.jacobian(h, ivp.x) @ s + ca.jacobian(h, ivp.q)
        told_at = ca.Function("h", [ivp.t, wide, ivp.q], [ca.densify(h), ca.densify(by)])

        def slope(t: float, x: FloatArray) -> FloatArray:
            return np.asarray(function(t, x, asked.q)).ravel()

        def make(rtol: float) -> Run:
            def run() -> Came:
                span = (ivp.t0, float(asked.times[-1]))
                came = solve_ivp(
                    slope,
                    span,
                    start,
                    method,
                    asked.times,
                    rtol=max(rtol, 3e-14),
                    atol=ABSOLUTE * rtol,
                )
                pairs = [told_at(t, x, asked.q) for t, x in zip(came.t, came.y.T, strict=True)]
                values, derivatives = zip(*pairs, strict=True)
                return Came(
                    np.array([np.asarray(v).ravel() for v in values]),
                    np.array([np.asarray(d) for d in derivatives]),
                )

            return run

        return make

    return prepare


def amicis(asked: Asked) -> Maker:
    """AMICI's compiled model, through SBML; parameters as they are, not their logarithms."""
    import amici
    from amici.importers.sbml import SbmlImporter
    from amici.importers.utils import MeasurementChannel
    from amici.sim import sundials

    problem = told(asked.problem)
    names = [f"observed_{n}" for n in problem.text(PYTHON).measured]
    folder = Path(mkdtemp(prefix="peers-amici-"))
    name = f"asked_{folder.name[12:]}"
    SbmlImporter(sbml(problem), from_file=False).sbml2amici(
        name,
        folder / "compiled",
        fixed_parameters=list(conditions(problem.courses[0])),
        observation_model=[MeasurementChannel(f"of_{n}", formula=n) for n in names],
    )
    model = amici.import_model_module(name, folder / "compiled").get_model()
    model.set_timepoints(asked.times)
    values = dict(zip(problem.unknowns, asked.q.tolist(), strict=True))
    given = list(model.get_free_parameter_ids())
    model.set_free_parameters([values[n] for n in given])
    order = [given.index(n) for n in problem.unknowns]

    def make(rtol: float) -> Run:
        solver = model.create_solver()
        solver.set_sensitivity_order(sundials.SensitivityOrder.first)
        solver.set_sensitivity_method(sundials.SensitivityMethod.forward)
        solver.set_relative_tolerance(rtol)
        solver.set_absolute_tolerance(ABSOLUTE * rtol)
        solver.set_max_steps(STEPS)

        def run() -> Came:
            came = sundials.run_simulation(model, solver)
            return Came(np.array(came.y), np.array(came.sy).transpose(0, 2, 1)[:, :, order])

        return run

    return make


def diffraxs(asked: Asked) -> Maker:
    """diffrax: Kvaerno's method of order 5, differentiated forward and compiled by XLA."""
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    ivp = asked.ivp
    f, h = _jax(ivp, ivp.f, jnp), _jax(ivp, ivp.measured, jnp)
    start = _jax(ivp, ivp.start, jnp)
    tables = [(jnp.array(t.times), jnp.array(t.values)) for t in ivp.tables]
    jumps = jnp.array(ivp.breaks(float(asked.times[-1]))) if tables else None

    def inputs(t: Any) -> list[Any]:
        return [jnp.interp(t, *table) for table in tables]

    def make(rtol: float) -> Run:
        controller = diffrax.PIDController(rtol=rtol, atol=ABSOLUTE * rtol)
        if jumps is not None:
            controller = diffrax.ClipStepSizeController(controller, jump_ts=jumps)

        def simulated(q: Any) -> Any:
            found = diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, x, q: jnp.array(f(t, x, inputs(t), q))),
                diffrax.Kvaerno5(),
                ivp.t0,
                float(asked.times[-1]),
                None,
                jnp.array(start(0.0, [0.0] * ivp.x.numel(), [], q)),
                args=q,
                saveat=diffrax.SaveAt(ts=jnp.array(asked.times)),
                stepsize_controller=controller,
                adjoint=diffrax.ForwardMode(),
                max_steps=STEPS,
                throw=False,
            )
            told = jax.vmap(lambda t, x: jnp.array(h(t, x, inputs(t), q)))(
                jnp.array(asked.times), found.ys
            )
            return told, told

        both = jax.jit(jax.jacfwd(simulated, has_aux=True))

        def run() -> Came:
            derivatives, values = both(asked.q)
            return Came(np.asarray(values), np.asarray(derivatives))

        return run

    return make


def _jax(ivp: InitialValueProblem, expressions: Any, jnp: Any) -> Callable[..., list[Any]]:
    """CasADi's expressions as a function of (t, x, u, q) on JAX's arrays."""
    given = [ivp.t, ivp.x, ivp.u, ivp.q]
    column = ca.densify(ca.vec(ca.SX(expressions)))
    graph = Graph.of(column, [ca.SX(v) for v in given])
    operations: Mapping[str, Callable[..., Any]] = {
        **ARITHMETIC,
        "SQ": lambda a: a * a,
        "EXP": jnp.exp,
        "LOG": jnp.log,
        "SQRT": jnp.sqrt,
        "SIN": jnp.sin,
        "COS": jnp.cos,
    }

    def evaluated(t: Any, x: Any, u: Any, q: Any) -> list[Any]:
        values = ([t], x, u, q)
        return graph.evaluate(
            lambda i, j: values[i][j],
            lambda number: number,
            lambda name, operands: operations[name](*operands),
        )

    return evaluated


OTHERS: dict[str, Callable[[Asked], Maker]] = {
    "igpe RungeKutta": one_interval,
    "AMICI": amicis,
    "CasADi cvodes": casadis,
    "SciPy LSODA": scipys("LSODA"),
    "SciPy Radau": scipys("Radau"),
    "diffrax": diffraxs,
}
