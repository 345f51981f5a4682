"""The next experiment: conditions and samples that tell most of the unknowns.

Optimum experimental design on exact sensitivities, linearised at the parameters known so far
(Houska et al. 2012, section 3; Bauer, Bock, Körkel & Schlöder, J. Comput. Appl. Math. 120 (2000)).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from igpe.core.arguments import is_count, require
from igpe.core.arrays import FloatArray
from igpe.core.deadline import finishing, session
from igpe.core.errors import EstimationFailed
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.planning.criteria import Criterion, DOptimal
from igpe.planning.evidence import Judge
from igpe.planning.existing import Unmeasured
from igpe.planning.freedom import Freedom, Noise, Sampling
from igpe.planning.plan import Plan
from igpe.planning.posing import EMPTY, Values, as_before, pose, steepness
from igpe.planning.report import report
from igpe.planning.scenarios import scenarios
from igpe.planning.search import Search
from igpe.problem.problem import Problem

INTERRUPTED = "Interrupted: this is the best plan so far; a longer search may find a better one."


@session()
def design(
    problem: Problem | Unmeasured,
    parameters: Values,
    *,
    free: Mapping[str, Freedom] = EMPTY,
    conditions: Mapping[str, Any] = EMPTY,
    times: Sampling | Sequence[float] | FloatArray | None = None,
    measure: Mapping[str, Noise | float] | Sequence[str] | None = None,
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
) -> Plan:
    """Choose the conditions and samples of the next experiments, so that errors become small.

    problem      model and experiments done so far, whose information counts; or `Unmeasured`
    parameters   where to linearise: a result, an estimate, or unknown -> value
    free         what may be chosen: state -> `Between` (its start value); input or operating
                 parameter -> `Between` (constant), `Levels` or `Ramps`
    conditions   what is fixed: state -> start value, input -> as in `Experiment(inputs=...)`
    like         name of the experiment whose conditions, times and measured quantities hold where
                 nothing else is said; by default the first
    times        when samples may be taken (`Sampling`), or are taken (numbers)
    measure      names, or name -> standard deviation, `Noise`, `Proportional` or `Estimated`; by
                 default as in `like`
    criterion    `DOptimal()`, `AOptimal()`, `EOptimal()` or `ModifiedE()`, on relative errors of
                 the unknowns
    sizes        unknown -> what its error is relative to, in its unit; by default its value, but at
                 least a hundredth of its range where that includes 0
    experiments  how many are planned together
    existing     whether the measurements of the problem's experiments count; priors always do
    samples      a robust design: the mean Φ at the parameters and at so many drawn from their
                 errors, or at those of a table with a column for each unknown
    pool, starts  random experiments and local searches that the search begins with
    seed         of both;  integrator: of the model with its sensitivities
    returns      the best plan so far if it is interrupted (Ctrl-C), with a note
    raises       ProblemError for settings that do not fit the model, and if no plan determines the
                 unknowns that the criterion looks at; EstimationFailed if no experiment could be
                 integrated; Unsupported for time-varying unknowns or robust losses
    """
    for field, count in (("experiments", experiments), ("pool", pool), ("starts", starts)):
        require(is_count(count) and count > 0, "igpe.design", field, count, "1 or more")
    require(is_count(seed), "igpe.design", "seed", seed, "a whole number of 0 or more")
    is_one = isinstance(criterion, Criterion) and not isinstance(criterion, type)
    require(is_one, "igpe.design", "criterion", criterion, "igpe.DOptimal() or another criterion")
    posed = pose(
        problem, parameters,
        free=free, conditions=conditions, times=times, measure=measure, criterion=criterion,
        count=experiments, existing=existing, like=like, integrator=integrator,
        sizes=sizes,
    )  # fmt: skip
    points = [posed.values, *scenarios(samples, posed, seed)]
    steep, steepest = steepness(posed.plan)
    search = Search(
        told=[posed.told(v) for v in points],
        before=[posed.known(v) for v in points],
        space=posed.space,
        judge=Judge(criterion, posed.space.interest),
        allowed=posed.allowed,
        lower=posed.plan.lower,
        width=posed.plan.width,
        steep=steep,
        steepest=steepest,
        pool=pool,
        starts=starts,
        seed=seed,
    )
    found = search.run(as_before(posed))
    if found is None:
        raise EstimationFailed(
            f"None of {pool} experiments within the bounds of free={{...}} could be integrated; "
            "narrow the bounds to what is possible, and try one: igpe.simulate.",
            Status.INTEGRATION_BROKE,
        )
    with finishing():
        plan = report(posed, search, found)
    return plan if found.complete else replace(plan, notes=(INTERRUPTED, *plan.notes))
