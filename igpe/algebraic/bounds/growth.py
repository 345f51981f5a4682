"""How the sum of squares grows around an optimum: what an expansion leaves out, bounded.

The letters are those of *The neighbourhood of an optimum* in `docs/projection.md`, all norms are
Euclidean, those of matrices and tensors Frobenius. Every upper bound holds for all |z| <= radius.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from igpe.algebraic.bounds.taylor.curvature import Curvature, relative_rounding
from igpe.algebraic.bounds.taylor.expansion import Expansion, lengths
from igpe.core.arrays import BoolArray, FloatArray

LEAST = 0.05  # of the growth by |z|^2 at the optimum: so much must be left
REST = 101.0  # (a + b)^2 <= REST a^2 + MOST b^2
MOST = 1.01


@dataclass(frozen=True)
class Growth:
    """An expansion by z, and the directions in which it has to be known.

    around  the expansion by theta;  scale: T
    held    (J,) theta on an end of its axis, which the gradient holds there
    mix     (K, K) G: columns of Phi G are nearly orthonormal
    """

    around: Expansion
    held: BoolArray
    scale: FloatArray
    mix: FloatArray

    @classmethod
    def of(cls, around: Expansion, held: BoolArray, scale: FloatArray) -> "Growth | None":
        """None where the columns are not independent."""
        columns = around.at.value[1:]
        size = np.linalg.norm(columns, axis=1)
        if not size.all():
            return None
        unit = columns / size[:, None]
        try:
            upper = np.linalg.cholesky(unit @ unit.T).T
        except np.linalg.LinAlgError:
            return None
        return cls(around, held, scale, np.linalg.inv(upper) / size[:, None])

    @cached_property
    def by_z(self) -> Expansion:
        return self.around.along(self.scale)

    @cached_property
    def tests(self) -> FloatArray:
        """(K, K + h) of columns that shall be orthogonal to rho: G of the free ones, then those
        that are held by an end of their range, which rho shall not favour."""
        ends = self.around.ends
        return np.hstack([self.mix * ends.free[:, None], np.diag(ends.sign)[:, ends.sign != 0]])

    @cached_property
    def turn(self) -> FloatArray:
        """(K + h, J, r) how the tested columns change with z."""
        return np.tensordot(self.tests.T, self.by_z.at.slope[1:], axes=1)

    @cached_property
    def directions(self) -> FloatArray:
        """(D, r): rho^, L, the tested columns, and how these change."""
        rows = self.tests.T @ self.by_z.at.value[1:]
        changes = self.turn.reshape(-1, rows.shape[1])
        return np.vstack([self.by_z.residual, self.by_z.slope, rows, changes])


class Bound:
    """Lower bounds on the sum of squares near the optimum.

    growth     the expansion
    curvature  along its directions
    missed     (1 + K,), (1 + K, J): what may be wrong with its numbers
    """

    def __init__(
        self, growth: Growth, curvature: Curvature, missed: tuple[FloatArray, FloatArray]
    ) -> None:
        self.given, self.missed = growth, missed
        e, self.lengths = growth.by_z, lengths(growth.scale)
        n, t = len(self.lengths), growth.tests.shape[1]
        self.rows, self.turns = slice(1 + n, 1 + n + t), slice(1 + n + t, None)
        self.eps = relative_rounding(e.residual)
        self.norm = self.lengths @ curvature.norm @ self.lengths  # of c_k, twice
        self.slope, self.residual = (float(np.linalg.norm(x)) for x in (e.slope, e.residual))
        middle = growth.scale.T @ curvature.middle @ growth.scale
        radius = self.lengths @ curvature.radius @ self.lengths
        self._rest(middle, radius)
        self._tests(middle, radius)
        self._columns()

    def _rest(self, middle: FloatArray, radius: FloatArray) -> None:
        """v . q for all directions v, and |q|; and Q, by which tests have no second order."""
        e, v = self.given.by_z, self.given.directions
        turned = np.einsum("ka,kbr->abr", e.follow, e.at.slope)
        turned = (turned + turned.transpose(1, 0, 2)) / 2
        quadratic = -middle[:, -1] / 2 - np.moveaxis(turned @ v.T, -1, 0)
        onto = v @ e.at.value.T  # D, 1 + K
        self.bending = bend = self._bend(quadratic, middle[0], onto)
        self.quadratic = quadratic - np.tensordot(onto, bend, axes=1)
        by_v = np.moveaxis(e.at.slope @ v.T, -1, 0)  # D, 1 + K, J
        cubic = np.einsum("ka,dkbc->dabc", e.follow, middle[:, :-1]) / 2
        cubic += np.einsum("kab,dkc->dabc", bend, by_v)
        self.follow = b = np.linalg.norm(e.follow, axis=1)
        self.bent = c = np.linalg.norm(bend, axis=(1, 2))
        each = radius[:, :-1]
        self.error = radius[:, -1] / 2
        self.error_by_z = np.linalg.norm(cubic.reshape(len(v), -1), axis=1) + each @ b / 2
        self.error_by_z2 = (np.linalg.norm(middle[:, :-1], axis=(2, 3)) + each) @ c / 2
        self.sizes = np.linalg.norm(v, axis=1)
        whole = turned + np.tensordot(bend, e.at.value, axes=(0, 0))
        slopes = np.linalg.norm(e.at.slope, axis=(1, 2))
        self.cancelled = float(b @ slopes + c @ np.linalg.norm(e.at.value, axis=1))
        self.rest = float(np.abs(e.factors) @ self.norm / 2 + np.linalg.norm(whole))
        self.rest_by_z = float(b @ self.norm / 2 + c @ slopes)
        self.rest_by_z2 = float(c @ self.norm / 2)

    def _bend(self, quadratic: FloatArray, middle: FloatArray, onto: FloatArray) -> FloatArray:
        """(1 + K, J, J) Q."""
        given, k = self.given, len(self.given.mix)
        second = self._second(quadratic[self.rows], middle)[:k]
        free = given.around.ends.free
        found = np.zeros((1 + k, *quadratic.shape[1:]))
        if not free.any():
            return found
        onto_free = onto[self.rows][:k, 1:][:, free]
        solved = np.linalg.lstsq(onto_free, second.reshape(k, -1), rcond=None)[0]
        found[1:][free] = solved.reshape(-1, *quadratic.shape[1:])
        return (found + found.transpose(0, 2, 1)) / 2

    def _second(self, quadratic: FloatArray, middle: FloatArray) -> FloatArray:
        """(K + h, J, J) second order of psi . rho at the centre."""
        across = self.given.turn @ self.given.by_z.slope.T
        bent = np.tensordot(self.given.tests.T, middle[1:-1], axes=1)
        return np.asarray(quadratic + (across + across.transpose(0, 2, 1) + bent) / 2)

    def _tests(self, middle: FloatArray, radius: FloatArray) -> None:
        """psi . rho for the columns psi that are tested."""
        e, mix, n = self.given.by_z, self.given.tests, len(self.lengths)
        rows, turn = self.given.directions[self.rows], self.given.turn
        t = len(rows)
        self.at = rows @ e.residual
        self.first = np.linalg.norm(rows @ e.slope.T + turn @ e.residual, axis=1)
        second = self._second(self.quadratic[self.rows], middle[0])
        self.second = np.linalg.norm(second, axis=(1, 2)) + np.abs(mix).T @ radius[0, 1:-1] / 2
        bent = np.einsum("kt,akbc->tabc", mix, middle[1 : 1 + n, 1:-1]) / 2
        third = self.quadratic[self.turns].reshape(t, n, n, n) + bent
        bound = np.einsum("kt,ak->ta", np.abs(mix), radius[1 : 1 + n, 1:-1]) / 2
        self.third = np.linalg.norm(third.reshape(t, n**3), axis=1) + np.linalg.norm(bound, axis=1)
        self.turn = np.linalg.norm(turn, axis=(1, 2))
        self.bend = np.abs(mix).T @ self.norm[1:] / 2

    def _columns(self) -> None:
        """How far Phi G is from orthonormal columns."""
        e, mix = self.given.by_z, self.given.mix
        rows = mix.T @ e.at.value[1:]
        k = len(rows)
        self.skew = float(np.linalg.norm(rows @ rows.T - np.eye(k))) + 4 * k * self.eps
        self.skew_by_z = float(np.linalg.norm(np.tensordot(mix.T, e.at.slope[1:], axes=1)))
        self.skew_by_z2 = float(np.linalg.norm(np.abs(mix).T @ self.norm[1:])) / 2

    def hopeless(self) -> float:
        """A radius for which no growth is left."""
        n, free = len(self.lengths), len(self.given.mix)
        first = np.linalg.norm(self.quadratic[1 : 1 + n]) / 2
        second = np.sqrt(np.linalg.norm(self.third[:free])) / 4
        return 1 / max(float(first + second), self.skew_by_z, 1e-300)

    def proved(self, z: float) -> tuple[float, float]:
        """For |z| up to a radius: growth by |z|^2, and a lower bound; both 0 if none is left."""
        e, n = self.given.by_z, len(self.lengths)
        kappa, (q, rho, omega) = self.kappa(z), self._sizes(z)
        if not kappa < 1:
            return 0.0, 0.0
        error, (c0, c1) = self._error(z, q), self.tested(z)
        tangential = np.linalg.norm(self.quadratic[1 : 1 + n]) + np.linalg.norm(error[1 : 1 + n])
        growth = e.slope @ e.slope.T + 2 * self.quadratic[0] + self._held(z)
        slack = self.eps * (np.linalg.norm(growth) + self.slope**2 + self.residual * q)
        left = float(
            np.linalg.eigvalsh(growth)[0]
            - slack - 2 * error[0] - 2 * z * tangential - MOST * (c1 / (1 - kappa)) ** 2
        )  # fmt: skip
        if not left >= LEAST:
            return 0.0, 0.0
        lost = self._gradient() ** 2 / (4 * left) + REST * (c0 / (1 - kappa)) ** 2 + 2 * omega * rho
        return left, max(self.residual**2 * (1 - self.eps) - lost, 0.0)

    def kappa(self, z: float) -> float:
        """How far the singular values of Phi G may be below one."""
        of_columns = self.skew + z * (self.skew_by_z + z * self.skew_by_z2)
        return of_columns + float(np.linalg.norm(np.abs(self.given.mix).T @ self._missed(z)[1:]))

    def _sizes(self, z: float) -> tuple[float, float, float]:
        """|q| / |z|^2, |rho|, and how much of rho is missed."""
        around = self.given.around
        q = self.rest + z * (self.rest_by_z + z * self.rest_by_z2)
        factors = np.abs(around.factors)
        # the target is not longer than what is taken off it and what is left
        target = self.residual + factors @ np.linalg.norm(around.at.value, axis=1)
        factors = factors + z * (self.follow + z * self.bent)
        omega = float(factors @ self._missed(z) + self.eps * target)
        return q, self.residual + z * (self.slope + z * q), omega

    def _error(self, z: float, q: float) -> FloatArray:
        """(D,) |v . q - its quadratic form| / |z|^2."""
        error = self.error + z * (self.error_by_z + z * self.error_by_z2)
        return np.asarray(error + self.eps * (q + self.cancelled) * self.sizes)

    def _missed(self, z: float) -> FloatArray:
        """(1 + K,) norms of what is wrong with columns, by rounding or from the start."""
        at = self.given.around.at
        slopes = np.linalg.norm(at.slope, axis=2) @ self.lengths
        size = np.linalg.norm(at.value, axis=1) + z * (slopes + z * self.norm)
        return np.asarray(self.missed[0] + z * self.missed[1] @ self.lengths + self.eps * size)

    def tested(self, z: float) -> tuple[float, float]:
        """c0 and c1: psi . rho is at most c0 + c1 |z|, of all tests together."""
        (q, rho, omega), free = self._sizes(z), len(self.given.mix)
        error, missed = self._error(z, q), self._missed(z)[1:]
        psi = self.sizes[self.rows] + z * (self.turn + z * self.bend)
        doubt = psi * (omega + self.eps * rho) + np.abs(self.given.tests).T @ missed * (rho + omega)
        along = np.linalg.norm(error[self.turns].reshape(len(psi), len(self.lengths)), axis=1)
        second = self.second + error[self.rows] + z * (self.third + along + z * self.bend * q)
        second = second + self.eps * (self.turn * self.slope + self.bend * self.residual)
        first = self.first + self.eps * (psi * self.slope + self.turn * self.residual) + z * second
        c0 = float(np.linalg.norm(np.abs(self.at[:free]) + doubt[:free]))
        c1 = float(np.linalg.norm(first[:free]))
        favoured, weight = self.at[free:] + doubt[free:], np.linalg.norm(self.given.mix, axis=1)
        weight = weight[self.given.around.ends.sign != 0]
        gain = np.maximum(np.minimum(favoured, 0.0) / z + first[free:], 0.0)
        return c0 + float(weight @ np.maximum(favoured, 0.0)), c1 + float(weight @ gain)

    def _held(self, z: float) -> FloatArray:
        """What the gradient by held theta adds: g delta >= g delta^2 / its largest delta."""
        held, scale = self.given.held, self.given.scale
        if not held.any():
            return np.zeros_like(scale)
        rate = np.where(held, np.abs(self.given.around.gradient), 0.0) / (z * self.lengths)
        return np.asarray(scale.T @ (rate[:, None] * scale))

    def _gradient(self) -> float:
        """Norm of the rest of the gradient, by z."""
        given, around = self.given, self.given.around
        free = given.scale.T @ np.where(given.held, 0.0, around.gradient)
        size = np.abs(around.factors) @ np.linalg.norm(around.at.slope, axis=2)
        size = size + np.linalg.norm(around.at.value, axis=1) @ np.abs(around.follow)
        rounding = 4 * self.eps * self.residual * float(size @ self.lengths)
        return float(np.linalg.norm(free)) + rounding
