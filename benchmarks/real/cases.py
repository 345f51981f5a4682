"""The cases as igpe is given them: formulas of a JSON file as an ordinary pyomo.dae model.

states, algebra, outputs  name -> formula; algebra in the order in which it is computed
start          state -> number, name of a parameter or condition, or formula in these and in
               `start_algebra`
sigma          output -> formula of an estimated standard deviation; "column": columns sd_...;
               left out: unknown and the same for all
parameters     name -> bounds; `local` ones belong to each experiment
conditions     experiment -> name -> number, or the parameter that has this role there
published      values at the published optimum
"""

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "data" / "real"
CASES = (
    "boehm",
    "borghans",
    "bruno",
    "elowitz",
    "fiedler",
    "fujita",
    "armistead",
    "okuonghae",
    "theoph",
    "cefamandole",
    "ccl4",
    "kodak",
)
FUNCTIONS = {"exp": pyo.exp, "log": pyo.log, "log10": pyo.log10, "sqrt": pyo.sqrt}
DECADES = 100.0  # between positive bounds, from where an unknown is logarithmic


class Case:
    """One data set with its model."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.given: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
        self.states: dict[str, str] = self.given["states"]
        self.outputs: dict[str, str] = self.given["outputs"]
        self.bounds: dict[str, tuple[float, float]] = self.given["parameters"]
        self.local: list[str] = self.given.get("local", [])
        self.sigma: Any = self.given.get("sigma")
        self.inputs: list[str] = self.given.get("inputs", [])

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Experiment -> its rows, with those outputs that are measured there."""
        table = pd.read_csv(DATA / f"{self.name}.csv")
        parts = table.groupby("experiment", sort=False)
        return {str(e): rows.dropna(axis="columns", how="all") for e, rows in parts}

    def conditions(self, experiment: str) -> dict[str, Any]:
        """Name -> number or parameter, in one experiment."""
        held = self.given.get("conditions", {})
        return held.get(experiment, {}) if held else {}

    def input_table(self, name: str) -> pd.DataFrame:
        """Columns time and the input, which keeps each value until the next time."""
        return pd.read_csv(DATA / f"{self.name}_{name}.csv")

    @property
    def logarithmic(self) -> list[str]:
        """Parameters whose bounds are positive and decades apart."""
        return [n for n, (a, b) in self.bounds.items() if a > 0 and b / a > DECADES]

    @cached_property
    def unknowns(self) -> dict[str, tuple[float, float]]:
        """Unknown, as igpe names it -> bounds."""
        several = len(self.tables) > 1
        found = {n: b for n, b in self.bounds.items() if n not in self.local}
        for name in self.local:
            names = [f"{name}@{e}" for e in self.tables] if several else [name]
            found |= dict.fromkeys(names, self.bounds[name])
        return found

    def model(self, times: Any, experiment: Any) -> Any:
        """The pyomo.dae model of one experiment."""
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        for name, (lower, upper) in self.bounds.items():
            guess = math.sqrt(lower * upper) if lower > 0 else (lower + upper) / 2
            m.add_component(name, pyo.Var(bounds=(lower, upper), initialize=guess))
        for name in (*self.states, *self.inputs):
            m.add_component(name, pyo.Var(m.t))
        for name in self.states:
            m.add_component(f"d_{name}", dae.DerivativeVar(m.component(name), wrt=m.t))
        held = {
            n: m.component(v) if isinstance(v, str) else v
            for n, v in self.conditions(experiment.name).items()
        }
        scalars = {n: m.component(n) for n in self.bounds} | held | FUNCTIONS
        self._add_equations(m, scalars)
        self._add_start(m, scalars, experiment)
        return m

    def _add_equations(self, m: Any, scalars: dict[str, Any]) -> None:
        algebra = _codes(self.given.get("algebra", {}))
        rates, outputs = _codes(self.states), _codes(self.outputs)
        sigma = _codes(self.sigma) if isinstance(self.sigma, dict) else {}

        def at(m: Any, t: Any) -> dict[str, Any]:
            here = scalars | {n: m.component(n)[t] for n in (*self.states, *self.inputs)} | {"t": t}
            for name, code in algebra.items():
                here[name] = _value(code, here)
            return here

        def rule(name: str) -> Any:
            return lambda m, t: m.component(f"d_{name}")[t] == _value(rates[name], at(m, t))

        def expression(code: Any) -> Any:
            return lambda m, t: _value(code, at(m, t))

        for name in self.states:
            m.add_component(f"rate_{name}", pyo.Constraint(m.t, rule=rule(name)))
        for name, code in outputs.items():
            m.add_component(f"out_{name}", pyo.Expression(m.t, rule=expression(code)))
        for name, code in sigma.items():
            m.add_component(f"dev_{name}", pyo.Expression(m.t, rule=expression(code)))

    def _add_start(self, m: Any, scalars: dict[str, Any], experiment: Any) -> None:
        first = m.t.first()
        here = dict(scalars)
        for name, code in _codes(self.given.get("start_algebra", {})).items():
            here[name] = _value(code, here)
        for name, formula in self.given["start"].items():
            if name not in experiment.start:
                value = eval(formula, {"__builtins__": {}}, here)
                m.add_component(
                    f"begin_{name}", pyo.Constraint(expr=m.component(name)[first] == value)
                )

    def start(self, experiment: str) -> dict[str, Any]:
        """State -> number or parameter; formulas are the model's equations."""
        held = self.conditions(experiment)
        found = {n: held.get(v, v) for n, v in self.given["start"].items()}
        return {n: v for n, v in found.items() if not isinstance(v, str) or v in self.bounds}

    def _sigma(self, outputs: list[str]) -> Any:
        if self.sigma == "column":
            return {f"out_{n}": f"sd_{n}" for n in outputs}
        if self.sigma:
            return {f"out_{n}": igpe.EstimatedSigma(f"dev_{n}") for n in outputs}
        return None

    def problem(self) -> igpe.Problem:
        """The problem as igpe is given it."""
        runs = []
        for experiment, rows in self.tables.items():
            outputs = [n for n in self.outputs if n in rows]
            run = igpe.Experiment(
                rows.drop(columns="experiment").rename(columns={n: f"out_{n}" for n in outputs}),
                name=experiment,
                start=self.start(experiment),
                start_time=0.0,
                inputs={n: igpe.step_input(*self.input_table(n).to_numpy().T) for n in self.inputs},
                sigma=self._sigma(outputs),
                replicates=True,
            )
            runs.append(run)
        return igpe.Problem(
            self.model,
            parameters=list(self.bounds),
            experiments=runs,
            local=self.local,
            logarithmic=self.logarithmic,
        )


def _codes(formulas: dict[str, str]) -> dict[str, Any]:
    return {name: compile(text, name, "eval") for name, text in formulas.items()}


def _value(code: Any, here: dict[str, Any]) -> Any:
    return eval(code, {"__builtins__": {}}, here)
