"""One planned experiment: plain data, and its JSON form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.problem.experiment import Unknown
from igpe.problem.inputs import Table, linear_input, step_input


@dataclass(frozen=True)
class PlannedExperiment:
    """One planned experiment.

    settings    name -> number that was chosen, as in `Plan.settings`
    start, inputs, start_time  as for `Experiment`
    times       (n,) when to sample;  measured: what to measure in each sample
    """

    name: str
    settings: Mapping[str, float]
    start: Mapping[str, Any]
    inputs: Mapping[str, Any]
    start_time: float
    times: FloatArray
    measured: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """In types that JSON knows; functions of time by their name."""
        return {
            "name": self.name,
            "settings": dict(self.settings),
            "start": {n: _stored(v) for n, v in self.start.items()},
            "start_time": self.start_time,
            "inputs": {n: _stored(v) for n, v in self.inputs.items()},
            "times": self.times.tolist(),
            "measured": list(self.measured),
        }

    @classmethod
    def from_dict(
        cls, stored: Mapping[str, Any], functions: Mapping[str, Callable[[Any], Any]]
    ) -> "PlannedExperiment":
        """The experiment that `to_dict` stored.

        functions  input -> the function of time that it is, of which only the name is stored
        raises     DataError if one is missing
        """
        inputs = {n: _restored(v) for n, v in stored["inputs"].items()}
        missing = {n: v.name for n, v in inputs.items() if isinstance(v, _Named)}
        inputs |= {n: functions[n] for n in missing if n in functions}
        lost = {n: name for n, name in missing.items() if n not in functions}
        if lost:
            raise DataError(
                f"In '{stored['name']}' the inputs {sorted(lost)} are functions of time, of which "
                f"only the names {sorted(lost.values())} are stored; give them again: "
                f"Plan.from_json(..., functions={{{next(iter(lost))!r}: ...}})."
            )
        return cls(
            name=stored["name"],
            settings=stored["settings"],
            start={n: _restored(v) for n, v in stored["start"].items()},
            inputs=inputs,
            start_time=stored["start_time"],
            times=np.array(stored["times"], dtype=float),
            measured=tuple(stored["measured"]),
        )


@dataclass(frozen=True)
class _Named:
    """A function of which only the name is known."""

    name: str


def _stored(given: Any) -> Any:
    if isinstance(given, Table):
        kind = "steps" if given.hold else "linear"
        return {kind: {"times": given.times.tolist(), "values": given.values.tolist()}}
    if isinstance(given, Unknown):
        return {"unknown": {"lower": given.lower, "upper": given.upper, "guess": given.guess}}
    if callable(given):
        return {"function": getattr(given, "__name__", "a function of time")}
    return given


def _restored(stored: Any) -> Any:
    """Undo `_stored`; a guess that is not given was restored as NaN."""
    if not isinstance(stored, Mapping):
        return stored
    (kind,) = stored
    held = stored[kind]
    if kind == "unknown":
        guess = None if np.isnan(held["guess"]) else held["guess"]
        return Unknown(held["lower"], held["upper"], guess)
    if kind == "function":
        return _Named(held)
    make = step_input if kind == "steps" else linear_input
    return make(held["times"], held["values"])
