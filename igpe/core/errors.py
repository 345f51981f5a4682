"""The errors that igpe raises, and how to correct each.

IgpeError
├── ModelError         the Pyomo model is not of the form igpe reads       -> mend the model
├── DataError          the measurements do not fit the model               -> mend the data
├── ProblemError       model, data and settings do not fit together        -> mend the call
├── Unsupported        this method cannot do what the problem asks         -> choose another method
├── SolverMissing      an outside program is not installed                 -> install it
└── EstimationFailed   every attempt ended without usable parameters       -> read .status

Inside the package failure is a value (`Status`); these are raised at the public door.
Every message says what was found, what was wanted, and what to do.
"""

from igpe.core.status import Status

__all__ = [
    "DataError",
    "EstimationFailed",
    "IgpeError",
    "ModelError",
    "ProblemError",
    "SolverMissing",
    "Unsupported",
]


class IgpeError(Exception):
    """Base class of all errors that igpe raises deliberately."""


class ModelError(IgpeError):
    """The Pyomo model does not have a form that igpe can read."""


class DataError(IgpeError):
    """The measurements are invalid or do not match the model."""


class ProblemError(IgpeError):
    """The model, the experiments and the parameters do not fit together."""


class Unsupported(IgpeError):
    """The chosen method does not support the problem."""


class SolverMissing(IgpeError):
    """An external program is not installed or does not respond."""


class EstimationFailed(IgpeError):
    """No attempt returned usable parameter values; `status` describes the last attempt."""

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type, tuple[str, Status]]:
        """Keep the status when the exception is pickled by another process."""
        return type(self), (str(self), self.status)
