"""The next experiment: conditions and samples with most information on the unknowns.

Optimum experimental design on exact sensitivities, linearised at the parameters known so far
(Houska et al. 2012, section 3; Bauer, Bock, Körkel & Schlöder, J. Comput. Appl. Math. 120 (2000)).

`design_search` has the search, `discrimination` what several rival models change.

Labelled models of Pyomo.DoE and parmest can serve as design problems.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import qr

from igpe.core.arguments import is_count, require, shown
from igpe.core.arrays import FloatArray
from igpe.core.deadline import finishing, session
from igpe.core.errors import EstimationFailed, ModelError, ProblemError
from igpe.core.markup import in_words
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.simulation import simulate_all
from igpe.planning.design_limits import Budget
from igpe.planning.design_problem import (
    EMPTY,
    DesignProblem,
    Values,
    planned_name,
    read_design,
    require_inside,
)
from igpe.planning.design_search import BestDesign, DesignSearch, planned_experiments
from igpe.planning.design_variables import (
    Between,
    DesignVariable,
    Levels,
    ProblemWithoutData,
    Sampling,
)
from igpe.planning.information import Criterion, Determined, DOptimal, determined
from igpe.planning.plan import Plan, PlannedExperiment
from igpe.problem.labelled import read_labelled
from igpe.problem.noise.sigma import Deviation, NoiseModel
from igpe.problem.problem import Problem


class LabelledDesign(NamedTuple):
    """Content of labelled models.

    problem     with their measurements; 0 where outputs have no values
    parameters  unknown -> nominal value
    free        what `experiment_inputs` lists: a number or, over time, levels at the times listed
    measured    whether every output has a value, so that it counts as measured
    """

    problem: Problem
    parameters: dict[str, float]
    free: dict[str, DesignVariable]
    measured: bool


def is_labelled(given: Any) -> bool:
    """Whether the argument is an experiment with a labelled model, or a list of them."""
    every = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return bool(every) and all(hasattr(e, "get_labeled_model") for e in every)


def labelled_design(experiments: Any) -> LabelledDesign:
    """Read labelled models; the first one's inputs may be chosen.

    raises  ModelError as `Problem.from_parmest` does, and for inputs without two finite bounds
    """
    every = list(experiments) if isinstance(experiments, Sequence) else [experiments]
    builder, parameters, runs = read_labelled(every, planned=True)
    problem = Problem(builder, parameters=parameters, experiments=runs)
    model = every[0].get_labeled_model()
    values = {
        v.name: float(v.value if n is None else n) for v, n in model.unknown_parameters.items()
    }
    outputs = [v for e in every for v in e.get_labeled_model().experiment_outputs.values()]
    free = _free(problem, list(getattr(model, "experiment_inputs", {})))
    return LabelledDesign(problem, values, free, None not in outputs)


def _free(problem: Problem, inputs: Sequence[Any]) -> dict[str, DesignVariable]:
    instance, end = problem.instance, float(problem.experiments[0].times[-1])
    at: dict[str, dict[float | None, tuple[float, float]]] = {}
    for one in inputs:
        lower, upper = one.bounds
        if lower is None or upper is None or not lower < upper:
            raise ModelError(
                f"In `experiment_inputs`, '{one.name}' has the bounds ({lower}, {upper}). Set both "
                "bounds in the model, or pass free={...} to igpe.design."
            )
        parent, index = one.parent_component().name, one.index()
        over = parent in instance.series or parent in instance.states
        place = (parent, float(index)) if over and index is not None else (one.name, None)
        at.setdefault(place[0], {})[place[1]] = float(lower), float(upper)
    free: dict[str, DesignVariable] = {}
    for name, bounds in at.items():
        times = sorted(t for t in bounds if t is not None)
        lower, upper = next(iter(bounds.values()))
        if name in instance.series and times:
            breaks = tuple(t for t in times if t < end)
            free[name] = Levels(breaks, lower, upper)
        else:
            free[name] = Between(lower, upper)
    return free


LARGEST = 1.0  # relative standard error to draw from at most


def scenarios(samples: Any, posed: DesignProblem, seed: int) -> list[Mapping[str, float]]:
    """Values of the unknowns, one mapping for each scenario of a robust design.

    samples  how many to draw from the errors before, within the bounds; or a table of them
    raises   ProblemError for anything else, a table that lacks unknowns, or errors that are unknown
    """
    box = posed.full.box
    names = list(box.names)
    if isinstance(samples, pd.DataFrame):
        missing = [n for n in names if n not in samples.columns]
        if missing or not np.isfinite(samples[names].to_numpy(dtype=float)).all():
            raise ProblemError(
                f"The table `samples` lacks finite values of {missing or 'some unknowns'}; "
                f"expected one column for each of {names} and one row for each scenario."
            )
        given = [box.mapping(row) for row in samples[names].to_numpy(dtype=float)]
        for one in given:
            require_inside(box, one, "samples")
        return list(given)
    if not is_count(samples):
        raise ProblemError(
            f"`samples` is {shown(samples)}; expected a number of draws, or a table with a column "
            f"for each of {names}."
        )
    if samples == 0:
        return []
    errors = determined(posed.existing.at(posed.values, posed.sizes).rows).covariance
    lost = [n for n, e in zip(names, np.sqrt(np.diag(errors)), strict=True) if e > LARGEST]
    if lost:
        raise ProblemError(
            f"samples={samples} cannot be drawn: the standard errors of {lost} are larger than "
            "the reference sizes (`sizes`; by default the values of the unknowns). Give a table "
            "of values that these unknowns can have: samples=pd.DataFrame({...})."
        )
    random = np.random.default_rng(seed)
    drawn = random.multivariate_normal(np.zeros(len(box)), errors, int(samples), method="cholesky")
    at = box.vector(posed.values) + drawn * posed.sizes
    return [box.mapping(box.clip(x)) for x in at]


POINTS = 200  # of the predicted trajectories
TRACE = 1e-3  # of the largest value: a smaller one is hardly measured as exactly
LEAST_GAIN = 0.99  # of the criterion's error before: a plan that leaves more of it brings nothing
TAKES_PART = 1e-3  # of a direction's largest part: smaller ones are rounding


def report(search: DesignSearch[DesignProblem], best: BestDesign) -> Plan:
    """The plan of the best design.

    raises  ProblemError if it does not determine what the criterion looks at
    """
    posed = search.posed
    phi, box, plan = posed.phi, posed.full.box, posed.plan
    gained = search.information(best.design)
    assert gained is not None, "the search returns only designs that can be integrated"
    taken = gained.taken_rows(best.chosen.taken)
    each = [determined(np.vstack(pair)) for pair in zip(search.before, taken, strict=True)]
    ends = determined(search.before[0]), each[0]
    value = float(phi.together([phi.exact(one) for one in each]))
    if not np.isfinite(value):
        raise ProblemError(_refusal(posed, each))
    n, names, sources = len(box), posed.space.names, posed.sources
    listed = [*range(n), *(i for i in posed.space.interest if i >= n)]
    scale = np.outer(posed.space.sizes, posed.space.sizes)
    covariances = [(one.covariance * scale)[np.ix_(listed, listed)] for one in ends]
    before, after = (np.sqrt(np.diag(covariance)) for covariance in covariances)
    with np.errstate(invalid="ignore"):
        errors = {"before": before, "after": after, "ratio": before / after}
    known = {"value": posed.at[listed], "unit": [posed.full.unit(sources[i]) for i in listed]}
    index = pd.Index([names[i] for i in listed], name="name")
    experiments = planned_experiments(posed, best)
    courses = pd.concat([_trajectories(posed, e) for e in experiments], ignore_index=True)
    relative = [float(np.exp(-phi.exact(one) / 2)) for one in ends]
    inputs = [i for e in experiments for i in e.inputs]
    return Plan(
        experiments=experiments,
        bounds={c.label: (c.lower, c.upper) for c in plan.choices},
        errors=pd.DataFrame(known | errors, index=index),
        covariance=covariances[1],
        covariance_before=covariances[0],
        criterion=posed.criterion,
        before=relative[0],
        after=relative[1],
        efficiency=best.chosen._replace(value=value).efficiency,
        courses=courses,
        units={n: posed.full.unit(n) for n in ("time", *posed.noise, *inputs)},
        sigma_known=posed.sigma_known,
        deviations=posed.deviations,
        starts=tuple(sorted(float(np.exp(-v / 2)) for v in best.values)),
        seed=search.seed,
        weights=_weights(posed, best),
        notes=(
            *best.notes,
            *_not_estimable(posed, each[0]),
            *_notes(posed, courses),
            *_useless(posed, relative),
            *posed.warnings(experiments),
        ),
    )


def _refusal(posed: DesignProblem, each: list[Determined]) -> str:
    """Message that no plan is possible: what the best one leaves undetermined."""
    open_ = next(one for one in each if len(one.lost))
    sentences = " ".join(_not_estimable(posed, open_))
    sentences = sentences or "The effects of some unknowns cannot be distinguished."
    kind = type(posed.criterion).__name__
    known = np.isfinite(np.diag(open_.covariance))
    others = [n for n, k in zip(posed.space.names, known, strict=True) if k]
    remedy = (
        f", or restrict the criterion to other unknowns: igpe.planning.{kind}(of=({others[0]!r},))"
        if others
        else ""
    )
    return (
        f"igpe found no plan that determines all unknowns of the criterion {kind}: the information "
        f"matrix of the best plan is singular. {sentences} Allow more samples, quantities or "
        f"conditions, or fix an unknown{remedy}."
    )


def _not_estimable(posed: DesignProblem, after: Determined) -> list[str]:
    """The combinations of shared unknowns that change no measurement, before or planned."""
    names = posed.space.names
    lines, lost = [], after.lost * posed.space.sizes
    if len(lost) > 1:  # the same space by rows in which each has an unknown of its own
        _, upper, order = qr(lost, mode="economic", pivoting=True)
        lost[:, order] = np.linalg.solve(upper[:, : len(lost)], upper)
    for direction in lost:
        size = np.abs(direction / posed.space.sizes)
        parts = [i for i in np.argsort(-size) if size[i] > TAKES_PART * size.max()]
        if not any(names[i] in posed.plan.shared for i in parts):
            continue  # own unknowns of experiments that are not repeated
        if len(parts) == 1:
            lines.append(f"Not estimable: no measurement depends on '{names[parts[0]]}'.")
            continue
        parts.sort()
        moves = [f"'{names[i]}' by {direction[i] / direction[parts[0]]:+.4g}" for i in parts]
        lines.append(
            f"Not estimable: changing {' and '.join(moves)} leaves all measurements unchanged."
        )
    return lines


LIGHT = 1e-3  # a weight below it is rounding


def _weights(posed: DesignProblem, best: BestDesign) -> pd.DataFrame:
    """See `Plan.weights`."""
    weights = best.chosen.weights
    e, t, q = np.nonzero(weights > LIGHT)
    names = np.array(list(posed.noise), dtype=object)
    planned = np.array([planned_name(posed.full, k) for k in range(len(weights))], dtype=object)
    columns = {"experiment": planned[e], "time": posed.allowed.times[t], "name": names[q]}
    return pd.DataFrame(columns | {"weight": weights[e, t, q]})


def _trajectories(posed: DesignProblem, planned: PlannedExperiment) -> pd.DataFrame:
    """Predicted trajectories, integrated independently of the search."""
    alone, end = posed.alone(planned), posed.plan.conditions.end
    (experiment,) = alone.experiments
    grid = np.union1d(np.linspace(planned.start_time, end, POINTS), posed.allowed.times)
    ((_, run),) = simulate_all(alone, Sundials(), posed.plan.values(posed.values), (grid,))
    if not run.status.usable:
        raise EstimationFailed(
            f"The planned experiment {planned.name} ends at {end:g}, but could be integrated only "
            f"to time {run.reached:g}. {run.reason}",
            run.status,
        )
    outputs = dict(zip(experiment.outputs, run.measured.T, strict=True))
    tables = []
    for n, d in posed.noise.items():
        sigma = d.deviation(outputs[n]) if isinstance(d, NoiseModel) else outputs[d.estimated]
        columns: dict[str, Any] = {"time": grid, "predicted": outputs[n], "sigma": sigma}
        tables.append(pd.DataFrame({"experiment": planned.name, "name": n} | columns))
    return pd.concat(tables, ignore_index=True)


def _useless(posed: DesignProblem, relative: Sequence[float]) -> Iterator[str]:
    """Notes on planned experiments with little information."""
    before, after = relative
    if after > LEAST_GAIN * before:
        yield (
            "The planned experiments hardly reduce the errors of the criterion. Allow other "
            "conditions, times or quantities."
        )
    if not posed.plan.shared and not posed.criterion.of:
        own = in_words([posed.space.names[i] for i in posed.space.interest])
        yield (
            f"All parameters are local: planned experiments determine their own {own}, and say "
            "nothing about the other experiments."
        )


def _notes(posed: DesignProblem, courses: pd.DataFrame) -> tuple[str, ...]:
    notes = list[str]()
    models = [(n, d) for n, d in posed.noise.items() if isinstance(d, NoiseModel)]
    shares = [n for n, model in models if not model.deviation(np.zeros(1)).any()]
    sizes = {n: courses.loc[courses["name"] == n, "predicted"].abs() for n in shares}
    if traces := [n for n, size in sizes.items() if size.min() < TRACE * size.max()]:
        notes.append(
            f"The errors of {traces} are purely relative, and some planned values are below "
            f"{TRACE:g} times the largest value, so the plan assumes very precise measurements of "
            "small values. Give an absolute error as well: "
            "igpe.Noise(absolute=..., relative=...)."
        )
    pairs = zip(posed.full.box.names, posed.sizes, strict=True)
    near = {n: s for n, s in pairs if s > abs(posed.values[n]) and n not in posed.given_sizes}
    notes += [
        f"The value {posed.values[n]:.4g} of '{n}' is close to 0. Its error is therefore "
        f"expressed relative to {size:.4g}, one hundredth of the range of '{n}'. To set another "
        f"reference size, pass sizes={{{n!r}: ...}}."
        for n, size in near.items()
        if n in posed.plan.shared
    ]
    return tuple(notes)


@session()
def design(
    problem: Problem | ProblemWithoutData | Sequence[Any],
    parameters: Values | None = None,
    *,
    free: Mapping[str, DesignVariable] = EMPTY,
    conditions: Mapping[str, Any] = EMPTY,
    times: Sampling | Sequence[float] | FloatArray | None = None,
    measure: Mapping[str, Deviation | float] | Sequence[str] | None = None,
    criterion: Criterion = DOptimal(),
    experiments: int = 1,
    existing: bool = True,
    like: str | None = None,
    samples: int | pd.DataFrame = 0,
    pool: int = 256,
    starts: int = 4,
    seed: int = 0,
    integrator: Integrator = Automatic(),
    sizes: Mapping[str, float] = EMPTY,
    budgets: Budget | Sequence[Budget] = (),
) -> Plan:
    """Choose conditions and sampling times for the next experiments, to reduce standard errors.

    problem      a `Problem` with the model and the previous experiments; or a `ProblemWithoutData`;
                 or a list of labelled experiments (Pyomo.DoE, parmest). The `experiment_inputs` of
                 labelled experiments are free within their bounds unless `free` sets them. igpe
                 treats the outputs of labelled experiments as measured if every output has a value
    parameters   a result, an estimate, or a dict {unknown: value}, at which igpe linearises the
                 model; for labelled experiments, the default is their nominal values
    free         the conditions that igpe chooses: a dict that maps the name of a state to `Between`
                 (for its start value), and the name of an input or an operating parameter to
                 `Between` (for a constant value), `Levels` or `Ramps`
    conditions   the fixed conditions: a dict that maps the name of a state to its start value, and
                 the name of an input to its values as in `Experiment(inputs=...)`
    like         name of the experiment that gives the default conditions, times and measured
                 quantities; by default the first experiment
    times        a `Sampling(...)` with the times at which samples may be taken, or a list of
                 fixed sampling times
    measure      a list of the names of the measured quantities, or a dict {name: deviation}, where
                 the deviation is a number, `Noise` or `EstimatedSigma`; by default as in the
                 experiment `like`
    criterion    `DOptimal()`, `AOptimal()`, `EOptimal()` or `ModifiedE()`, applied to the relative
                 errors of the unknowns
    sizes        a dict {unknown: size}, in the unit of the unknown. The criterion divides the error
                 of each unknown by this size. The default size is the value of the unknown; if the
                 range of the unknown includes 0, the size is at least a hundredth of the range
    experiments  number of experiments to plan together
    existing     whether to include the measurements of the problem's experiments; priors are always
                 included
    samples      for a robust design: the number of sets of values to draw from the distribution of
                 the estimates, or a table of such sets with a column for each unknown. The design
                 then maximises the mean of Φ (see `DOptimal`) over `parameters` and these sets
    budgets      one or several `Budget`s, which limit the cost, feed, time or number of samples.
                 If the budgets do not cover all `experiments`, the plan contains fewer experiments
    pool, starts  number of random experiments, and number of local searches from the best of them
    seed         seed of the random experiments and searches
    integrator   the method that integrates the model with its sensitivities
    returns      the plan; if the call is interrupted (Ctrl-C), the best plan so far, with a note
    raises       ProblemError if settings do not fit the model, or if no plan determines the
                 unknowns in the criterion; EstimationFailed if no experiment could be integrated;
                 Unsupported for time-varying unknowns or robust losses
    """
    for field, count in (("experiments", experiments), ("pool", pool), ("starts", starts)):
        require(is_count(count) and count > 0, "igpe.design", field, count, "1 or more")
    require(is_count(seed), "igpe.design", "seed", seed, "a non-negative integer")
    expected = "igpe.planning.DOptimal() or another criterion"
    require(isinstance(criterion, Criterion), "igpe.design", "criterion", criterion, expected)
    if is_labelled(problem):
        labelled = labelled_design(problem)
        problem, existing = labelled.problem, existing and labelled.measured
        parameters, free = parameters or labelled.parameters, free or labelled.free
    posed = read_design(
        problem, parameters,  # type: ignore[arg-type]  # what they are not is refused there
        free=free, conditions=conditions, times=times, measure=measure, criterion=criterion,
        count=experiments, existing=existing, like=like, integrator=integrator,
        sizes=sizes, budgets=budgets,
    )  # fmt: skip
    points = [posed.values, *scenarios(samples, posed, seed)]
    search = DesignSearch(posed, points, pool, starts, seed)
    search, best = search.best()
    with finishing():
        return report(search, best)
