"""Objective and search without igpe: LSODA and least squares of SciPy, formulas by Numba."""

import time
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
from scipy.integrate import odeint
from scipy.optimize import least_squares

from real.cases import Case

TOLERANCES = {"rtol": 1e-9, "atol": 1e-12, "mxstep": 5000}
SHIFT = 50.0  # keeps 2 log(sigma) + SHIFT positive under the root
DRAWN = 30  # points for each local search
HUGE = 1e5


def function(head: str, inner: list[tuple[str, str]], result: list[str]) -> Any:
    """A compiled function of lines `name = formula` that returns an array."""
    lines = [f"def made({head}):", *(f"    {n} = {f}" for n, f in inner)]
    text = "\n".join([*lines, f"    return np.array([{', '.join(result)}])"])
    names: dict[str, Any] = {
        "np": np,
        **{n: getattr(np, n) for n in ("exp", "log", "log10", "sqrt")},
    }
    exec(text, names)
    return numba.njit(names["made"], error_model="numpy")


class Evaluation:
    """Residuals of a case at its unknowns, which are logarithms where both bounds are positive."""

    def __init__(self, case: Case) -> None:
        self.case, self.names = case, list(case.unknowns)
        bounds = np.array(list(case.unknowns.values()), dtype=float)
        self.log = bounds[:, 0] > 0
        self.lower, self.upper = (self.scaled(b) for b in bounds.T)
        self.condition_names = sorted({n for e in case.tables for n in case.conditions(e)})
        scalars = [*case.bounds, *self.condition_names, *case.inputs]
        own = [(n, f"p[{i}]") for i, n in enumerate(scalars)]
        algebra = list(case.given.get("algebra", {}).items())
        states = [(n, f"y[{i}]") for i, n in enumerate(case.states)]
        self.rates = function(
            "y, t, p", own + states + algebra, [f"1.0*({f})" for f in case.states.values()]
        )
        deviations = case.sigma if isinstance(case.sigma, dict) else {}
        told = [*case.outputs.values(), *(deviations.get(n, "1.0") for n in case.outputs)]
        self.told = function("y, t, p", own + states + algebra, [f"1.0*({f})" for f in told])
        before = list(case.given.get("start_algebra", {}).items())
        begin = [(n, str(f)) for n, f in case.given["start"].items()]
        self.begin = function("p", own + before + begin, [f"1.0*{n}" for n in case.states])

    def scaled(self, x: np.ndarray) -> np.ndarray:
        """Values (n,) on the scale of the search."""
        return np.where(self.log, np.log(np.where(self.log, x, 1.0)), x)

    def plain(self, z: np.ndarray) -> np.ndarray:
        """The way back."""
        return np.where(self.log, np.exp(np.where(self.log, z, 0.0)), z)

    def parameters(self, x: np.ndarray, experiment: str) -> np.ndarray:
        """What the compiled functions take as p, inputs being zero."""
        values = dict(zip(self.names, x, strict=True))
        own = {n: values.get(n, values.get(f"{n}@{experiment}")) for n in self.case.bounds}
        held = self.case.conditions(experiment)
        roles = [
            own.get(v, v) if isinstance(v := held.get(n, 0.0), str) else v
            for n in self.condition_names
        ]
        return np.array([*own.values(), *roles, *[0.0] * len(self.case.inputs)], dtype=float)

    def trajectory(self, p: np.ndarray, times: np.ndarray) -> np.ndarray | None:
        """States (times, n); the first time is 0."""
        y, case = self.begin(p), self.case
        if not case.inputs:
            return self._piece(y, times, p)
        table = case.input_table(case.inputs[0])
        breaks, found = table["time"].to_numpy(), {0.0: y}
        for k, (a, value) in enumerate(table.to_numpy()):
            b = min(breaks[k + 1] if k + 1 < len(breaks) else np.inf, times[-1])
            if b <= a:
                break
            asked = np.array([a, *times[(times > a) & (times < b)], b])
            piece = self._piece(y, asked, np.array([*p[:-1], value]))
            if piece is None:
                return None
            found |= dict(zip(asked.tolist(), piece, strict=True))
            y = piece[-1]
        return np.array([found[t] for t in times.tolist()])

    def _piece(self, y: np.ndarray, times: np.ndarray, p: np.ndarray) -> np.ndarray | None:
        done, note = odeint(self.rates, y, times, args=(p,), full_output=True, **TOLERANCES)
        good = note["message"] == "Integration successful." and np.isfinite(done).all()
        return done if good else None

    def residuals(self, z: np.ndarray) -> np.ndarray:
        """Weighted residuals, and the roots of 2 log(sigma) + SHIFT where it is estimated."""
        x, parts = self.plain(z), []
        for experiment, rows in self.case.tables.items():
            outputs = [n for n in self.case.outputs if n in rows]
            p = self.parameters(x, experiment)
            moments = np.unique(np.concatenate([[0.0], rows["time"]]))
            y = self.trajectory(p, moments)
            where = np.searchsorted(moments, rows["time"].to_numpy())
            for name in outputs:
                parts += self._of_output(name, rows, None if y is None else y[where], p)
        return np.nan_to_num(np.clip(np.concatenate(parts), -HUGE, HUGE), nan=HUGE)

    def _of_output(
        self, name: str, rows: Any, y: np.ndarray | None, p: np.ndarray
    ) -> list[np.ndarray]:
        measured, case = rows[name].to_numpy(), self.case
        seen, estimated = ~np.isnan(measured), isinstance(case.sigma, dict)
        if y is None:
            return [np.full(seen.sum() * (1 + estimated), HUGE)]
        k, times = list(case.outputs).index(name), rows["time"].to_numpy()
        with np.errstate(all="ignore"):
            told = np.array([self.told(s, t, p) for s, t in zip(y, times, strict=True)])[seen]
            predicted = told[:, k]
            sigma = told[:, k + len(case.outputs)]
            if case.sigma == "column":
                sigma = rows[f"sd_{name}"].to_numpy()[seen]
            found = [(predicted - measured[seen]) / sigma]
            return [*found, np.sqrt(2 * np.log(sigma) + SHIFT)] if estimated else found

    def objective(self, z: np.ndarray) -> float:
        """Weighted sum of squares, or -2 log likelihood without its constant."""
        r = self.residuals(z)
        if not isinstance(self.case.sigma, dict):
            return float(r @ r)
        return float(r @ r) - SHIFT * len(r) / 2

    def local(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """A local optimum."""
        inside = np.clip(z, self.lower + 1e-9, self.upper - 1e-9)
        how = {"bounds": (self.lower, self.upper), "diff_step": 1e-6, "max_nfev": 150}
        done = least_squares(self.residuals, inside, x_scale="jac", **how)
        return self.objective(done.x), done.x


def starts(known: Evaluation, seed: int) -> Iterator[np.ndarray]:
    """The published values first, then the best of DRAWN random points, again and again."""
    if published := known.case.given.get("published"):
        yield known.scaled(np.array([published[n] for n in known.names]))
    rng = np.random.default_rng(seed)
    while True:
        drawn = rng.uniform(known.lower, known.upper, (DRAWN, len(known.names)))
        yield min(drawn, key=known.objective)


def search(case: Case, seconds: float, seed: int = 0) -> dict[str, Any]:
    """The best of all local searches that begin within so many seconds of processor time."""
    known = Evaluation(case)
    began, best, count, reached = time.process_time(), (np.inf, known.lower), 0, []
    for start in starts(known, seed):
        found = known.local(start)
        reached.append(found[0])
        best = min(best, found, key=lambda x: x[0])
        count += 1
        if time.process_time() - began > seconds:
            break
    values = dict(zip(known.names, known.plain(best[1]).tolist(), strict=True))
    hits = sum(r < best[0] + max(0.01 * abs(best[0]), 0.1) for r in reached)
    return {"objective": best[0], "values": values, "searches": count, "reached": hits}
