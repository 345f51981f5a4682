"""The structures of the C code of the Runge-Kutta pairs, field by field (`runge_kutta_model.c`)."""

import ctypes

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.cut import Cut
from igpe.dynamics.integrators.limits import Limits
from igpe.dynamics.integrators.method import Tolerances
from igpe.dynamics.integrators.tableaux import STAGES
from igpe.equations.initial_value import InitialValueProblem


class Plan(ctypes.Structure):
    """`Plan` of the C code: the intervals and the limits."""

    _fields_ = (
        ("intervals", ctypes.c_longlong),
        ("first", ctypes.c_void_p),
        ("edges", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("times", ctypes.c_void_p),
        ("row_inputs", ctypes.c_void_p),
        ("size", ctypes.c_void_p),
        ("most", ctypes.c_void_p),
        ("nearest", ctypes.c_void_p),
        ("numbers", ctypes.c_void_p),
        ("rtol", ctypes.c_double),
        ("atol", ctypes.c_double),
        ("slack", ctypes.c_double),
        ("max_steps", ctypes.c_longlong),
        ("pair", ctypes.c_longlong),
    )

    @classmethod
    def of(
        cls,
        ivp: InitialValueProblem,
        pieces: Cut,
        method: Tolerances,
        pair: int,
        numbers: FloatArray,
    ) -> "Plan":
        """The plan; it keeps the arrays it points at."""
        arrays = {
            "first": pieces.first.astype(np.int64),
            "edges": pieces.edges,
            "inputs": pieces.inputs,
            "rows": pieces.rows.astype(np.int64),
            "times": pieces.times,
            "row_inputs": pieces.row_inputs,
            "size": np.ascontiguousarray(ivp.scale, dtype=float),
            "nearest": np.ascontiguousarray(ivp.unknown_scale, dtype=float),
            "most": np.ascontiguousarray(Limits.of(method, ivp).most * ivp.scale),
            "numbers": numbers,
        }
        plan = cls(
            intervals=pieces.intervals,
            rtol=method.rtol,
            atol=method.atol,
            slack=method.slack,
            max_steps=method.max_steps,
            pair=pair,
            **{name: array.ctypes.data for name, array in arrays.items()},
        )
        plan.kept = arrays
        return plan


class Batch(ctypes.Structure):
    """`Batch` of the C code: starts, unknowns, directions, and where results go."""

    _fields_ = (
        ("directions", ctypes.c_longlong),
        ("starts", ctypes.c_void_p),
        ("q", ctypes.c_void_p),
        ("along", ctypes.c_void_p),
        ("gaps", ctypes.c_void_p),
        ("probed", ctypes.c_longlong),
        ("chained", ctypes.c_longlong),
        ("ends", ctypes.c_void_p),
        ("ends_by", ctypes.c_void_p),
        ("measured", ctypes.c_void_p),
        ("measured_by", ctypes.c_void_p),
        ("reached", ctypes.c_void_p),
        ("told", ctypes.c_void_p),
        ("tape", ctypes.c_void_p),
    )


class Tape(ctypes.Structure):
    """`Tape` of the C code: the steps of a run, with room for so many."""

    _fields_ = (
        ("room", ctypes.c_longlong),
        ("count", ctypes.c_longlong),
        ("first", ctypes.c_void_p),
        ("kinds", ctypes.c_void_p),
        ("steps", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
    )

    @classmethod
    def of(cls, pieces: Cut, n_x: int, room: int) -> "Tape":
        """An empty one; it keeps the arrays it points at."""
        arrays = {
            "first": np.empty(pieces.intervals + 1, dtype=np.int64),
            "kinds": np.empty((room, 4), dtype=np.int64),
            "steps": np.empty((room, 2 + STAGES * n_x)),
            "states": np.empty((len(pieces.times), n_x)),
        }
        tape = cls(room=room, **{name: array.ctypes.data for name, array in arrays.items()})
        tape.kept = arrays
        return tape


class Sweep(ctypes.Structure):
    """`Sweep` of the C code: what is asked of a way back through a tape."""

    _fields_ = (
        ("q", ctypes.c_void_p),
        ("tape", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("by_node", ctypes.c_void_p),
        ("by_q", ctypes.c_void_p),
    )
