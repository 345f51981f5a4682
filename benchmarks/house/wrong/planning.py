"""Plans of experiments that optimise or keep something else."""

from typing import Any

from house.planting import answering, fault, method, overwritten, public


@fault("test_known_designs test_choosing test_plan")
def d_optimal_minimises_the_trace() -> None:
    """The criterion D judges by the mean variance, as A does."""
    other = public("AOptimal")
    method(
        "DOptimal",
        "log_information",
        lambda right, c, covariance: other().log_information(covariance),
    )


@fault("test_known_designs test_plan test_choosing")
def spacing_ignored() -> None:
    """Samples may be taken closer together than the least spacing."""

    def wrong(right: Any, sampling: Any) -> None:
        right(sampling)
        overwritten(sampling, spacing=0.0)

    method("Sampling", "__post_init__", wrong)


@fault("test_plan")
def planned_experiment_starts_late() -> None:
    """An experiment made from a plan starts at its first sample."""

    def change(experiment: Any) -> Any:
        return overwritten(experiment, start_time=float(experiment.times[0]))

    method("Plan", "experiment", answering(change))


@fault("test_plan")
def ramps_as_steep_as_may_be() -> None:
    """A planned ramp may be steeper than is allowed."""

    def wrong(right: Any, ramps: Any) -> None:
        right(ramps)
        overwritten(ramps, steepest=None)

    method("Ramps", "__post_init__", wrong)
