"""Deliberate mistakes of a new user, each with what the message must tell them to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

TABLE = "time,A,B\n0,1,0\n1,0.61,0.37\n2,0.37,0.56\n4,0.14,0.66\n6,0.05,0.6\n8,0.02,0.52\n"
MODEL = """
import pyomo.environ as pyo
from pyomo import dae

import igpe


def model(times):
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.B = pyo.Var(m.t), pyo.Var(m.t)
    m.dA, m.dB = dae.DerivativeVar(m.A), dae.DerivativeVar(m.B)
    m.k1, m.k2 = pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(0, 10))
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k1 * m.A[t])
    m.rate_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k1 * m.A[t] - m.k2 * m.B[t])
    return m


def problem():
    run = igpe.Experiment("my.csv", start={"A": 1.0, "B": 0.0})
    return igpe.Problem(model, parameters=["k1", "k2"], experiments=run)
"""
RATE_B = (
    "    m.rate_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k1 * m.A[t] - m.k2 * m.B[t])"
)
TOO_MANY = f"""{RATE_B}
    m.whole = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] + m.B[t] == 1)"""
SETTINGS = '''

def settings():
    """Step 3 by a program that is not installed."""
    missing = igpe.solvers.AmplProgram("no-such-solver")
    return igpe.Settings(
        routes=igpe.algebraic.RouteSelection(proven=igpe.algebraic.GlobalSolver(solver=missing))
    )
'''
ESTIMATE = ("estimate", "model.py")
NEW = ("new", "new.py", "--data", "my.csv")


@dataclass(frozen=True)
class Mistake:
    """A command that cannot work.

    words   of the command line, after igpe
    remedy  what the message must say, all of it: what was found, and what to do
    model   (old, new): what is changed in the model file
    files   name -> text, beside or instead of the sound ones
    """

    words: tuple[str, ...]
    remedy: tuple[str, ...]
    model: tuple[str, str] = ("", "")
    files: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """The user's folder: my.csv, model.py, and what the mistake needs."""
        written = {"my.csv": TABLE, "model.py": MODEL.replace(*self.model)} | dict(self.files)
        for name, text in written.items():
            (folder / name).write_text(text, encoding="utf-8")


MISTAKES = {
    "wrong column": Mistake(
        ESTIMATE,
        ("['b']", "has ['A', 'B'", "Did you mean 'B'?", "columns={"),
        files={"my.csv": TABLE.replace("time,A,B", "time,A,b")},
    ),
    "missing table": Mistake(
        ("new", "new.py", "--data", "mine.csv"),
        ("No such file: 'mine.csv'", "Did you mean 'my.csv'?"),
    ),
    "time missing (NaN)": Mistake(
        ESTIMATE,
        ("row 2", "Every row needs", "remove"),
        files={"my.csv": TABLE.replace("\n2,", "\n,")},
    ),
    "not a number": Mistake(
        ESTIMATE,
        ("'B'", "'n.d.'", "leave missing values empty"),
        files={"my.csv": TABLE.replace("0.56", "n.d.")},
    ),
    "unsorted times": Mistake(
        ESTIMATE,
        ("not sorted", "Sort the table by time"),
        files={"my.csv": TABLE.replace("\n4,", "\n1.5,")},
    ),
    "typo in a parameter": Mistake(
        ESTIMATE, ("no scalar Var 'k_2'", "Did you mean 'k2'?"), ('["k1", "k2"]', '["k1", "k_2"]')
    ),
    "crossed bounds": Mistake(
        ESTIMATE,
        ("'k1'", "[10, 0]", "expected lower < upper", "swap the bounds"),
        ("m.k1, m.k2 = pyo.Var(bounds=(0, 10))", "m.k1, m.k2 = pyo.Var(bounds=(10, 0))"),
    ),
    "too many equations": Mistake(
        ESTIMATE, ("too many equations", "'whole'", "Remove an equation"), (RATE_B, TOO_MANY)
    ),
    "missing solver": Mistake(
        ESTIMATE,
        ("no-such-solver", "conda install"),
        ("experiments=run)\n", "experiments=run)\n" + SETTINGS),
    ),
    "syntax error": Mistake(
        ESTIMATE,
        ("model.py", "line 11", "SyntaxError: invalid syntax: m.A, m.B = = pyo"),
        ("m.A, m.B = pyo.Var(m.t),", "m.A, m.B = = pyo.Var(m.t),"),
    ),
    "wrong unit": Mistake(
        ESTIMATE,
        ("'A'", "'mol/K'", "Give a unit"),
        ('"B": 0.0}', '"B": 0.0}, units={"A": "mol/K"}'),
    ),
    "no start value": Mistake(
        ESTIMATE, ("['B'] have no start value", "igpe.Unknown("), (', "B": 0.0', "")
    ),
    "reaction without quotes": Mistake((*NEW, "--reaction", "A"), ("no arrows", "Quote reactions")),
    "separate words": Mistake((*NEW, "--reaction", "A", "-"), ("Quote reactions", "'A -> B'")),
    "unknown command": Mistake(("estimat", "model.py"), ("estimate",)),
    "no model file": Mistake(
        ("check", "modle.py"), ("no model file 'modle.py'", "Did you mean 'model.py'?")
    ),
    "unknown of another name": Mistake(
        ("simulate", "model.py", "--set", "k1=1", "--set", "K2=1"),
        ("['K2']", "'k2'"),
    ),
    "picture of unknown kind": Mistake((*ESTIMATE, "--plot", "fit.doc"), ("fit.doc", ".png")),
    "not a table": Mistake((*ESTIMATE, "--data", "model.py"), (".csv, ",)),
    "no data given": Mistake(("new", "new.py"), ("igpe new new.py --data my.csv",)),
    "nothing given": Mistake(("new",), ("Name the file to write", "igpe new my_problem.py")),
    "time twice": Mistake(
        ESTIMATE,
        ("Time 2 occurs more than once", "rows 2 and 3", "replicates=True"),
        files={"my.csv": TABLE.replace("\n4,", "\n2,")},
    ),
    "name that the model lacks": Mistake(
        ESTIMATE, ("`model` failed", "no attribute 'C'"), ("m.k2 * m.B[t]", "m.k2 * m.C[t]")
    ),
    "Problem without parameters": Mistake(
        ESTIMATE, ("No parameters are named", "List"), ('["k1", "k2"]', "[]")
    ),
    "problem() returns nothing": Mistake(
        ESTIMATE, ("NoneType", "expected an igpe.Problem"), ("return igpe.Problem", "igpe.Problem")
    ),
    "no function problem": Mistake(
        ESTIMATE, ("no function problem()", "igpe.Problem"), ("def problem", "def prolbem")
    ),
    "misspelt name of igpe": Mistake(
        ESTIMATE,
        ("no 'Experimant'", "Did you mean 'Experiment'?"),
        ("igpe.Experiment", "igpe.Experimant"),
    ),
    "starts between crossed numbers": Mistake(
        ("compare", "model.py", "--between", "5", "1"),
        ("--between 5 1", "--between 0 100"),
        ("bounds=(0, 10)), pyo.Var(bounds=(0, 10))", "), pyo.Var()"),
    ),
    "value without a name": Mistake(
        ("simulate", "model.py", "--set", "k1"), ("--set k1", "name=number")
    ),
    "report of no result": Mistake(
        ("report", "my.csv", "page.html"), ("not JSON", "Result.to_json wrote")
    ),
    "folder that is not there": Mistake(
        (*ESTIMATE, "--json", "results/one.json"),
        ("folder 'results' does not exist", "Create it"),
    ),
    "number of starts 0": Mistake(("compare", "model.py", "--starts", "0"), ("--starts", "1")),
}
