"""The grid in space, which stands with the integrators at the front door.

Problems are discretised in space before anything integrates them (`igpe.problem.space`).
"""

from igpe.problem.space import FiniteDifference

__all__ = ["FiniteDifference"]
