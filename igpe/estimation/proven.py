"""What the pipeline has proved on the dynamics: of step 4, and of its answer."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from igpe.core.deadline import stopped
from igpe.core.errors import IgpeError
from igpe.core.status import Clock
from igpe.estimation.equally_good import led_by
from igpe.estimation.settings import ProveComplement, Settings
from igpe.estimation.summary import Steps, Way, summarise
from igpe.problem.problem import Problem
from igpe.results.result import Result
from igpe.results.result_text import has_better


def with_proof(
    steps: Steps, settings: Settings, result: Result, clock: Clock, proved: tuple[str, ...]
) -> Result:
    """The result with its proof, or with a note why there is none.

    Where the proof meets better parameters the estimate is fitted again from them.

    proved  sentences on what was proved of step 4, as for `summarise`
    """
    from igpe.proofs.prover.certify import certify  # noqa: PLC0415 - Numba is slow to load

    with clock.step("certificate", "A proof that no parameters within the bounds fit better"):
        try:
            proof = certify(steps.problem, result).without_tree()
        except IgpeError as error:
            return _unproved(result, f"Nothing was proved. {error}", clock)
        except KeyboardInterrupt:  # before there is a bound
            return _unproved(result, "Nothing was proved: it was interrupted.", clock)
        if has_better(result, proof) and not stopped():
            values = dict(zip(proof.unknowns, proof.parameters, strict=True))
            result = summarise(led_by(steps, settings, values), settings, proved)
    return replace(result, proof=proof, seconds=dict(clock.seconds))


def _unproved(result: Result, note: str, clock: Clock) -> Result:
    return replace(result, notes=(*result.notes, note), seconds=dict(clock.seconds))


def complement_proven(
    problem: Problem, ways: Sequence[Way], proof: ProveComplement
) -> tuple[list[Way], tuple[str, ...]]:
    """The candidates after step 4, and what is proved of the best, where it is small enough.

    The best one may become better by that. Ctrl-C only ends the proof.
    """
    k = int(np.argmin([np.nan_to_num(w.complete.objective, nan=np.inf) for w in ways]))
    found, before = list(ways), ways[k].complete
    rest = problem.fixing(ways[k].algebraic.parameters)
    if not len(rest.box):
        return found, ()
    if len(rest.box) > proof.unknowns:
        many = f"{len(rest.box)} unknowns, more than ProveComplement(unknowns={proof.unknowns})"
        return found, (f"Step 4: nothing was proved of {many}.",)
    at = {name: before.parameters[name] for name in rest.box.names}
    try:
        from igpe.proofs.prover.certify import certify  # noqa: PLC0415 - Numba is slow to load

        proved = certify(rest, at, gap=proof.gap, time_limit=proof.time_limit)
    except IgpeError as error:
        return found, (f"Step 4: nothing was proved. {error}",)
    except KeyboardInterrupt:  # before there is anything to tell
        return found, ("Step 4: nothing was proved, as you stopped it.",)
    better = dict(zip(proved.unknowns, proved.parameters, strict=True))
    complete = replace(
        before,
        parameters={**before.parameters, **better},
        objective=proved.objective,
        lower_bound=proved.lower_bound,
    )
    found[k] = ways[k]._replace(complete=complete, corrected=complete)
    return found, (f"Step 4, with what step 3 found held: {proved.sentence}",)
