"""MAiNGO in a process of its own: reads `task.json` where it is started, writes `answer.json`.

A process, because MAiNGO holds Python's lock from beginning to end: nobody could stop it. Started
as a script, so it knows nothing of igpe.

task    program (serialised CasADi function: columns -> objective, constraints), lower, upper,
        start, bounds (2, m) of the constraints, integer (0 or 1 for each column), options
answer  code (name of MAiNGO's RETCODE), and as far as there are any point, bound, iterations;
        or refusal
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import casadi as ca
import maingopy as mg

SAME = "sqrt exp log sin cos tan asin acos atan sinh cosh tanh fabs"  # names that MAiNGO has too
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name.upper(): getattr(mg, name) for name in SAME.split()},
    "ASSIGN": lambda a: a,
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "DIV": lambda a, b: a / b,
    "NEG": lambda a: -a,
    "INV": lambda a: 1 / a,
    "TWICE": lambda a: 2 * a,
    "SQ": mg.sqr,
    "POW": lambda a, b: a**b,
    "CONSTPOW": lambda a, b: a ** (int(b) if float(b).is_integer() else b),
    "EXPM1": lambda a: mg.exp(a) - 1,
    "LOG1P": lambda a: mg.log(1 + a),
    "FMIN": mg.min,
    "FMAX": mg.max,
}
"""CasADi's operations (without OP_) in MAiNGO's words."""
_NAMES = {getattr(ca, n): n.removeprefix("OP_") for n in dir(ca) if n.startswith("OP_")}


class Model(mg.MAiNGOmodel):  # type: ignore[misc]
    """The task's program. MAiNGO asks for its parts by these names."""

    def __init__(self, task: dict[str, Any]) -> None:
        mg.MAiNGOmodel.__init__(self)
        self.task, self.program = task, ca.Function.deserialize(task["program"])

    def get_variables(self) -> list[Any]:
        kinds = (mg.VT_CONTINUOUS, mg.VT_INTEGER)
        columns = zip(self.task["lower"], self.task["upper"], self.task["integer"], strict=True)
        return [
            mg.OptimizationVariable(mg.Bounds(a, b), kinds[is_integer], f"x{i}")
            for i, (a, b, is_integer) in enumerate(columns)
        ]

    def get_initial_point(self) -> list[float]:
        return list(self.task["start"])

    def evaluate(self, variables: list[Any]) -> Any:
        values = mg.EvaluationContainer()
        values.objective, *constraints = _repeated(self.program, variables)
        every = zip(constraints, *self.task["bounds"], strict=True)
        rows = [(c, low, high) for c, low, high in every if isinstance(c, mg.FFVar)]
        unequal = [(c, low, high) for c, low, high in rows if low != high]
        values.eq = [c - low for c, low, high in rows if low == high]
        above = [low - c for c, low, _ in unequal if low is not None]
        values.ineq = above + [c - high for c, _, high in unequal if high is not None]
        return values


def _repeated(program: Any, variables: list[Any]) -> list[Any]:
    """The program's instructions on MAiNGO's variables: objective, then constraints."""
    work: dict[int, Any] = {}
    results: list[Any] = [0.0] * (1 + program.numel_out(1))
    for k in range(program.n_instructions()):
        name = _NAMES[program.instruction_id(k)]
        inputs, outputs = program.instruction_input(k), program.instruction_output(k)
        if name == "OUTPUT":
            results[outputs[0] + outputs[1]] = work[inputs[0]]
        elif name == "INPUT":
            work[outputs[0]] = variables[inputs[1]]
        elif name == "CONST":
            work[outputs[0]] = program.instruction_constant(k)
        elif name in OPERATIONS:
            work[outputs[0]] = OPERATIONS[name](*(work[i] for i in inputs))
        else:
            raise NotImplementedError(f"it does not support the operation '{name.lower()}'")
    return results


def answer(task: dict[str, Any]) -> dict[str, Any]:
    """Solve the task."""
    model = Model(task)  # MAiNGO keeps no reference to it
    solver = mg.MAiNGO(model)
    refused = [
        name for name, value in task["options"].items() if not solver.set_option(name, value)
    ]
    if refused:
        return {"refusal": f"it does not support the options {refused}"}
    reply: dict[str, Any] = {"code": solver.solve().name}
    reply["iterations"] = int(solver.get_iterations())
    if reply["code"] in {"GLOBALLY_OPTIMAL", "FEASIBLE_POINT", "BOUND_TARGETS"}:
        reply["point"] = list(solver.get_solution_point())
    if reply["code"] != "INFEASIBLE":
        reply["bound"] = float(solver.get_final_LBD())
    return reply


if __name__ == "__main__":
    try:
        reply = answer(json.loads(Path("task.json").read_text()))
    except (mg.MAiNGOException, NotImplementedError, TypeError, ValueError) as error:
        reply = {"refusal": " ".join(str(error).split())}
    Path("answer.json").write_text(json.dumps(reply))
