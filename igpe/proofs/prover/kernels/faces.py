"""Ranges of all operations of a tape, and of slopes on the faces of a tube.

Both are one kernel: to pass a tape to another one takes longer than to compute a face.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.proofs.compiled import kernel
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.intervals import (
    base_and_exponent,
    between,
    fraction,
    of_function,
    of_power,
    outward,
)
from igpe.proofs.prover.kernels.sums import narrow_states
from igpe.proofs.prover.kernels.tape import Faces, OpTape


class Slopes(NamedTuple):
    """Slopes over ranges: their tape, ranges of parameters and inputs, and room (n, 2) for all.

    sums (n_sums, n_x) of states whose slope is zero;  held (n_sums, 2): what they are;  near (n_x,
    2): room for states
    """

    tape: OpTape
    faces: Faces
    p: FloatArray
    u: FloatArray
    out: FloatArray
    sums: FloatArray
    held: FloatArray
    near: FloatArray


@kernel
def face_slopes(
    of: Slopes, asked: BoolArray, paths: FloatArray, x: FloatArray, worst: FloatArray
) -> None:
    """Worst slopes (n_x, 2) on faces' paths (n_x, 2, 2) while the other states are anywhere in x.

    asked  (n_x, 2) for which faces

    Operations that do not depend on a face's state are the same for all faces, unless sums cut off
    what the other states can be there. Those that do not move must have been computed before.
    """
    tape, faces, p, u, out = of.tape, of.faces, of.p, of.u, of.out
    kinds, firsts, seconds, numbers = tape.op, tape.a, tape.b, tape.number
    slots, functions, exponents, results = tape.argument, tape.function, tape.exponent, tape.results
    sums, held, near, has_sums = of.sums, of.held, of.near, len(of.sums) > 0
    kept = np.empty_like(out)
    for face in range(0 if has_sums else -1, 2 * len(asked)):
        i, s = face // 2, face % 2
        around, places, first, last = x, faces.moving, 0, len(faces.moving)
        if face >= 0:
            if not asked[i, s]:
                continue
            inner, outer = x[i, 0], x[i, 1]
            x[i, 0], x[i, 1] = paths[i, s, 0], paths[i, s, 1]
            places, first, last = faces.own, faces.own_first[i], faces.own_first[i + 1]
            if has_sums:
                near[:] = x
                narrow_states(sums, held, near, i)
                around = near
                places, first, last = faces.need, faces.need_first[i], faces.need_first[i + 1]
        for j in range(first, last):
            n = places[j]
            op, a, b = kinds[n], firsts[n], seconds[n]
            if op == ops.STATE:
                low, high = around[a, 0], around[a, 1]
            elif op == ops.PARAMETER:
                low, high = p[a, 0], p[a, 1]
            elif op == ops.CONST:
                low, high = numbers[n], numbers[n]
            elif op == ops.INPUT:
                low, high = u[a, 0], u[a, 1]
            elif op == ops.TIME:
                low, high = u[len(u) - 1, 0], u[len(u) - 1, 1]
            elif op in (ops.SHIFT, ops.COEFFICIENT, ops.HORNER, ops.TERM):
                continue
            elif op == ops.FRACTION:
                low, high = fraction(firsts, numbers, a, b, out)
            elif op == ops.NEG:
                low, high = -out[a, 1], -out[a, 0]
            elif op == ops.CLOSE:
                k = slots[b]
                low, high = of_function(functions[b], exponents[b], out[k, 0], out[k, 1])
                low, high = outward(low, high)
            elif op == ops.GENERAL_POWER:
                base, k = base_and_exponent(tape, n)
                low, high = of_power(out[base, 0], out[base, 1], out[k, 0], out[k, 1])
            else:
                low, high = between(op, out[a, 0], out[a, 1], out[b, 0], out[b, 1])
            if not (low <= high):
                low, high = -np.inf, np.inf
            out[n, 0], out[n, 1] = low, high
        if face < 0:
            kept[:] = out
            continue
        x[i, 0], x[i, 1] = inner, outer
        worst[i, s] = out[results[i], s]
        if not has_sums:
            for j in range(first, last):
                n = places[j]
                out[n, 0], out[n, 1] = kept[n, 0], kept[n, 1]


@kernel
def face_slope(of: Slopes, i: int, side: int, path: FloatArray, x: FloatArray) -> float:
    """The same of one face, on the path (2,) of state i."""
    n = len(x)
    asked, paths, worst = np.zeros((n, 2), dtype=np.bool_), np.empty((n, 2, 2)), np.empty((n, 2))
    asked[i, side], paths[i, side] = True, path
    face_slopes(of, asked, paths, x, worst)
    return float(worst[i, side])


@kernel
def enclose(tape: OpTape, x: FloatArray, p: FloatArray, u: FloatArray, out: FloatArray) -> None:
    """Ranges of all operations, into out (n, 2).

    x (n_x, 2), p (n_p, 2), u (n_u + 1, 2): ranges of states, parameters, and inputs with time last
    """
    every, none = np.arange(len(tape.op)), np.zeros(0, dtype=np.int64)
    no_faces, nothing = np.zeros((0, 2), dtype=np.bool_), np.zeros((0, 2))
    faces = Faces(every, none, none, none, none)
    of = Slopes(tape, faces, p, u, out, nothing, nothing, nothing)
    face_slopes(of, no_faces, np.zeros((0, 2, 2)), x, nothing)
