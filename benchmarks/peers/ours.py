"""igpe: the pipeline with its default settings, and its local search alone."""

from collections.abc import Iterator

from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.pipeline import estimate
from peers.task import Found, Search, Task


def igpe_estimate(task: Task) -> Search:
    """Everything is search: reading the equations and compiling belong to it.

    Without the proof, which no other method gives.
    """

    def search() -> Iterator[Found]:
        yield estimate(task.problem, seed=task.seed, certify=False).parameters

    return search


def local_search(task: Task) -> Search:
    """Single shooting from one start after the other; compiling is preparation."""
    box, shooting = task.problem.box, SingleShooting().prepare(task.problem)
    shooting.residuals(box.middle)

    def search() -> Iterator[Found]:
        for start in task.spread:
            estimate = shooting.estimate(box.mapping(start))
            yield estimate.parameters if estimate.status.usable else None

    return search
