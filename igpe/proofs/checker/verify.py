"""The checker: is a certificate's claim a theorem?

1. the tree's leaves cover the box (exact comparison);
2. the sum of squares at its parameters is not above its objective (validated integration);
3. on every leaf and everything a contraction cut off it is not below its lower bound (likewise).
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from igpe.core.errors import ProblemError
from igpe.problem.problem import Problem
from igpe.proofs.checker.confirm import Claims, Confirmed, confirm
from igpe.proofs.checker.course import Course, courses
from igpe.proofs.checker.rows import Effort
from igpe.proofs.checker.tree import Tree, read_tree
from igpe.proofs.checker.value import value_at
from igpe.proofs.checker.verified import Region, Verdict, Verified

USUAL = Effort()
SHOWN = 1000  # regions at most that an answer lists


def verify(
    certificate: Any, problem: Problem, seconds: float = 600.0, effort: Effort = USUAL
) -> Verified:
    """Prove a certificate of global optimality again, by other code than found it.

    The translation of the model into expressions is the same (`igpe.equations`); arithmetic,
    integration and bounds are others.

    certificate  of `igpe.certify`, its JSON text, or the path of its file
    problem      it is about
    seconds      after which the rest is told as not confirmed
    effort       of the integration; no answer is wrong for it, but more or less is confirmed
    raises       DataError if it is no certificate, ProblemError if it is one of another problem,
                 Unsupported if the problem has parts that the checker does not know
    """
    begin = time.monotonic()
    tree = read_tree(certificate)
    _require_same(tree, problem)
    given = courses(problem)
    objective = value_at(given, np.array(tree.point), begin + seconds)
    check = _Check(tree, given, objective, begin, begin + seconds)
    for found in (check.of_cover(), check.of_point()):
        if found is not None:  # an answer that is not VERIFIED is false
            return found
    return check.of_leaves(seconds, effort)


def _require_same(tree: Tree, problem: Problem) -> None:
    if tree.unknowns != problem.box.names:
        raise ProblemError(
            f"The certificate is about the unknowns {', '.join(tree.unknowns)}, the problem has "
            f"{', '.join(problem.box.names)}; give the problem that was certified."
        )
    lower, upper = tuple(problem.box.lower.tolist()), tuple(problem.box.upper.tolist())
    if (tree.low, tree.high) != (lower, upper):
        raise ProblemError(
            f"The certificate is about the box {list(zip(tree.low, tree.high, strict=True))}, the "
            f"problem has {list(zip(lower, upper, strict=True))}; give the problem that was "
            "certified."
        )


class _Check:
    """One certificate being checked."""

    def __init__(
        self,
        tree: Tree,
        given: tuple[Course, ...],
        objective: tuple[float, float],
        *times: float,
    ) -> None:
        self.tree, self.given, self.objective = tree, given, objective
        self.begin, self.end = times

    def of_cover(self) -> Verified | None:
        """Refuted if the tree has a hole."""
        nodes = self.tree.nodes
        found = [
            self._region(nodes[k].low, nodes[k].high, f"node {k} of the tree is wrong, {why}")
            for k, why in self.tree.faults()
        ]
        return self._answer(Verdict.REFUTED, found, 0.0) if found else None

    def of_point(self) -> Verified | None:
        """Refuted, or not confirmed, if the parameters are not as good as told."""
        (low, high), tree, p = self.objective, self.tree, self.tree.point
        inside = all(a <= x <= b for a, x, b in zip(tree.low, p, tree.high, strict=True))
        if not inside:
            where = self._region(p, p, "the certificate's parameters lie outside its box")
        elif low > tree.objective:
            told = f"the sum of squares of its parameters is {low:.9g}, not {tree.objective:.9g}"
            where = self._region(p, p, told)
        elif high < tree.lower_bound:
            told = f"its parameters have a sum of squares below its bound {tree.lower_bound:.9g}"
            where = self._region(p, p, told)
        elif not (high <= tree.objective) and time.monotonic() < self.end:
            told = f"the sum of squares of its parameters could be enclosed to [{low}, {high}] only"
            return self._answer(Verdict.NOT_CONFIRMED, [self._region(p, p, told)], 0.0)
        else:
            return None
        return self._answer(Verdict.REFUTED, [where], 0.0)

    def of_leaves(self, seconds: float, effort: Effort) -> Verified:
        """Whether the bound holds on all leaves and all that was cut off."""
        claims = self.tree.claims()
        rest = self.end - time.monotonic()
        with np.errstate(all="ignore"):  # what overflows is unbounded, and cut further
            found = confirm(
                self.given, claims, self.tree.lower_bound, replace(effort, end=self.end), rest
            )
        if found.better is not None:
            p = tuple(found.better.tolist())
            told = f"these parameters have a sum of squares below {self.tree.lower_bound:.9g}"
            return self._answer(Verdict.REFUTED, [self._region(p, p, told)], 0.0, claims, found)
        is_shown = not len(found.left) and self.objective[1] <= self.tree.objective
        verdict = Verdict.VERIFIED if is_shown else Verdict.NOT_CONFIRMED
        why = f"no proof within {seconds:g} s that the sum of squares is above the bound"
        pairs = zip(found.left.low[:SHOWN], found.left.high[:SHOWN], strict=True)
        regions = [self._region(tuple(a.tolist()), tuple(b.tolist()), why) for a, b in pairs]
        if not is_shown and not regions:
            regions = [self._region(self.tree.point, self.tree.point, why)]
        return self._answer(verdict, regions, self._share(found.left), claims, found)

    def _share(self, left: Claims) -> float:
        size = np.array(self.tree.high) - np.array(self.tree.low)
        share = np.where(size > 0, (left.high - left.low) / np.where(size > 0, size, 1.0), 1.0)
        return float(np.prod(share, axis=1).sum())

    def _region(self, low: tuple[float, ...], high: tuple[float, ...], why: str) -> Region:
        names = self.tree.unknowns
        return Region(dict(zip(names, low, strict=True)), dict(zip(names, high, strict=True)), why)

    def _answer(
        self,
        verdict: Verdict,
        regions: list[Region],
        volume: float,
        claims: Claims | None = None,
        found: Confirmed | None = None,
    ) -> Verified:
        return Verified(
            verdict=verdict,
            lower_bound=self.tree.lower_bound,
            objective=self.objective,
            regions=tuple(regions),
            volume=volume,
            leaves=0 if claims is None else len(claims),
            subdivided=0 if found is None else found.subdivided,
            boxes=0 if found is None else found.boxes,
            seconds=time.monotonic() - self.begin,
        )
