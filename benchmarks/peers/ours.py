"""igpe: the pipeline as it is, or its way with PEtab problems."""

from collections.abc import Iterator

from igpe.formats.petab.errors import estimate_petab
from igpe.pipeline import estimate
from peers.task import Found, Search, Task


def igpe_estimate(task: Task) -> Search:
    """Everything is search: reading the equations and compiling belong to it."""

    def search() -> Iterator[Found]:
        if task.yaml:
            yield estimate_petab(task.problem, task.starts, task.seed).parameters
        else:
            yield estimate(task.problem, seed=task.seed).parameters

    return search
