"""igpe: the pipeline with its default settings."""

from collections.abc import Iterator

from igpe.pipeline import estimate
from peers.task import Found, Search, Task


def igpe_estimate(task: Task) -> Search:
    """Everything is search: reading the equations and compiling belong to it."""

    def search() -> Iterator[Found]:
        yield estimate(task.problem, seed=task.seed).parameters

    return search
