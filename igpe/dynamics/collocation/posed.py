"""The discretised problem, however it is written down."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from igpe.dynamics.collocation.assembled import Assembled, Parts, parts
from igpe.dynamics.collocation.guess import Course, begin, course, sizes
from igpe.dynamics.collocation.mesh import Mesh, Radau
from igpe.dynamics.collocation.transcription import transcribe
from igpe.dynamics.shooting.base import Profile
from igpe.equations.system import System
from igpe.problem.problem import Problem
from igpe.solvers.base import Answer
from igpe.solvers.compiled_ipopt import Known
from igpe.solvers.ipopt import Ipopt, Prepared


class Posed(Protocol):
    """A problem on one mesh for each experiment, as variables that have values.

    refinable  whether other meshes are possible
    """

    @property
    def problem(self) -> Problem:
        """What is discretised."""
        ...

    @property
    def meshes(self) -> Sequence[Mesh]:
        """One for each experiment."""
        ...

    @property
    def refinable(self) -> bool:
        """Whether other meshes are possible."""
        ...

    def begin(self, start: Mapping[str, float], profiles: Sequence[Profile]) -> None:
        """See `igpe.dynamics.collocation.guess.begin`."""
        ...

    def prepare(self, solver: Ipopt, starts: Sequence[Mapping[str, float]]) -> None:
        """Translate for the solver, scaled by where the variables now stand."""
        ...

    def solve(self, time_limit: float | None, known: Sequence[Known]) -> Answer:
        """From the present values; see `igpe.solvers.ipopt.Prepared.solve`."""
        ...

    @property
    def handles(self) -> tuple[object, ...]:
        """What `Known` calls the free unknowns."""
        ...

    def parameters(self) -> dict[str, float]:
        """The free unknowns' present values."""
        ...

    def courses(self) -> list[Course]:
        """As the variables now stand."""
        ...


class Poser:
    """Discretises a problem on any mesh: in CasADi where nothing is lost by it, else in Pyomo."""

    def __init__(self, problem: Problem, radau: Radau, systems: Sequence[System] = ()) -> None:
        self.problem = problem
        self._parts: Parts | None = parts(problem, radau, tuple(systems))

    def on(self, meshes: Sequence[Mesh]) -> Posed:
        """The problem on these meshes; a model with times of its own may know better ones."""
        if self._parts is not None:
            return Assembled(self._parts, meshes)
        return Transcribed(self.problem, meshes)

    @property
    def assembled(self) -> bool:
        """Whether it does without Pyomo."""
        return self._parts is not None

    def in_pyomo(self) -> None:
        """From now on in Pyomo, whose program has more variables and other ways to an optimum."""
        self._parts = None


class Transcribed:
    """The user's Pyomo model on the mesh."""

    def __init__(self, problem: Problem, meshes: Sequence[Mesh]) -> None:
        self.problem = problem
        self._program = transcribe(problem, meshes)
        self.meshes, self.refinable = self._program.meshes, self._program.refinable
        self._prepared: Prepared | None = None

    def begin(self, start: Mapping[str, float], profiles: Sequence[Profile]) -> None:
        """See `igpe.dynamics.collocation.guess.begin`."""
        begin(self._program, start, profiles)

    def prepare(self, solver: Ipopt, starts: Sequence[Mapping[str, float]]) -> None:
        """See `Posed.prepare`."""
        self._prepared = solver.prepare(self._program.model, sizes(self._program, starts))

    def solve(self, time_limit: float | None, known: Sequence[Known]) -> Answer:
        """See `Posed.solve`."""
        assert self._prepared is not None, "prepared before it is solved"
        return self._prepared.solve(time_limit, known)

    @property
    def handles(self) -> tuple[object, ...]:
        """Pyomo variables."""
        return tuple(self._program.unknowns[n][0] for n in self.problem.box.names)

    def parameters(self) -> dict[str, float]:
        """The free unknowns' present values."""
        return self._program.parameters()

    def courses(self) -> list[Course]:
        """As the variables now stand."""
        return [course(run) for run in self._program.runs]
