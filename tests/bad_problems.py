"""Models and settings that do not fit together, and what must be said about them."""

import math
from typing import Any

import bad_models as bad
import numpy as np
import pandas as pd
import pyomo.environ as pyo
from bad_models import spoilt, with_rate
from spoiling import Cases, pose, read, run, twins

from igpe.equations.compiled import compiled
from igpe.problem.experiment import Experiment
from igpe.problem.losses import Huber, NormalPrior, PiecewiseConstant

NAN, INF = np.nan, np.inf


def read_without_start(model: Any) -> Any:
    """Read the equations where the model itself must say how A starts."""
    return compiled(pose(model, experiments=run(start={})))


def initial(feed: Any) -> Any:
    """The initial value problem with this input."""
    problem = pose(experiments=run(inputs={"feed": feed}))
    return compiled(problem).initial_value_problem(0)


def read_pendulum() -> Any:
    """Read a model with an equation too many."""
    data = pd.DataFrame({"time": [0.0, 0.1, 0.2], "x": [1.0, 0.9, 0.8]})
    pulled = Experiment(data, start={"x": 1.0, "y": 0.0, "u": 0.0, "v": 0.0})
    return compiled(pose(bad.pendulum, parameters=["g"], experiments=pulled)).systems


SETTINGS: Cases = {
    "parameter unknown": (
        lambda: pose(parameters=["k9"]),
        "no scalar Var 'k9' | ['k'] | mutable Param",
    ),
    "parameter a constant Param": (
        lambda: pose(bad.spoilt(bad.constant_k)),
        "no scalar Var 'k' | 'k' is a Param that cannot change | mutable=True",
    ),
    "parameter twice": (lambda: pose(parameters=["k", "k"]), "['k'] | once"),
    "parameters a text": (lambda: pose(parameters="k"), "parameters='k' | parameters=['k']"),
    "parameter over time": (lambda: pose(parameters=["B"]), "'B' varies with time | time_varying="),
    "bounds crossed": (
        lambda: pose(parameters={"k": (2, 1)}),
        "'k' has bounds [2, 1] | lower < upper",
    ),
    "bounds equal": (lambda: pose(parameters={"k": (1, 1)}), "[1, 1] | Fix the"),
    "bounds NaN": (lambda: pose(parameters={"k": (NAN, 1)}), "[nan, 1] | lower <"),
    "bounds at infinity": (lambda: pose(parameters={"k": (INF, INF)}), "'k' has bounds [inf, inf]"),
    "bounds no pair": (lambda: pose(parameters={"k": 3.0}), "'k' | 3.0 | (lower, upper)"),
    "no parameters": (
        lambda: pose(parameters=[]),
        "No parameters are named | List the Vars that igpe",
    ),
    "logarithmic no names": (
        lambda: pose(logarithmic=True),
        "`logarithmic` is True | logarithmic=['k1', 'k2']",
    ),
    "local no parameter": (
        lambda: pose(local=["q"]),
        "`local` contains ['q'] | not among the parameters | 'k'",
    ),
    "prior for a stranger": (
        lambda: pose(priors={"q": NormalPrior(1, 1)}),
        "['q'] | not unknowns | ['k']",
    ),
    "prior deviation zero": (
        lambda: NormalPrior(1, 0),
        "deviation is 0 | a positive number",
    ),
    "prior mean NaN": (lambda: NormalPrior(NAN, 1), "mean is nan | a finite number"),
    "Huber negative": (lambda: Huber(-1), "delta is -1 | positive"),
    "Huber NaN": (lambda: Huber(NAN), "delta is nan | positive"),
    "time-varying stranger": (
        lambda: pose(time_varying={"Z": PiecewiseConstant((0.5,), 0, 1)}),
        "time_varying= contains ['Z'] | 'feed'",
    ),
    "time-varying input": (
        lambda: pose(
            time_varying={"feed": PiecewiseConstant((0.5,), 0, 1)},
            experiments=run(inputs={"feed": 1.0}),
        ),
        "'feed' | input | time_varying",
    ),
    "breaks unsorted": (
        lambda: PiecewiseConstant((1, 0), 0, 1),
        "[1, 0] | not in increasing order",
    ),
    "breaks none": (lambda: PiecewiseConstant((), 0, 1), "breaks []"),
    "time-varying bounds": (lambda: PiecewiseConstant((1,), 1, 0), "[1, 0] | lower < upper"),
    "penalty negative": (
        lambda: PiecewiseConstant((1,), 0, 1, penalty=-1),
        "penalty -1 | 0 or more",
    ),
    "no experiments": (lambda: pose(experiments=[]), "contains nothing | igpe.Experiment"),
    "experiments of wrong type": (
        lambda: pose(experiments=[{"A": 1}]),
        "['dict'] | expected a list of igpe.Experiment objects",
    ),
    "experiments of a table": (
        lambda: pose(experiments=pd.DataFrame({"time": [0.0], "A": [1.0]})),
        "`experiments` is a DataFrame | expected a list of igpe.Experiment objects",
    ),
    "experiment None": (
        lambda: pose(experiments=None),
        "NoneType | expected a list of igpe.Experiment objects",
    ),
    "same names": (lambda: pose(experiments=twins()), "['run', 'run'] | its own name"),
    "same names by number": (
        lambda: pose(experiments=[run(name="2"), run()]),
        "['2', '2'] | its own name",
    ),
    "start outside of bounds": (
        lambda: pose(bad.spoilt(lambda m: m.A.setub(0.5))),
        "start value of 'A' is 1 | bounds of this Var are [-inf, 0.5] | widen",
    ),
    "fixing a stranger": (
        lambda: pose().fixing({"q": 1.0}),
        "Unknown parameter names: ['q'] | problem's unknowns | ['k']",
    ),
    "fixing at NaN": (lambda: pose().fixing({"k": NAN}), "'k' | nan | finite"),
}

MODELS: Cases = {
    "no builder": (lambda: pose({"A": 1}), "dict | a Pyomo model | model(times)"),
    "model that ends early": (
        lambda: pose(bad.model([0.0, 1.0])),
        "'t' reaches from 0 to 1 | time 2 is wanted | ContinuousSet(bounds=(0, 2))",
    ),
    "a delay": (
        lambda: pose(with_rate(lambda m, t: m.dA[t] == -m.k * m.A[t - 1])),
        "Index '-1.0' | [*times, 2.5] | does not support delays, such as m.A[t - 1]",
    ),
    "builder raises": (
        lambda: pose(bad.raises),
        "`raises` failed | KeyError | no table | Experiment(inputs=...)",
    ),
    "builder with another second argument": (
        lambda: pose(bad.with_another_argument),
        "passes the experiment as the second argument, `change` | change=False",
    ),
    "builder without arguments": (
        lambda: pose(lambda: bad.model([0.0])),
        "<lambda> | failed | any list of times",
    ),
    "returns None": (lambda: pose(bad.returns_none), "NoneType | Pyomo model | return m"),
    "AbstractModel itself": (
        lambda: pose(pyo.AbstractModel()),
        "ConcreteModel | Pass model.create_instance()",
    ),
    "AbstractModel": (lambda: pose(bad.abstract), "ConcreteModel | model.create_instance()"),
    "no ContinuousSet": (
        lambda: pose(bad.without_time),
        "no pyomo.dae ContinuousSet | m.t = ContinuousSet(initialize=times)",
    ),
    "no DerivativeVar": (
        lambda: pose(bad.without_derivative),
        "no pyomo.dae DerivativeVar | DerivativeVar(m.A)",
    ),
    "several ContinuousSets": (
        lambda: pose(spoilt(bad.second_time)),
        "['t', 'z'] | over only one of them, time | space={'z': 50} | apply_to(m, wrt=m.z, ",
    ),
    "second derivative": (
        lambda: pose(spoilt(bad.second_derivative)),
        "'ddA' | higher-order or mixed | m.dv = DerivativeVar(m.v)",
    ),
    "two derivatives": (
        lambda: pose(spoilt(bad.two_derivatives)),
        "`spoilt_model` failed | derivative already defined as dA",
    ),
    "a name used twice": (
        lambda: pose(spoilt(bad.a_name_twice)),
        "'dA' is the derivative of 'A', which the model does not contain | used twice?",
    ),
    "defined scalar": (
        lambda: pose(spoilt(bad.defined_scalar)),
        "'q' | neither fixed | Constraint 'half' contains 'q' | m.q = pyo.Expression(expr=...)",
    ),
    "free scalar": (
        lambda: pose(spoilt(bad.free_scalar)),
        "'q' | neither fixed | parameters=[...]",
    ),
    "constant without value": (
        lambda: read(spoilt(bad.scalar_without_value)),
        "'q' | no value | Give its value",
    ),
    "math.exp": (
        lambda: read(with_rate(bad.uses_math)),
        "'rate' changes with time | Pyomo's functions | pyo.exp(-t) | inputs",
    ),
    "branches on time": (
        lambda: read(with_rate(bad.branches_on_time)),
        "'rate' changes with time | uses `if`, `and` or `or` | pyo.Expr_if | Experiment(inputs=",
    ),
    "NumPy on a variable": (
        lambda: read(with_rate(bad.uses_numpy)),
        "builder | cannot compute with variables of Pyomo | such as pyo.exp",
    ),
    "math on a variable": (
        lambda: read(with_rate(bad.takes_a_float)),
        "builder | cannot compute with k of Pyomo | such as pyo.exp",
    ),
    "branches on a state": (
        lambda: read(with_rate(bad.branches_on_state)),
        "builder | cannot decide whether `1 < A[ | write pyo.Expr_if(condition, a, b)",
    ),
    "exists sometimes": (
        lambda: read(with_rate(bad.skips_inside)),
        "'rate | does not exist at time | at all times",
    ),
    "mixes times": (lambda: read(with_rate(bad.mixes_times)), "'A[ | refer to the same time"),
    "start nonlinear": (
        lambda: read_without_start(spoilt(bad.start_square)),
        "'begin' | not linear in 'A' | A == an expression in the parameters",
    ),
    "start without the state": (
        lambda: read_without_start(spoilt(bad.start_cancels)),
        "'begin' | 'A'",
    ),
    "too many equations": (
        read_pendulum,
        "differentiated repeatedly | too many equations | 'circle' | Remove an equation",
    ),
    "too few equations": (
        lambda: read(spoilt(bad.no_equation_for_B)),
        "undetermined:  | 'B' | Experiment(inputs=...)",
    ),
    "piecewise curve": (
        lambda: read(spoilt(bad.piecewise)),
        "pyo.Piecewise | 'curve' | pyo.Expr_if",
    ),
    "external function": (
        lambda: read(spoilt(bad.external)),
        "external function | Pyomo's functions",
    ),
    "times of its own": (
        lambda: pose(bad.own_grid),
        "has the points [0, 0.7, 1.7, 2] | but not 1 | ContinuousSet(initialize=times)",
    ),
    "time not used": (
        lambda: read(bad.own_times),
        "has the points | ContinuousSet(initialize=times)",
    ),
}
STARTS: Cases = {
    "input without value": (
        lambda: pose(spoilt(bad.input_without_value)),
        "'acid' has no value | Experiment(inputs=...)",
    ),
    "start fixed without value": (
        lambda: read_without_start(spoilt(bad.start_fixed_without_value)),
        "['A'] have no start value | Experiment(start=",
    ),
    "start of an algebraic variable": (
        lambda: pose(experiments=run(start={"A": 1.0, "B": 0.0})),
        "['B'] | B has no time derivative: the equations give it | Omit it from start",
    ),
}
INPUTS: Cases = {
    "input by math": (lambda: initial(math.sin), "'feed' | pyo.exp(-t) | igpe.step_input"),
    "input that branches": (
        lambda: initial(lambda t: 1.0 if pyo.sin(t) < 0.5 else 2.0),
        "'feed' | uses `if`, `and` or `or` | pyo.Expr_if | igpe.step_input",
    ),
}
