"""Values of the wrong kind, and combinations that mean nothing: what must be said about them."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import bad_models as bad
import pandas as pd
import pyomo.environ as pyo
from bad_models import spoilt
from spoiling import Cases, pose, run, table

import igpe
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.losses import L1, Huber, NormalPrior, PiecewiseConstant
from igpe.problem.problem import Problem
from igpe.results.result import Result

SCRATCH = Path(__file__).parent / "__pycache__"


def kind(**settings: Any) -> Any:
    """A sound call but for values that its types forbid."""
    return run(**settings)


def corrupt(name: str) -> Path:
    """A file of that name which is none of its kind."""
    SCRATCH.mkdir(exist_ok=True)
    path = SCRATCH / name
    path.write_bytes(b"PK\x03\x04 no zip after all")
    return path


def with_k(make: Callable[[], Any]) -> Callable[[Iterable[float]], Any]:
    """A builder of the sound model whose parameter k is another component."""

    def change(m: Any) -> None:
        m.del_component("rate")
        m.del_component("k")
        m.k = make()
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])

    return spoilt(change)


def differs(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """A builder whose model is another one in the second experiment."""

    def differing(times: Iterable[float], experiment: Any) -> Any:
        m = bad.model(times)
        if experiment.name == "2":
            change(m)
        return m

    return differing


def without_k(m: Any) -> None:
    """Another rate, without the parameter."""
    m.del_component("rate")
    m.del_component("k")
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.A[t])


def far_away(m: Any) -> None:
    """Other bounds, which do not overlap with the first's."""
    m.k.setlb(7)
    m.k.setub(9)


def in_hours(m: Any) -> None:
    """The parameter has a unit."""
    m.del_component("rate")
    m.del_component("k")
    m.k = pyo.Var(bounds=(0, 5), units=1 / pyo.units.hour)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])


def two(**settings: Any) -> Problem:
    """A sound problem of two experiments but for what is told."""
    return pose(**{"experiments": [run(), run()], **settings})


class Careless:
    """A parmest experiment whose model cannot be built."""

    def get_labeled_model(self) -> Any:
        raise KeyError("no table")


EXPERIMENTS: Cases = {
    "start None": (lambda: kind(start=None), "start is None | start={'A': 1.0"),
    "start in a list": (lambda: kind(start=[1.0]), "start is [1.0] | mapping"),
    "start by number": (lambda: kind(start={1: 1.0}), "[1] | not names | mapping"),
    "inputs in a list": (lambda: kind(inputs=[1]), "inputs is [1] | igpe.step_input"),
    "units a text": (lambda: kind(units="mol"), "units is 'mol' | {'A': 'mol/L'}"),
    "name a number": (lambda: kind(name=3), "`name` is 3 | string"),
    "only a number": (lambda: kind(only=3), "`only` is 3 | only=['A', 'B']"),
    "sigma a list of text": (
        lambda: kind(sigma={"A": ["x"]}),
        "`sigma` of 'A' is ['x'] | one number for each row",
    ),
    "start time a text": (
        lambda: kind(start_time="0"),
        "`start_time` is '0' | first measurement is at 0 | number",
    ),
    "unknown of text": (lambda: Unknown("0", "1"), "['0', '1'] | finite bounds"),  # type: ignore[arg-type]
    "guess a text": (lambda: Unknown(0, 1, guess="x"), "guess 'x' | within the bounds"),  # type: ignore[arg-type]
    "nothing after the start": (
        lambda: run(table([0.0], A=[1.0])),
        "All measurements are at 0 | start of the experiment | Add later measurements",
    ),
    "nothing after the given start": (
        lambda: run(table([5.0], A=[1.0]), start_time=5.0),
        "All measurements are at 5 | start_time=",
    ),
    "corrupt workbook": (
        lambda: Experiment(corrupt("corrupt.xlsx")),
        "corrupt.xlsx' could not be read as a table | not a valid .xlsx file | save it again",
    ),
    "corrupt parquet": (
        lambda: Experiment(corrupt("corrupt.parquet")),
        "corrupt.parquet' could not be read as a table | save it again as .parquet",
    ),
}


def sound_model(times: Iterable[float]) -> Any:
    return bad.model(times)


CALLS: Cases = {
    f"{name} without a problem": (
        lambda call=call: call(sound_model, table([0.0, 1.0], A=[1.0, 0.5])),
        f"{name.rpartition('.')[2]}() needs an igpe.Problem | the function `sound_model` | "
        "problem = igpe.Problem(",
    )
    for name, call in {
        "estimate": igpe.estimate,
        "simulate": igpe.simulate,
        "profile": igpe.profile,
        "bootstrap": igpe.bootstrap,
        "predict": igpe.predict,
        "uncertainty.region": igpe.uncertainty.region,
        "uncertainty.sample": igpe.uncertainty.sample,
        "certify": igpe.certify,
        "estimation.compare": igpe.estimation.compare,
        "campaign": igpe.campaign,
    }.items()
} | {
    "check of a file's name": (lambda: igpe.check("model.py"), "got a str | igpe.Problem(model,"),
    "check of a table": (lambda: igpe.check(table([0.0], A=[1.0])), "got a DataFrame"),
    "data for settings": (
        lambda: igpe.estimate(pose(), table([0.0], A=[1.0])),
        "settings is | igpe.Settings(...) | igpe.Experiment(data)",
    ),
}  # fmt: skip

PROBLEMS: Cases = CALLS | {
    "parameters None": (lambda: pose(parameters=None), "is None | ['k1', 'k2']"),
    "parameters numbers": (lambda: pose(parameters=[1]), "is [1] | expected names"),
    "local None": (lambda: pose(local=None), "`local` is None | local=['k1']"),
    "priors in a list": (
        lambda: pose(priors=[NormalPrior(1, 1)]),
        "priors is [NormalPrior( | mapping | igpe.losses.NormalPrior(mean, deviation)",
    ),
    "prior a pair": (
        lambda: pose(priors={"k": (1, 0.1)}),
        "`priors` of 'k' is (1, 0.1) | igpe.losses.NormalPrior(mean, deviation)",
    ),
    "prior of text": (lambda: NormalPrior("1", 1), "mean is '1' | a finite number"),  # type: ignore[arg-type]
    "loss a text": (lambda: pose(loss="l1"), "`loss` is 'l1' | igpe.losses.L1()"),
    "loss a class": (lambda: pose(loss=L1), "`loss` is <class | igpe.losses.L1()"),
    "Huber of text": (lambda: Huber("x"), "delta is 'x' | positive number"),  # type: ignore[arg-type]
    "time-varying a number": (
        lambda: pose(time_varying={"feed": 3}),
        "`time_varying` of 'feed' is 3 | igpe.losses.PiecewiseConstant(",
    ),
    "breaks of text": (lambda: PiecewiseConstant(("a",), 0, 1), "breaks ['a'] | numbers"),  # type: ignore[arg-type]
    "breaks one number": (
        lambda: PiecewiseConstant(0.5, "a", 1),
        "bounds ['a', 1] | lower < upper",
    ),  # type: ignore[arg-type]
    "fixing at a text": (lambda: pose().fixing({"k": "x"}), "{'k': 'x'} | finite numbers"),  # type: ignore[dict-item]
    "fixing a list": (lambda: pose().fixing(["k"]), "fixing is ['k'] | problem.fixing({"),  # type: ignore[arg-type]
    "integer parameter": (
        lambda: pose(with_k(lambda: pyo.Var(domain=pyo.NonNegativeIntegers))),
        "'k' | NonNegativeIntegers | real numbers | one estimation for each value",
    ),
    "binary parameter": (
        lambda: pose(with_k(lambda: pyo.Var(domain=pyo.Binary))),
        "'k' | Binary | real numbers",
    ),
    "sigma of one experiment": (
        lambda: pose(experiments=[run(sigma=0.1), run()]),
        "['1'] have standard deviations | ['2'] have none | or none",
    ),
    "prior without sigma": (
        lambda: pose(priors={"k": NormalPrior(1, 1)}),
        "['k'] | units | no standard deviations | Pass sigma=...",
    ),
    "parameter of one model": (
        lambda: two(model=differs(without_k)),
        "Experiment '2' | no scalar Var 'k' | Declare it in the models of all",
    ),
    "bounds apart": (
        lambda: two(model=differs(far_away)),
        "'k' has bounds (0.0, 5.0) | (7.0, 9.0) | do not overlap | make it local",
    ),
    "units of two models": (
        lambda: two(model=differs(in_hours)),
        "'k' has different units in the models of the experiments: ['', '1/h'] | make it local",
    ),
}
PARMEST: Cases = {
    "no parmest experiment": (lambda: Problem.from_parmest([1]), "['int'] | get_labeled_model()"),
    "no list of parmest experiments": (
        lambda: Problem.from_parmest(None),
        "['NoneType'] | list of parmest experiments",
    ),  # type: ignore[arg-type]
    "careless parmest experiment": (
        lambda: Problem.from_parmest([Careless()]),
        "Careless.get_labeled_model() failed | KeyError",
    ),
}

RESULTS: Cases = {
    "empty result": (lambda: Result.from_json("{}"), "no entry 'format' | to_json"),
    "result without parts": (
        lambda: Result.from_json(json.dumps({"format": 1, "objective": 1.0})),
        "lacks ['candidates',  | to_json",
    ),
    "result of another format": (
        lambda: Result.from_json(json.dumps({"format": 99})),
        "format 99 | reads format 1 | create it again",
    ),
    "result file missing": (
        lambda: Result.from_json("nowhere.json"),
        "'nowhere.json' of the result could not be read | No such file | working folder",
    ),
    "result not JSON": (lambda: Result.from_json("{k1"), "not JSON | to_json"),
    "result not a text": (
        lambda: Result.from_json(pd.DataFrame()),
        "a DataFrame | path of its file",
    ),  # type: ignore[arg-type]
}
