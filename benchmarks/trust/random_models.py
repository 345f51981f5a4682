"""Random `pyomo.dae` models: one text, read by Pyomo for igpe and by Python for the judge.

Every right-hand side is a line of Python (`-k1*x1*exp(-b*t)`). The Pyomo model evaluates it in its
rules, with Pyomo's components for the names; the judge compiles the same line to a function of
numbers and integrates it with SciPy. Nothing of igpe takes part in the judge. `disagreement`
compares the two through `pyo.value` of the constraints, so that the text means the same to both.

In conditions time is called `tc`: the judge integrates piece by piece and holds `tc` in the middle
of each, so that no stage of an integrator sees the wrong side of a switch. `d_x` is the slope of x,
`x_first` its value at the first time, `t_first` the first time.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from pyomo.core.expr.numeric_expr import MaxExpression, MinExpression
from scipy.integrate import solve_ivp

import igpe

FUNCTIONS = ("exp", "log", "log10", "sqrt", "sin", "cos", "tanh", "floor")
IMPLICIT = 1e-13  # relative accuracy of algebraic equations that the judge solves by Newton


PLAIN_STYLE: dict[str, Any] = {
    "layout": "plain",  # or "species first", "time first", "reference", "block"
    "rates": "",  # or "indexed", "time block"
    "rules": "lambda",  # or "decorator"
    "skip": "",  # or "first", "zero": no equation at the first time
    "tuples": False,  # equations as (left, right)
    "list": False,  # equations in a ConstraintList
    "alias": True,  # states are named by their References
    "domain": False,  # states are NonNegativeReals
    "units": False,
    "objective": False,
    "parameters": "plain",  # or "params", "indexed", "block"
    "inputs": "params",  # or "vars"
    "bounded": False,  # algebraic variables and time
    "say start": True,  # Experiment(start_time=...)
}


@dataclass
class Input:
    """A known function of time: a number, a table, a Series, a function, or a rule in the model.

    kind   "number", "steps", "linear", "series", "function", "rule" (a Param over time that the
           model itself initialises), "fixed" (a Var over time that the model fixes), "default" (a
           number that the model holds)
    """

    kind: str
    code: str = ""
    times: tuple[float, ...] = ()
    values: tuple[float, ...] = ()


@dataclass
class Algebraic:
    """Variables that equations without slopes determine, with guesses near the solution."""

    names: list[str]
    equations: list[tuple[str, str]]
    guesses: list[float]


@dataclass
class Run:
    """An experiment: start values, inputs, values of unknowns and constants of its own."""

    name: str
    start: dict[str, float]
    inputs: dict[str, Input]
    local: dict[str, float] = field(default_factory=dict)
    constants: dict[str, float] = field(default_factory=dict)


@dataclass
class Model:
    """What igpe and the judge are given.

    states       state -> right-hand side
    size         of each state
    equations    both sides of each differential equation, in whatever form it is written
    definitions  name -> text, or `Algebraic`, in the order in which they can be computed
    as_variable  definitions that are Vars with a constraint, not Expressions
    unknowns     name -> true value;  constants: name -> (value, how it is written)
    starts       state -> "number", "unknown", "parameter", "fixed" or "equation"
    cuts         times at which the judge begins afresh: switches, jumps, around pulses
    style        of the model: layout, rules, Skip at the first time, ...
    """

    name: str
    first: float = 0.0
    horizon: float = 1.0
    states: dict[str, str] = field(default_factory=dict)
    size: dict[str, float] = field(default_factory=dict)
    equations: list[tuple[str, str]] = field(default_factory=list)
    definitions: dict[str, Any] = field(default_factory=dict)
    as_variable: set[str] = field(default_factory=set)
    unknowns: dict[str, float] = field(default_factory=dict)
    constants: dict[str, tuple[float, str]] = field(default_factory=dict)
    starts: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    measured: list[str] = field(default_factory=list)
    cuts: set[float] = field(default_factory=set)
    style: dict[str, Any] = field(default_factory=lambda: dict(PLAIN_STYLE))

    @property
    def last(self) -> float:
        """The end of the horizon."""
        return self.first + self.horizon

    def text(self) -> str:
        """The model as lines to read, for reports of what went wrong."""
        lines = [f"{self.name}: t from {self.first:g} to {self.last:g}, {self.style}"]
        lines += [f"  {a} == {b}".replace("tc", "t") for a, b in self.equations]
        lines += [f"  {n} := {d}".replace("tc", "t") for n, d in self.definitions.items()]
        lines += [f"  unknowns {self.unknowns}", f"  constants {self.constants}"]
        lines += [f"  measured {self.measured}, starts {self.starts}"]
        return "\n".join(lines + [f"  {run}" for run in self.runs])


# --- the Pyomo model ------------------------------------------------------------------------------

PYOMO: dict[str, Any] = {n: getattr(pyo, n) for n in FUNCTIONS} | {
    "Expr_if": pyo.Expr_if,
    "value": pyo.value,
    "abs": abs,
    "power": lambda base, exponent: base**exponent,
    "Max": lambda *a: MaxExpression(a),
    "Min": lambda *a: MinExpression(a),
    "max": max,
    "min": min,
    "math_exp": math.exp,
    "np_exp": np.exp,
    "np_interp": np.interp,
    "__builtins__": {},
}


class Names(dict[str, Any]):
    """What the names in a line mean in the Pyomo model at one time."""

    def __init__(self, lookup: Callable[[str], Any]) -> None:
        super().__init__()
        self.lookup = lookup

    def __missing__(self, name: str) -> Any:
        if name in PYOMO:
            raise KeyError(name)  # evaluation goes on among the functions
        return self.lookup(name)


class Builder:
    """A model's builder, as igpe wants it: called with times, returns a ConcreteModel."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __call__(self, times: Iterable[float], experiment: Any = None) -> Any:
        """The Pyomo model on these times, and of this experiment if its numbers depend on it."""
        m, times = pyo.ConcreteModel(), list(times)
        bounds = {"bounds": (min(times), max(times))} if self.model.style["bounded"] else {}
        m.t = dae.ContinuousSet(initialize=times, **bounds)
        m.run_name = None if experiment is None else experiment.name
        m.species = pyo.Set(initialize=list(self.model.states))
        m.unit = pyo.Block()
        self._add_states(m)
        self._add_scalars(m)
        self._add_inputs(m)
        self._add_definitions(m)
        self._add_equations(m)
        self._add_starts(m)
        if self.model.style["objective"]:
            m.objective = pyo.Objective(expr=0.0)
        return m

    # names

    def home(self, m: Any) -> Any:
        """Where states and their equations live."""
        return m.unit if self.model.style["layout"] == "block" else m

    def known_as(self, name: str) -> str:
        """igpe's name of a quantity."""
        if name in self.model.states:
            layout = self.model.style["layout"]
            plain = {"plain": name, "block": f"unit.{name}"}
            if layout == "reference" and self.model.style["alias"]:
                return f"ref_{name}"
            return plain.get(layout, f"conc[{name}]")
        where = self.model.style["rates"]
        if where and name in self.model.definitions:
            return f"rates.{name}" if where == "time block" else f"rates[{name}]"
        if name in self.model.unknowns and self.model.style["parameters"] == "indexed":
            return f"par[{name}]"
        if name in self.model.unknowns and self.model.style["parameters"] == "block":
            return f"unit.{name}"
        return name

    def names(self, m: Any, t: Any) -> Names:
        """The meaning of names at time t, which may be whatever igpe asks a rule with."""
        return Names(partial(self.find, m.model(), t))

    def find(self, m: Any, t: Any, name: str) -> Any:
        """A component's member at time t."""
        if name in {"t", "tc", "t_first"}:
            return m.t.first() if name == "t_first" else t
        if name.endswith("_first"):
            return self.find(m, m.t.first(), name.removesuffix("_first"))
        if name in self.model.states:
            return self.state(m, name, "conc", "", t)
        if name.startswith("d_"):
            return self.state(m, name[2:], "dconc", "d_", t)
        if name in self.model.unknowns:
            return m.find_component(self.known_as(name))
        is_constant = name in self.model.constants
        return self._constant(m, name) if is_constant else self._other(m, t, name)

    def _constant(self, m: Any, name: str) -> Any:
        """A constant, which may be chosen by the experiment's name."""
        number, kind = self.model.constants[name]
        own = {r.name: r.constants.get(name, number) for r in self.model.runs}
        return own.get(m.run_name, number) if kind == "float" else m.component(name)

    def _other(self, m: Any, t: Any, name: str) -> Any:
        """An input, an algebraic variable or an Expression."""
        where = self.model.style["rates"]
        if where and name in self.model.definitions:
            return m.rates[t].component(name) if where == "time block" else m.rates[t, name]
        component = m.component(name)
        return component[t] if component.is_indexed() else component

    def state(self, m: Any, name: str, indexed: str, prefix: str, t: Any) -> Any:
        """A state or, with the prefix, its slope."""
        layout = self.model.style["layout"]
        if layout in {"plain", "block"}:
            return self.home(m).component(prefix + name)[t]
        if layout == "reference" and not prefix:
            return m.component(f"ref_{name}")[t]
        component = m.component(indexed)
        return component[name, t] if layout == "species first" else component[t, name]

    def evaluate(self, m: Any, t: Any, code: str) -> Any:
        """A line of text as a Pyomo expression."""
        return eval(code, PYOMO, self.names(m, t))

    # parts

    def _add_states(self, m: Any) -> None:
        layout, home = self.model.style["layout"], self.home(m)
        if layout in {"plain", "block"}:
            for name in self.model.states:
                kind = {"domain": pyo.NonNegativeReals} if self.model.style["domain"] else {}
                kind |= {"units": pyo.units.mol / pyo.units.L} if self.model.style["units"] else {}
                home.add_component(name, pyo.Var(m.t, initialize=self.model.size[name], **kind))
                with_time = {} if len(name) % 2 else {"wrt": m.t}
                home.add_component(
                    f"d_{name}", dae.DerivativeVar(home.component(name), **with_time)
                )
            return
        sets = (m.species, m.t) if layout == "species first" else (m.t, m.species)
        m.conc = pyo.Var(*sets, initialize=1.0)
        m.dconc = dae.DerivativeVar(m.conc, wrt=m.t)
        if layout == "reference":
            for name in self.model.states:
                m.add_component(f"ref_{name}", pyo.Reference(m.conc[:, name]))

    def _add_scalars(self, m: Any) -> None:
        for name, (number, kind) in self.model.constants.items():
            if kind == "fixed":
                m.add_component(name, pyo.Var(initialize=number))
                m.component(name).fix(number)
            elif kind != "float":
                m.add_component(name, pyo.Param(initialize=number, mutable=kind == "mutable"))
        how = self.model.style["parameters"]
        middle = {n: _rounded(1.3 * v) for n, v in self.model.unknowns.items()}
        if how == "indexed":
            m.par = pyo.Var(list(middle), initialize=middle)
        for name, guess in middle.items():
            if how == "params":
                m.add_component(name, pyo.Param(initialize=guess, mutable=True))
            elif how in {"plain", "block"}:
                home = m.unit if how == "block" else m
                home.add_component(name, pyo.Var(initialize=guess))

    def _add_inputs(self, m: Any) -> None:
        for name, given in self.model.runs[0].inputs.items():
            as_variable = self.model.style["inputs"] == "vars"
            if given.kind == "rule":
                rule = partial(self._rule_of_text, given.code)
                m.add_component(name, pyo.Param(m.t, mutable=True, initialize=rule))
            elif given.kind == "fixed":
                m.add_component(name, pyo.Var(m.t))
                for t in m.t:
                    m.component(name)[t].fix(self._rule_of_text(given.code, m, t))
            elif given.kind == "default":
                number = given.values[0]
                m.add_component(name, pyo.Param(m.t, mutable=True, default=number))
            elif given.kind == "number" and len(name) % 2 == 0:
                m.add_component(name, pyo.Param(mutable=True, default=1.0))
            elif as_variable:
                m.add_component(name, pyo.Var(m.t, initialize=1.0))
            else:
                m.add_component(name, pyo.Param(m.t, mutable=True, default=1.0))

    def _rule_of_text(self, code: str, m: Any, t: float) -> Any:
        return pyo.value(self.evaluate(m, t, code))

    def _add_definitions(self, m: Any) -> None:
        if self.model.style["rates"] == "time block":
            m.rates = pyo.Block(m.t, rule=self._time_block)
            return
        if self.model.style["rates"] == "indexed":
            self._add_indexed_rates(m)
            return
        for name, text in self.model.definitions.items():
            if isinstance(text, Algebraic):
                self._add_algebraic(m, text)
            elif name in self.model.as_variable:
                m.add_component(name, pyo.Var(m.t, initialize=1.0))
                self._constrain(m, f"define_{name}", f"{name}", text)
            else:
                rule = lambda m, t, text=text: self.evaluate(m, t, text)  # noqa: E731
                m.add_component(name, pyo.Expression(m.t, rule=rule))

    def _add_indexed_rates(self, m: Any) -> None:
        m.R = pyo.Set(initialize=list(self.model.definitions))
        rule = lambda m, t, r: self.evaluate(m, t, self.model.definitions[r])  # noqa: E731
        if self.model.as_variable:
            m.rates = pyo.Var(m.t, m.R, initialize=1.0)
            m.laws = pyo.Constraint(m.t, m.R, rule=lambda m, t, r: m.rates[t, r] == rule(m, t, r))
        else:
            m.rates = pyo.Expression(m.t, m.R, rule=rule)

    def _time_block(self, b: Any, t: float) -> None:
        m = b.model()
        for name, text in self.model.definitions.items():
            if name in self.model.as_variable:
                b.add_component(name, pyo.Var(initialize=1.0))
                expr = b.component(name) == self._in_block(b, m, t, text)
                b.add_component(f"define_{name}", pyo.Constraint(expr=expr))
            else:
                b.add_component(name, pyo.Expression(expr=self._in_block(b, m, t, text)))

    def _in_block(self, b: Any, m: Any, t: float, text: str) -> Any:
        def lookup(name: str) -> Any:
            own = b.component(name)
            return self.find(m, t, name) if own is None else own

        return eval(text, PYOMO, Names(lookup))

    def _add_algebraic(self, m: Any, one: Algebraic) -> None:
        for name, guess in zip(one.names, one.guesses, strict=True):
            bounds = (0, None) if self.model.style["bounded"] else None
            m.add_component(name, pyo.Var(m.t, initialize=guess, bounds=bounds))
        for i, (left, right) in enumerate(one.equations):
            self._constrain(m, f"balance_{one.names[0]}_{i}", left, right)

    def _constrain(self, m: Any, name: str, left: str, right: str) -> None:
        rule = lambda m, t: self.evaluate(m, t, left) == self.evaluate(m, t, right)  # noqa: E731
        m.add_component(name, pyo.Constraint(m.t, rule=rule))

    def _equation(self, m: Any, t: Any, number: int) -> Any:
        skip = self.model.style["skip"]
        m = m.model()
        if (skip == "first" and t == m.t.first()) or (skip == "zero" and t == 0):
            return pyo.Constraint.Skip
        left, right = self.model.equations[number]
        both = self.evaluate(m, t, left), self.evaluate(m, t, right)
        return both if self.model.style["tuples"] else both[0] == both[1]

    def _add_equations(self, m: Any) -> None:
        layout, home, count = self.model.style["layout"], self.home(m), len(self.model.equations)
        m.numbers = pyo.RangeSet(0, count - 1)
        if self.model.style["list"]:
            m.equations = pyo.ConstraintList()
            for t in m.t:
                for i in range(count):
                    m.equations.add(self._equation(m, t, i))
        elif layout == "species first":
            m.balance = pyo.Constraint(m.numbers, m.t, rule=lambda m, i, t: self._equation(m, t, i))
        elif layout == "time first":
            m.balance = pyo.Constraint(m.t, m.numbers, rule=self._equation)
        else:
            for i in range(count):
                self._add_rule(m, home, i)

    def _add_rule(self, m: Any, home: Any, i: int) -> None:
        if self.model.style["rules"] == "decorator" and home is m:

            def equation(m: Any, t: Any) -> Any:
                return self._equation(m, t, i)

            equation.__name__ = f"balance_{i}"
            m.Constraint(m.t)(equation)
        else:
            rule = lambda b, t: self._equation(b, t, i)  # noqa: E731
            home.add_component(f"balance_{i}", pyo.Constraint(m.t, rule=rule))

    def _add_starts(self, m: Any) -> None:
        first = m.t.first()
        for name, how in self.model.starts.items():
            x, number = self.find(m, first, name), self.model.runs[0].start[name]
            if how == "fixed":
                x.fix(number)
            elif how == "equation":
                m.add_component(f"start_{name}", pyo.Constraint(expr=x == number))
            elif how == "equation of parameter":
                p = m.find_component(self.known_as(f"{name}_begin"))
                m.add_component(f"start_{name}", pyo.Constraint(expr=x == p))


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


# --- igpe's problem -------------------------------------------------------------------------------


def given_input(given: Input) -> Any:
    """An input as igpe is given it."""
    if given.kind == "function":
        return lambda t: eval(given.code, PYOMO, {"t": t})
    if given.kind == "series":
        return pd.Series(list(given.values), index=list(given.times))
    makers = {"steps": igpe.step_input, "linear": igpe.linear_input}
    if given.kind in makers:
        return makers[given.kind](given.times, given.values)
    return given.values[0]


def problem(model: Model, tables: Iterable[pd.DataFrame], **settings: Any) -> igpe.Problem:
    """igpe's problem with one table of measurements for each run (columns as the model has it)."""
    builder, runs = Builder(model), []
    for run, table in zip(model.runs, tables, strict=True):
        runs.append(
            igpe.Experiment(
                table.rename(columns={n: builder.known_as(n) for n in model.measured}),
                name=run.name,
                start=dict(_starts(model, builder, run)),
                inputs={
                    n: given_input(u)
                    for n, u in run.inputs.items()
                    if u.kind not in {"rule", "default", "fixed"}
                },
                **({"start_time": model.first} if model.style["say start"] else {}),
                **settings,
            )
        )
    bounds = {builder.known_as(n): _bounds(v) for n, v in model.unknowns.items()}
    local = [builder.known_as(n) for n in model.runs[0].local]
    return igpe.Problem(builder, parameters=bounds, experiments=runs, local=local)


def own_fault(error: Exception) -> bool:
    """Whether igpe refuses a model because the builder of this module failed."""
    return "builder `Builder` failed" in str(error)


def _starts(model: Model, builder: Builder, run: Run) -> Iterable[tuple[str, Any]]:
    for state, how in model.starts.items():
        number = run.start[state]
        lower, upper = sorted((0.2 * number, 3 * number or model.size[state]))
        given = {
            "number": number,
            "unknown": igpe.Unknown(lower, upper),
            "parameter": builder.known_as(f"{state}_begin"),
        }
        if how in given:
            yield builder.known_as(state), given[how]


def _bounds(value: float) -> tuple[float, float]:
    ends = (0.3 * value, 2.5 * value) if value else (-1.0, 1.0)
    return min(ends), max(ends)


def truth(model: Model) -> dict[str, float]:
    """True values by igpe's names of the unknowns."""
    builder, found = Builder(model), {}
    several = len(model.runs) > 1
    for name, value in model.unknowns.items():
        if name in model.runs[0].local:
            found |= {f"{builder.known_as(name)}@{r.name}": r.local[name] for r in model.runs}
        else:
            found[builder.known_as(name)] = value
    for state, how in model.starts.items():
        if how == "unknown":
            for run in model.runs:
                own = f"@{run.name}" if several else ""
                found[f"{builder.known_as(state)}(t0){own}"] = run.start[state]
    if several and model.runs[0].local:
        return found
    return {n.split("@")[0] if not several else n: v for n, v in found.items()}


# --- the judge ------------------------------------------------------------------------------------


def _exp(v: float) -> float:
    return math.exp(v) if v < 709.0 else math.inf


def _power(base: float, exponent: float) -> float:
    """The limit at 0 goes on below it, as an exhausted state that rounding makes negative."""
    return base**exponent if base > 0 else 0.0


def _root(v: float) -> float:
    return math.sqrt(v) if v > 0 else 0.0


def _chosen(condition: Any, then: Any, otherwise: Any) -> Any:
    return then if condition else otherwise


PLAIN: dict[str, Any] = {n: getattr(math, n) for n in FUNCTIONS} | {
    "exp": _exp,
    "sqrt": _root,
    "power": _power,
    "Expr_if": _chosen,
    "value": float,
    "abs": abs,
    "Max": max,
    "Min": min,
    "max": max,
    "min": min,
    "math_exp": math.exp,
    "np_exp": math.exp,
    "np_interp": np.interp,
}


class Unsolved(ArithmeticError):
    """The judge's Newton method for algebraic equations did not converge."""


def newton(
    residuals: Callable[..., tuple[float, ...]], start: list[float], guess: list[float]
) -> list[float]:
    """Solve a few equations, by differences; the guess says how large the solution is."""
    z, size = np.array(start, dtype=float), np.abs(guess)
    for _ in range(60):
        r = np.array(residuals(*z), dtype=float)
        steps = 1e-6 * np.maximum(np.abs(z), 1e-3 * size)
        jacobian = np.column_stack([
            (np.array(residuals(*(z + h * e))) - residuals(*(z - h * e))) / (2 * h)
            for h, e in zip(steps, np.eye(len(z)), strict=True)
        ])
        change = np.linalg.solve(jacobian, -r)
        z = z + change
        if (np.abs(change) <= IMPLICIT * (np.abs(z) + size)).all():
            return list(z)
    raise Unsolved


class Judge:
    """Right-hand sides of one run as functions of numbers, compiled from the model's text.

    functions  what `exp` and the like mean; of numbers, or of complex arrays
    """

    def __init__(
        self,
        model: Model,
        run: Run,
        functions: Mapping[str, Any] = PLAIN,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.run = model, run
        self.last_solution: dict[str, list[float]] = {}
        space = {**functions, "t_first": model.first, "newton": self._newton}
        space |= {n: v for n, (v, _) in model.constants.items()}
        space |= dict(model.unknowns) | run.local | run.constants | (values or {})
        space |= {f"{n}_first": space.get(f"start {n}", v) for n, v in run.start.items()}
        space |= {f"in_{n}": _function(u, functions) for n, u in run.inputs.items()}
        exec(self._source(), space)
        self.slopes, self.outputs = space["slopes"], space["outputs"]

    def _newton(self, key: str, residuals: Any, guess: list[float]) -> list[float]:
        solution = newton(residuals, self.last_solution.get(key, guess), guess)
        self.last_solution[key] = solution
        return solution

    def _source(self) -> str:
        model = self.model
        lines = [f"{n} = in_{n}(t, tc)" for n in self.run.inputs]
        for name, text in model.definitions.items():
            if isinstance(text, Algebraic):
                names = ", ".join(text.names)
                rest = ", ".join(f"({a}) - ({b})" for a, b in text.equations)
                lines += [f"def residuals({names}): return ({rest},)"]
                lines += [f"{names}, = newton({name!r}, residuals, {text.guesses})"]
            else:
                lines += [f"{name} = {text}"]
        head = [f"{', '.join(model.states)}, = x", *lines]
        told = [*model.states, *(n for n in model.measured if n not in model.states)]
        body = "\n    ".join(head)
        return (
            f"def slopes(t, tc, x):\n    {body}\n    return [{', '.join(model.states.values())}]\n"
            f"def outputs(t, tc, x):\n    {body}\n    return [{', '.join(told)}]\n"
        )

    def cuts(self) -> list[float]:
        """Where the right-hand side jumps, has a kink or a pulse, inside the horizon."""
        model = self.model
        points = set(model.cuts).union(*(u.times for u in self.run.inputs.values()))
        return sorted(c for c in points if model.first < c < model.last)

    def integrate(self, times: Any, method: str, rtol: float) -> Any:
        """(n_times, n) states, and what is measured beside them, at increasing times.

        raises ArithmeticError, ValueError or TypeError if SciPy cannot do it
        """
        model = self.model
        x = np.array([self.run.start[n] for n in model.states], dtype=float)
        small = 1e-3 * rtol * np.array([model.size[n] for n in model.states])
        ends, rows = [model.first, *self.cuts(), model.last], []
        for begin, end in pairwise(ends):
            middle = (begin + end) / 2
            is_last = end == model.last
            inside = times[(begin < times) & ((times < end) | (is_last & (times == end)))]
            if begin == model.first and len(times) and times[0] == begin:
                rows.append(self.outputs(begin, middle, list(x)))
            fun = lambda t, x, middle=middle: self.slopes(t, middle, x.tolist())  # noqa: E731
            at = np.unique([*inside, end])
            run = solve_ivp(fun, (begin, end), x, method, at, rtol=rtol, atol=small)
            if not run.success or not np.isfinite(run.y).all():
                raise Unsolved(run.message)
            rows += [  # a condition may change at the last time: it is asked at this time itself
                self.outputs(t, t if t == model.last else middle, list(y))
                for t, y in zip(inside, run.y.T[: len(inside)], strict=True)
            ]
            x = run.y[:, -1]
        return np.array(rows, dtype=float)


def _function(given: Input, functions: Mapping[str, Any]) -> Callable[[float, float], Any]:
    times, values = list(given.times), list(given.values)
    if given.kind in {"function", "rule", "fixed"}:
        space = {**functions}
        exec(f"def u(t, tc): return {given.code}", space)
        return space["u"]  # type: ignore[no-any-return]
    if given.kind == "steps":
        edges = np.array(times)
        return lambda t, tc: values[max(int(np.searchsorted(edges, tc, "right")) - 1, 0)]
    if given.kind in {"linear", "series"}:
        return lambda t, tc: float(np.interp(t, times, values))
    return lambda t, tc: values[0]


# --- does Pyomo read the text as the judge does? --------------------------------------------------


def disagreement(model: Model, times: Any, states: Any) -> float:
    """Largest relative difference of Pyomo's constraints to the judge's right-hand sides.

    times   (n,) inside pieces;  states: (n, n_x) at which both are evaluated
    """
    builder, run, worst = Builder(model), model.runs[0], 0.0
    judge = Judge(model, run)
    m = builder([model.first, *times, model.last])
    _set_values(builder, m, {**model.unknowns, **run.local})
    ends = np.array([model.first, *judge.cuts(), model.last])
    for name, x in zip(model.states, _start(model, run), strict=True):
        builder.find(m, model.first, name).set_value(x, skip_validation=True)
    for t, x in zip(times, states, strict=True):
        k = int(np.searchsorted(ends, t))
        tc = float(ends[k - 1] + ends[k]) / 2
        slopes = judge.slopes(t, tc, list(x))
        told = _definitions(judge, t, tc, list(x))
        for name, value, slope in zip(model.states, x, slopes, strict=True):
            builder.find(m, t, name).set_value(value, skip_validation=True)
            builder.find(m, t, f"d_{name}").set_value(slope, skip_validation=True)
        for name, given in run.inputs.items():
            component = m.component(name)
            at = component[t] if component.is_indexed() else component
            at.set_value(_function(given, PLAIN)(t, tc))
        for name, value in told.items():
            component = builder.find(m, t, name)
            if component.is_variable_type():
                component.set_value(value, skip_validation=True)
        with suppress(OverflowError):  # exp(800) is infinite to the judge, an error to Pyomo
            worst = max(worst, _residual(builder, m, t))
    return worst


def _start(model: Model, run: Run) -> list[float]:
    return [run.start[n] for n in model.states]


def _set_values(builder: Builder, m: Any, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        m.find_component(builder.known_as(name)).set_value(value)


def _definitions(judge: Judge, t: float, tc: float, x: list[float]) -> dict[str, float]:
    names = [
        n
        for key, d in judge.model.definitions.items()
        for n in (d.names if isinstance(d, Algebraic) else [key])
    ]
    other = Judge.__new__(Judge)
    other.__dict__.update(judge.__dict__)
    known = list(judge.model.measured)
    judge.model.measured = names
    try:
        one = Judge(judge.model, judge.run)
        values = one.outputs(t, tc, x)[len(judge.model.states) :]
    finally:
        judge.model.measured = known
    return dict(zip(names, values, strict=True))


def _residual(builder: Builder, m: Any, t: float) -> float:
    """Of all equations at one time, relative to the larger side."""
    worst = 0.0
    definitions = builder.model.definitions
    pairs = list(builder.model.equations)
    for name, d in definitions.items():
        if isinstance(d, Algebraic):
            pairs += d.equations
        elif builder.model.style["rates"] != "time block":  # whose members Pyomo evaluated
            pairs.append((name, d))
    for left, right in pairs:
        a, b = (pyo.value(builder.evaluate(m, t, side)) for side in (left, right))
        size = max(abs(a), abs(b), _terms(builder, m, t, left), _terms(builder, m, t, right))
        worst = max(worst, abs(a - b) / size if size else 0.0)
    return worst


def _terms(builder: Builder, m: Any, t: float, side: str) -> float:
    """Sum of the absolute terms of one side."""
    expression = builder.evaluate(m, t, side)
    args = getattr(expression, "args", ()) if hasattr(expression, "args") else ()
    numbers = []
    for a in args:
        try:
            numbers.append(abs(pyo.value(a)))
        except (TypeError, ValueError):
            continue
    return float(sum(numbers))
