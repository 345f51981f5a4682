"""Searches and calls of the pipeline that lose or ignore something."""

from dataclasses import replace
from typing import Any

import numpy as np

from house.planting import answering, around, fault, given, method, public


@fault("test_commands test_pipeline")
def seed_ignored() -> None:
    """The seed of an estimate does not count."""
    around("estimate", given(seed=lambda _: None))


@fault("test_certify")
def proof_not_tried() -> None:
    """An estimate that is to be proven is not."""
    around("estimate", given(certify=lambda _: False))


@fault("test_pipeline test_ending_early")
def interrupted_called_converged() -> None:
    """An estimate that was interrupted says that it converged."""
    status = public("Status")
    cut = {status.INTERRUPTED, status.TIME_LIMIT}

    def change(result: Any) -> Any:
        return replace(result, status=status.CONVERGED) if result.status in cut else result

    around("estimate", answering(change))


@fault("test_pipeline test_problem test_parmest")
def model_left_changed() -> None:
    """An estimate leaves the parameters of the user's model fixed where it ended."""

    def wrong(right: Any, problem: Any, *arguments: Any, **named: Any) -> Any:
        result = right(problem, *arguments, **named)
        for name, value in result.parameters.items():
            for instance in problem.instances:
                if name in instance.scalars:
                    instance.scalars[name].fix(value, skip_validation=True)
        return result

    around("estimate", wrong)


@fault("test_many_starts")
def campaign_seed_ignored() -> None:
    """A campaign has the same starts for every seed."""
    around("campaign", given(seed=lambda _: 0))


@fault("test_many_starts")
def store_not_used() -> None:
    """A campaign neither keeps its starts in the store nor finds those that are there."""
    around("campaign", given(store=lambda _: None))


@fault("test_many_starts")
def best_is_the_first() -> None:
    """The best of a campaign is the first start that arrived at an optimum."""

    def wrong(right: Any, campaign: Any) -> Any:
        best = right(campaign)
        arrived = campaign.table[campaign.table["arrived"]]
        if not len(arrived):
            return best
        row = arrived.iloc[0]
        there = {n: float(row[n]) for n in campaign.starts.columns}
        return replace(best, parameters=there, objective=float(row["objective"]))

    method("Campaign", "best", wrong)


@fault("test_many_starts")
def interruption_loses_the_campaign() -> None:
    """A campaign that is interrupted loses what was finished."""

    def change(campaign: Any) -> Any:
        if not campaign.complete:
            raise public("EstimationFailed")("Interrupted.", public("Status").INTERRUPTED)
        return campaign

    around("campaign", answering(change))


@fault("test_comparison")
def every_method_its_own_best() -> None:
    """A comparison counts how often a method found its own best optimum, not the best of all."""

    def wrong(right: Any, comparison: Any) -> Any:
        table = right(comparison)
        for name, runs in comparison.runs.groupby("method", sort=False):
            arrived = runs["objective"][runs["arrived"]]
            own = replace(comparison, runs=runs, best=float(arrived.min() if len(arrived) else 0))
            table.loc[name, "best %"] = right(own).loc[name, "best %"]
        return table

    method("Comparison", "table", wrong)


@fault("test_comparison")
def known_optimum_ignored() -> None:
    """A comparison ignores the best objective that is known elsewhere."""
    around("compare", given(optimum=lambda _: np.inf))
