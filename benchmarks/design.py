"""Designed experiments beside plain ones: how much surer are the parameters of urethane?

    python benchmarks/design.py [plain] [freedoms] [designed] [simulated] [sequential] [doe]
                                [--starts N] [--repeat N] [--json FILE]

Four experiments of 40 samples of nA, nB, nC and V within 8 h, eight parameters (Michalik, Chachuat
& Marquardt 2009, IGPE, Table 1: initial amounts nA0 to nE0, constant feeds fA and fB, and the
temperature's course are free; its form and the bounds are not in print, these are ours). The paper
samples at equal distances, as the plain experiments do; a design may also choose its samples. A
measurement has a standard deviation of 0.5 % of its value and 0.001 mol (or litre) beside it: with
a share alone, designs live on traces that nobody can measure. Errors are independent however close
two samples are; the less apart they may be, the more they are replicates of a few good times.

plain       what one would run without a design: equal amounts of A and B or an excess of one,
            constant feeds, linear temperature ramps of different height and direction; and 200 sets
            of four such experiments at random: A and B, feeds and both ends of the ramp anywhere in
            the bounds of the design, no products at the start
freedoms    D-optimal in the same bounds, planned together, and what each freedom brings: samples,
            and a more flexible temperature; beside the plain experiments as they are, and with
            their samples (nothing else) chosen in the same way
designed    the design with samples 0.1 h apart or more, and what it is worth
simulated   the same simulated by plain differential equations at the true parameters: fitted with
            many random errors, and estimated once with `igpe.estimate`
sequential  the plain experiments done, two more planned on what they tell, samples every 0.2 h
doe         beside Pyomo.DoE, in one run, on its own two examples as they are installed: reactor
            (a start value and eight temperatures) and Rooney and Biegler (a duration, after six
            measurements). The criterion of both designs, log10 of the determinant of the
            information about relative changes, is computed by formulas. Processor seconds are those
            of this process and its programs, the first call included (median of --calls); of
            Pyomo.DoE also without its solver, for POUNCE stands in where no IPOPT is installed
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):  # threads that wait would count as processor time
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import resource
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from figures import Row, at_least, at_most, command

import igpe
from igpe.dynamics.shooting.residuals import Residuals
from igpe.planning.design_problem import DesignProblem, read_design
from igpe.planning.information import DesignInformation, RegularisedCriterion
from igpe.planning.sample_choice import choose

NOISE = igpe.Noise(absolute=0.001, relative=0.005)
SOLVENT = 5.0  # mol, in all experiments
TIMES = 3.0  # that the mean error must shrink
GRID = np.linspace(0.0, 8.0, 161)[1:]  # h, every 3 min: when a sample may be taken
SETS = 200  # of plain experiments at random
PLAIN = pd.DataFrame(
    {
        "nA0": [1.0, 1.0, 1.5, 1.0],
        "nB0": [1.0, 1.0, 1.0, 1.5],
        "nC0": 0.0,
        "nD0": 0.0,
        "nE0": 0.0,
        "nS": SOLVENT,
        "fA": [0.0, 0.1, 0.0, 0.1],
        "fB": [0.0, 0.0, 0.1, 0.0],
        "first": [300.0, 320.0, 340.0, 400.0],  # K
        "last": [360.0, 380.0, 400.0, 320.0],
    },
    index=["plain1", "plain2", "plain3", "plain4"],
)
AMOUNTS = ("nA0", "nB0", "nC0", "nD0", "nE0")
QUICK = igpe.Settings(
    ladder=(igpe.smoothing.GcvSpline(),),
    routes=igpe.algebraic.RouteSelection(quick=igpe.algebraic.LocalSearch(trials=64, starts=3)),
    correction=igpe.Collocation(max_refinements=0),
)


def model() -> Any:
    """The urethane model, found beside the benchmarks."""
    import urethane  # noqa: PLC0415 - its folder is on the path only when a section runs

    return urethane


def with_ramps(designs: pd.DataFrame) -> pd.DataFrame:
    """Temperatures at the model's knots from the first to the last."""
    shares = model().KNOTS / model().HOURS
    ramps = {
        f"T{i + 1}": designs["first"] + share * (designs["last"] - designs["first"])
        for i, share in enumerate(shares)
    }
    return designs.assign(**ramps)


def measured(
    designs: pd.DataFrame, seed: int, samples: Mapping[str, Any] = MappingProxyType({})
) -> list[igpe.Experiment]:
    """The designs simulated at the truth by plain differential equations, with random errors.

    samples  name -> times of the samples; the model's own where nothing is said
    """
    m, random, runs = model(), np.random.default_rng(seed), []
    knots = np.linspace(0.0, m.HOURS, sum(n[0] == "T" for n in designs.columns))
    for name, design in designs.iterrows():
        times = samples.get(str(name), m.TIMES)
        exact = m.exact_course(design, times=times)
        sigma = np.hypot(NOISE.absolute, NOISE.relative * exact)
        table = pd.DataFrame(
            exact + sigma * random.standard_normal(exact.shape), columns=m.MEASURED
        )
        table.insert(0, "time", times)
        runs.append(
            igpe.Experiment(
                table,
                name=str(name),
                start={n: float(design[f"{n}0"]) for n in ("nA", "nB", "nC")},
                start_time=0.0,
                inputs={n: float(design[n]) for n in ("fA", "fB", "nS", "nD0", "nE0")}
                | {"T": igpe.linear_input(knots, [design[f"T{i + 1}"] for i in range(len(knots))])},
                sigma={n: sigma[:, i] for i, n in enumerate(m.MEASURED)},
            )
        )
    return runs


def posed(runs: list[igpe.Experiment]) -> igpe.Problem:
    """The estimation problem of the paper, with these experiments."""
    return igpe.Problem(model().model, parameters=list(model().BOUNDS), experiments=runs)


def covariance(problem: igpe.Problem) -> np.ndarray:
    """(8, 8) at the truth, relative to it; from the residuals, without anything of a design."""
    truth = problem.box.vector(model().TRUTH)
    residuals = Residuals(problem, igpe.integrators.Automatic())
    at = residuals(truth)
    assert at is not None, residuals.broken
    scaled = at.jacobian * truth
    return np.linalg.inv(scaled.T @ scaled)


def mean_error(relative: np.ndarray) -> float:
    """det(C)^(1/2n)."""
    return float(np.exp(np.linalg.slogdet(relative)[1] / (2 * len(relative))))


class Freedom(NamedTuple):
    """How freely experiments are designed.

    knots  of the temperature's course, at equal distances
    apart  least hours between two of the 40 samples, which are chosen; 0: they are as in the plain
           experiments
    """

    knots: int
    apart: float

    def __str__(self) -> str:
        chosen = f"chosen, {self.apart:g} h apart or more" if self.apart else "every 0.2 h"
        return f"T at {self.knots} knots, samples {chosen}"

    def times(self) -> Any:
        """What `igpe.design` wants to know of the samples."""
        m = model()
        return (
            igpe.planning.Sampling(GRID, at_most=len(m.TIMES), spacing=self.apart)
            if self.apart
            else m.TIMES
        )


FREEDOMS = (Freedom(4, 0.0), Freedom(4, 0.1), Freedom(4, 0.05), Freedom(7, 0.1))
DESIGNED = FREEDOMS[1]


def free(knots: int) -> dict[str, Any]:
    """Table 1, within bounds that the plain experiments keep too."""
    most = {"nA": 2.0, "nB": 2.0, "nC": 1.0, "nD0": 0.5, "nE0": 0.5, "fA": 0.2, "fB": 0.2}
    constant = {n: igpe.planning.Between(0.0, upper) for n, upper in most.items()}
    return constant | {
        "T": igpe.planning.Ramps(tuple(np.linspace(0.0, model().HOURS, knots)), 290.0, 420.0)
    }


def times_of(plan: igpe.planning.Plan) -> dict[str, Any]:
    """The plan's samples, by experiment."""
    return {e.name: e.times for e in plan.experiments}


def designs_of(plan: igpe.planning.Plan) -> pd.DataFrame:
    """The plan's settings in the columns that the model's simulation reads."""
    rows = {
        e.name: {f"{n}0": e.start[n] for n in ("nA", "nB", "nC")}
        | {n: e.inputs[n] for n in ("fA", "fB", "nS", "nD0", "nE0")}
        | {f"T{i + 1}": float(v) for i, v in enumerate(e.inputs["T"].values)}
        for e in plan.experiments
    }
    return pd.DataFrame(rows).T


def planned(
    given: argparse.Namespace, problem: Any, count: int, freedom: Freedom, **settings: Any
) -> igpe.planning.Plan:
    """D-optimal experiments at the true parameters."""
    m = model()
    return igpe.design(
        problem, settings.pop("at", m.TRUTH),
        free=free(freedom.knots), conditions={"nS": SOLVENT}, times=freedom.times(),
        measure=dict.fromkeys(m.MEASURED, NOISE), experiments=count, starts=given.starts,
        **settings,
    )  # fmt: skip


def from_nothing(given: argparse.Namespace, freedom: Freedom) -> igpe.planning.Plan:
    """Four experiments where nothing is measured yet."""
    m = model()
    nothing = igpe.planning.ProblemWithoutData(m.model, list(m.BOUNDS), list(m.MEASURED), m.HOURS)
    return planned(given, nothing, len(PLAIN), freedom)


def plain_rows(given: argparse.Namespace) -> Iterator[Row]:
    """The plain experiments."""
    relative = covariance(posed(measured(with_ramps(PLAIN), 0)))
    yield at_most("4 plain experiments", "mean relative error", 100 * mean_error(relative), "%")
    worst = 100 * float(np.sqrt(np.diag(relative).max()))
    yield at_most("4 plain experiments", "worst relative error", worst, "%")
    stored = pd.read_csv(model().DESIGNS, index_col="experiment")
    chosen = mean_error(covariance(posed(measured(stored, 0))))
    yield at_most("data/urethane_designs.csv", "mean relative error", 100 * chosen, "%")


def freedom_rows(given: argparse.Namespace) -> Iterator[Row]:
    """What each freedom brings."""
    plain = mean_error(covariance(posed(measured(with_ramps(PLAIN), 0))))
    for freedom in FREEDOMS:
        after = from_nothing(given, freedom).after
        yield at_least(str(freedom), "plain / designed, predicted", plain / after, "-", TIMES)
        if freedom.apart:
            chosen = plain_resampled(freedom) / after
            yield at_least(str(freedom), "plain, samples chosen / designed", chosen, "-", 1.0)


def posed_design(freedom: Freedom, count: int) -> DesignProblem:
    """The design problem where nothing is measured yet."""
    m = model()
    nothing = igpe.planning.ProblemWithoutData(m.model, list(m.BOUNDS), list(m.MEASURED), m.HOURS)
    return read_design(
        nothing, m.TRUTH,
        free=free(freedom.knots), conditions={"nS": SOLVENT}, times=freedom.times(),
        measure=dict.fromkeys(m.MEASURED, NOISE), criterion=igpe.planning.DOptimal(), count=count,
        existing=False, like=None, integrator=igpe.integrators.Automatic(),
    )  # fmt: skip


def plain_resampled(freedom: Freedom) -> float:
    """Mean relative error of the plain experiments with their samples, and nothing else, chosen."""
    truth = model().TRUTH
    one = posed_design(freedom._replace(knots=len(model().KNOTS)), len(PLAIN))
    outputs, designs = one.outputs(truth), with_ramps(PLAIN)
    names = [*AMOUNTS, "fA", "fB", *(n for n in designs.columns if n[0] == "T")]
    rows = np.array([outputs.rows(design) for design in designs[names].to_numpy(dtype=float)])
    judge = RegularisedCriterion(igpe.planning.DOptimal(), one.space.interest)
    before = one.known(truth)
    evidence = DesignInformation(one.space, judge, [before.T @ before], [rows])
    return float(np.exp(-choose(evidence, one.allowed).value / 2))


def random_plain() -> np.ndarray:
    """(200,) mean relative errors of random sets of plain experiments."""
    m, random = model(), np.random.default_rng(0)
    one = posed_design(FREEDOMS[0], 1)
    outputs, found = one.outputs(m.TRUTH), []
    labels = [c.label for c in one.plan.choices]
    products = [labels.index(n) for n in ("nC(t0)", "nD0", "nE0")]
    ramp = [i for i, label in enumerate(labels) if label.startswith("T at")]
    for _ in range(SETS):
        information = np.zeros((8, 8))
        for _ in PLAIN.index:
            share = random.uniform(size=len(labels))
            share[products] = 0.0
            share[ramp] = np.interp(m.KNOTS, m.KNOTS[[0, -1]], share[[ramp[0], ramp[-1]]])
            rows = outputs.rows(one.plan.lower + share * one.plan.width)
            assert rows is not None
            information += np.einsum("tmrp,tmrq->pq", rows, rows)
        found.append(mean_error(np.linalg.inv(information)))
    return np.array(found)


def designed_rows(given: argparse.Namespace) -> Iterator[Row]:
    """The designed experiments: predicted, estimated, and repeated."""
    case, plan = "4 designed experiments", from_nothing(given, DESIGNED)
    plain = mean_error(covariance(posed(measured(with_ramps(PLAIN), 0))))
    yield at_most(case, "mean relative error, predicted", 100 * plan.after, "%")
    yield at_least(case, "plain / designed, predicted", plain / plan.after, "-", TIMES)
    ratio = random_plain() / plan.after
    yield at_least(case, "plain at random / designed, median", float(np.median(ratio)), "-", TIMES)
    yield at_least(case, "plain at random / designed, luckiest", float(ratio.min()), "-", 1.0)
    problem = posed(measured(designs_of(plan), 0, times_of(plan)))
    again = mean_error(covariance(problem))
    yield at_most(
        case, "|residuals' / predicted mean error - 1|", abs(again / plan.after - 1), "-", 0.01
    )


def simulated_rows(given: argparse.Namespace) -> Iterator[Row]:
    """The designed experiments simulated: what is estimated from them, once and repeatedly."""
    case, plan = "4 designed experiments", from_nothing(given, DESIGNED)
    problem = posed(measured(designs_of(plan), 0, times_of(plan)))
    yield from repeated_rows(case, problem, plan, given.repeat)
    yield from estimated_rows(case, problem, plan)


def estimated_rows(case: str, problem: igpe.Problem, plan: igpe.planning.Plan) -> Iterator[Row]:
    """The five steps on the simulated measurements."""
    truth = problem.box.vector(model().TRUTH)
    result = igpe.estimate(problem, QUICK)
    off = np.array([result.parameters[n] for n in problem.box.names]) - truth
    yield at_most(case, "worst true error", 100 * float(np.abs(off / truth).max()), "%")
    chi2 = float(off @ np.linalg.solve(plan.covariance, off))
    yield at_most(case, "true error, chi squared of 8 degrees (99 %)", chi2, "-", 20.09)
    errors = np.array([p.standard_error for p in result.estimates])
    ratio = errors / plan.errors["after"].to_numpy()
    yield at_most(case, "|estimated / predicted error - 1|, worst", float(np.abs(ratio - 1).max()))


def repeated_rows(
    case: str, problem: igpe.Problem, plan: igpe.planning.Plan, repeat: int
) -> Iterator[Row]:
    """Other random errors, fitted from the truth: the covariance that really occurs."""
    m, found = model(), []
    shooting = igpe.SingleShooting().prepare(problem)
    designs = designs_of(plan)
    for seed in range(1, repeat + 1):
        tables = [e.measurements for e in measured(designs, seed, times_of(plan))]
        shooting.residuals.runs = tuple(
            replace(run, measurements=table)
            for run, table in zip(shooting.residuals.runs, tables, strict=True)
        )
        found.append(problem.box.vector(shooting.estimate(m.TRUTH).parameters))
    spread = np.cov(np.array(found).T)
    size = problem.box.vector(m.TRUTH)
    actual = mean_error(spread / np.outer(size, size))
    yield at_most(case, f"mean error of {repeat} repetitions", 100 * actual, "%")
    off = abs(actual / plan.after - 1)
    yield at_most(case, "|repeated / predicted mean error - 1|", off, "-", 0.1)
    ratio = np.sqrt(np.diag(spread)) / plan.errors["after"].to_numpy()
    yield at_most(case, "repeated / predicted error, largest", float(ratio.max()), "-", 1.25)
    yield at_least(case, "repeated / predicted error, smallest", float(ratio.min()), "-", 0.75)


def sequential_rows(given: argparse.Namespace) -> Iterator[Row]:
    """Two more experiments on what the plain ones tell."""
    case, problem = "4 plain, then 2 designed", posed(measured(with_ramps(PLAIN), 0))
    found = igpe.SingleShooting().estimate(problem, model().TRUTH)
    plan = planned(given, problem, 2, FREEDOMS[0], at=found)
    yield at_most(case, "mean relative error before", 100 * plan.before, "%")
    yield at_most(case, "mean relative error after", 100 * plan.after, "%")
    yield at_least(case, "before / after", plan.before / plan.after, "-", 2.0)
    yield at_least(case, "smallest shrink of an error", float(plan.errors["ratio"].min()), "-", 1.0)


CONTROL = np.arange(9) / 8  # when Pyomo's reactor changes its temperature
REACTOR = {"A1": 84.79, "A2": 371.72, "E1": 7.78, "E2": 15.05}
SIMPLE = {"asymptote": 15.0, "rate_constant": 0.5}
SIMPLE_DATA = pd.DataFrame({"hour": [1, 2, 3, 4, 5, 7], "y": [8.3, 10.3, 19.0, 16.0, 15.6, 19.8]})
TINY = 1e-30  # complex step


class Example(NamedTuple):
    """One of Pyomo.DoE's examples.

    peer     returns its `DesignOfExperiments` after `run_doe`;  ours: igpe's plan
    outputs  of parameters (complex) and a design's settings, in standard deviations
    names    of the settings: those of Pyomo.DoE -> those of igpe
    """

    peer: Callable[[], Any]
    ours: Callable[[], igpe.planning.Plan]
    outputs: Callable[[Mapping[str, complex], np.ndarray], np.ndarray]
    nominal: Mapping[str, float]
    names: Mapping[str, str]


def reactor() -> Example:
    """A -> B -> C in a batch reactor, as in `reactor_example.py` and the `result.json` it reads."""
    from pyomo.contrib.doe.examples.reactor_experiment import ReactorExperiment  # noqa: PLC0415

    def posed() -> Any:
        data = {
            **REACTOR, "CA0": 5, "CB0": 0, "t_range": [0, 1], "CA_bounds": [1, 5],
            "T_bounds": [300, 700],
            "control_points": dict.fromkeys(CONTROL.tolist(), 300) | {0.0: 500},
        }  # fmt: skip
        return ReactorExperiment(data=data, nfe=10, ncp=3)

    def outputs(values: Mapping[str, complex], settings: np.ndarray) -> np.ndarray:
        start, temperatures = settings[0], settings[1:9]
        a, b, rows = start + 0j, 0j, []
        for temperature in temperatures:
            rows.append([a, b, start - a - b])
            k1, k2 = (
                values[f"A{i}"] * np.exp(-values[f"E{i}"] * 1000 / (8.314 * temperature))
                for i in (1, 2)
            )
            first, second = np.exp(-k1 / 8), np.exp(-k2 / 8)
            a, b = a * first, b * second + a * k1 / (k2 - k1) * (first - second)
        return np.array([*rows, [a, b, start - a - b]]).ravel() / 0.01

    names = {"CA[0]": "CA(t0)"} | {f"T[{t:g}]": f"T at {t:g}" for t in CONTROL[:-1]}
    return Example(
        lambda: run_doe(posed(), scale_nominal_param_value=True),
        lambda: igpe.design([posed()]), outputs, REACTOR, names,
    )  # fmt: skip


def rooney_biegler() -> Example:
    """One measurement after six, as in `rooney_biegler_doe_example.py`."""
    from pyomo.contrib.doe import DesignOfExperiments  # noqa: PLC0415
    from pyomo.contrib.parmest.examples.rooney_biegler.rooney_biegler import (  # noqa: PLC0415
        RooneyBieglerExperiment,
    )

    def posed() -> list[Any]:
        rows = (row for _, row in SIMPLE_DATA.iterrows())
        return [RooneyBieglerExperiment(data=r, theta=SIMPLE, measure_error=0.1) for r in rows]

    def peer() -> Any:
        each = [DesignOfExperiments(e, solver=ipopt()) for e in posed()]
        return run_doe(posed()[0], prior_FIM=sum(one.compute_FIM() for one in each))

    def outputs(values: Mapping[str, complex], settings: np.ndarray) -> np.ndarray:
        hours = np.append(SIMPLE_DATA["hour"], settings[0])
        return values["asymptote"] * (1 - np.exp(-values["rate_constant"] * hours)) / 0.1

    return Example(peer, lambda: igpe.design(posed()), outputs, SIMPLE, {"hour": "hour"})


def ipopt() -> Any:
    """Pyomo.DoE's default solver, without MA57, which needs a licence."""
    import pyomo.environ as pyo  # noqa: PLC0415

    solver = pyo.SolverFactory("ipopt")
    solver.options["max_iter"] = 3000
    return solver


def run_doe(experiment: Any, **options: Any) -> Any:
    """Pyomo.DoE's optimal experiment with the settings of its examples."""
    from pyomo.contrib.doe import DesignOfExperiments  # noqa: PLC0415

    found = DesignOfExperiments(experiment, solver=ipopt(), **options)
    found.run_doe()
    return found


def information(example: Example, settings: np.ndarray) -> float:
    """log10 det of the information about relative changes of the parameters."""
    columns = []
    for name, value in example.nominal.items():
        moved = {**example.nominal, name: value * (1 + 1j * TINY)}
        columns.append(example.outputs(moved, settings).imag / TINY)
    jacobian = np.array(columns).T
    return float(np.linalg.slogdet(jacobian.T @ jacobian)[1] / np.log(10))


def processor() -> float:
    """Seconds of processor of this process and its finished programs."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def doe_rows(given: argparse.Namespace) -> Iterator[Row]:
    """Criterion and time of both programs."""
    from peers.parmests import _ipopt  # noqa: PLC0415 - a program of that name on the path

    _ipopt()
    for case, example in (("reactor", reactor()), ("Rooney and Biegler", rooney_biegler())):
        seconds: dict[str, list[float]] = {"peer": [], "build": [], "ours": []}
        for _ in range(given.calls):
            begun = processor()
            peer = example.peer()
            between = processor()
            plan = example.ours()
            seconds["peer"].append(between - begun)
            seconds["build"].append(peer.results["Build Time"])
            seconds["ours"].append(processor() - between)
        values = dict(
            zip(peer.results["Experiment Design Names"], peer.results["Experiment Design"],
                strict=True)
        )  # fmt: skip
        settings = plan.experiments[0].settings
        theirs = information(example, np.array([float(values[n]) for n in example.names]))
        ours = information(example, np.array([settings[n] for n in example.names.values()]))
        median = {who: float(np.median(s)) for who, s in seconds.items()}
        yield at_most(case, "Pyomo.DoE: log10 det of the information", theirs)
        yield at_least(case, "igpe: log10 det of the information", ours, "-", theirs - 1e-4)
        yield at_most(case, "Pyomo.DoE: processor time", median["peer"], "s")
        yield at_most(case, "Pyomo.DoE: of that building the program (wall)", median["build"], "s")
        yield at_most(case, "igpe: processor time", median["ours"], "s")
        ratio = median["peer"] / median["ours"]
        yield at_least(case, "Pyomo.DoE / igpe: processor time", ratio, "-", 10)


def options(parser: argparse.ArgumentParser) -> None:
    """How long to search, and how often to repeat."""
    parser.add_argument("--repeat", type=int, default=200, help="simulated repetitions")
    parser.add_argument("--calls", type=int, default=3, help="of each program in doe")
    parser.add_argument("--starts", type=int, default=6, help="local searches of a design")


if __name__ == "__main__":
    sections = {
        "plain": plain_rows,
        "freedoms": freedom_rows,
        "designed": designed_rows,
        "simulated": simulated_rows,
        "sequential": sequential_rows,
        "doe": doe_rows,
    }
    command(__doc__, "Optimum experimental design", sections, options)
