"""Rival models in one design problem: how far apart their predictions are, as information.

Let model i be right and j be fitted again to what an experiment gives. With their difference D over
the samples, the errors' covariance V, and j's prediction S C S' as uncertain as the measurements so
far leave it, the fit of j becomes worse by

    D' (V + S C S')^-1 D,

the quadratic form of Box & Hill (Technometrics 9 (1967) 57) and of Buzzi-Ferraris & Forzatti (Chem.
Eng. Sci. 38 (1983) 225; 39 (1984) 81), where both models are uncertain and so are two measurements;
of Hunter & Reiner (Technometrics 7 (1965) 307) with C = 0. By the matrix inversion lemma it is the
Schur complement of C^-1 in the information matrix of [D, S]: the information about a factor of D
beside j's unknowns as nuisance. So every pair is a scenario of `DesignSearch` with Ds-optimality,
its samples are chosen with the same proof, and the traces of the two criteria, which look at
uncertainty and not at differences, are left out of the search.

Where j is not linear between its predictions and those of i, its fit becomes worse by another
number: of two inhibition types by 9, not by 50. A plan reports this number: `RefittedRival`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.planning.design_limits import PlannedLimits
from igpe.planning.design_problem import DesignProblem
from igpe.planning.information import DOptimal, RegularisedCriterion, UnknownSpace, determined
from igpe.planning.planned_model import PlannedSensitivities, PredictedOutputs, with_slopes

KEPT = 2000  # predictions of each rival that are not computed again


class RivalPair(NamedTuple):
    """Two rivals whose predictions are compared.

    right, rival  their names
    refitted      which of them are uncertain
    errors        how many measurement errors are in their difference
    share         of the pair in the criterion
    """

    right: str
    rival: str
    refitted: tuple[str, ...]
    errors: float = 1.0
    share: float = 1.0


class Discriminating:
    """Base of criteria for experiments that distinguish rival models."""

    meaning: str

    def pairs(self, probabilities: Mapping[str, float]) -> list[RivalPair]:
        """Return the pairs of rivals that the criterion compares, for these probabilities."""
        raise NotImplementedError


@dataclass(frozen=True)
class HunterReiner(Discriminating):
    """Sum of squared differences between the predictions, with parameters treated as known."""

    meaning = "squared differences between the predictions"

    def pairs(self, probabilities: Mapping[str, float]) -> list[RivalPair]:
        """See `Discriminating`."""
        return [RivalPair(i, j, ()) for i, j in combinations(probabilities, 2)]


@dataclass(frozen=True)
class BuzziFerraris(Discriminating):
    """Sum of squared differences between the predictions, each divided by the sum of the variances
    of the measurements and of the predictions.
    """

    meaning = "squared differences, divided by the variances of both predictions"

    def pairs(self, probabilities: Mapping[str, float]) -> list[RivalPair]:
        """See `Discriminating`."""
        return [RivalPair(i, j, (i, j), 2.0) for i, j in combinations(probabilities, 2)]


@dataclass(frozen=True)
class BoxHill(Discriminating):
    """Expected increase in a wrong model's sum of squares if another model is right.

    The criterion is a mean over all pairs of a right and a wrong model. The weight of a pair is the
    product of the probabilities of the two models.
    """

    meaning = (
        "increase in the wrong model's sum of squares, weighted by the probabilities of the models"
    )

    def pairs(self, probabilities: Mapping[str, float]) -> list[RivalPair]:
        """See `Discriminating`."""
        both = list(permutations(probabilities, 2))
        shares = [probabilities[i] * probabilities[j] for i, j in both]
        pairs = zip(both, shares, strict=True)
        return [RivalPair(i, j, (j,), 1.0, share / max(shares)) for (i, j), share in pairs]


class UnknownBlock(NamedTuple):
    """Places of the unknowns of any rival, the same for all pairs.

    shared, others, own  the largest numbers: of unknowns that planned experiments share, of others
                         of the measured experiments, and of those that each planned one has
    experiments          how many are planned
    """

    shared: int
    others: int
    own: int
    experiments: int

    @property
    def width(self) -> int:
        """All places."""
        return self.shared + self.others + self.own * self.experiments

    def places(self) -> IntArray:
        """(experiments, shared + own): of each planned experiment."""
        first = self.shared + self.others
        begins = first + self.own * np.arange(self.experiments)
        own = [range(begin, begin + self.own) for begin in begins]
        return np.array([[*range(self.shared), *one] for one in own], dtype=np.intp)

    def all_columns(self, posed: DesignProblem) -> IntArray:
        """The place of each unknown of a rival's space."""
        n_shared, n_own = len(posed.plan.shared), len(posed.plan.own)
        shared = posed.space.places[0][:n_shared]
        result = np.zeros(len(posed.space.names), dtype=np.intp)
        box = np.arange(len(posed.full.box))
        others = box[~np.isin(box, shared)]
        result[shared] = np.arange(n_shared)
        result[others] = self.shared + np.arange(len(others))
        for places, own in zip(posed.space.places, self.places(), strict=True):
            result[places[n_shared:]] = own[self.shared : self.shared + n_own]
        return result

    def row_columns(self, posed: DesignProblem) -> IntArray:
        """Places of the sensitivities of one planned experiment."""
        own = self.shared + np.arange(len(posed.plan.own))
        return np.array([*range(len(posed.plan.shared)), *own], dtype=np.intp)


class _Predictions:
    """One rival's predictions, each computed once."""

    def __init__(self, sensitivities: PlannedSensitivities) -> None:
        self._sensitivities = sensitivities
        self._known: dict[bytes, PredictedOutputs | None] = {}

    def at(self, design: FloatArray) -> PredictedOutputs | None:
        """Predictions at a design (n_choices,); None where it cannot be integrated."""
        key = design.tobytes()
        if key not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = self._sensitivities.predicted(design)
        return self._known[key]


@dataclass(frozen=True)
class PairRows:
    """Rows [D, S] of one pair, by standard deviations."""

    pair: RivalPair
    right: _Predictions
    rival: _Predictions
    blocks: Sequence[tuple[_Predictions, IntArray]]
    width: int
    bounds: tuple[FloatArray, FloatArray]

    def rows(self, design: FloatArray) -> FloatArray | None:
        """See `PlannedSensitivities`; one row for each measurement."""
        one, other = self.right.at(design), self.rival.at(design)
        if one is None or other is None:
            return None
        variance = self.pair.errors * (one.sigma**2 + other.sigma**2) / 2
        result = np.zeros((*one.value.shape, 1, 1 + len(self.blocks) * self.width))
        result[..., 0, 0] = one.value - other.value
        for k, (predictions, columns) in enumerate(self.blocks):
            part = predictions.at(design)
            assert part is not None, "both rivals were integrated above"
            result[..., 0, 1 + k * self.width + columns] = part.sensitivities
        result /= np.sqrt(variance)[..., None, None]
        return result if np.isfinite(result).all() else None

    def rows_and_slopes(self, design: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """See `PlannedSensitivities`."""
        return with_slopes(self.rows, design, self.bounds)


def variance_of(posed: DesignProblem) -> float:
    """The variance of a measurement of weight 1, estimated from the existing experiments."""
    return posed.existing.at(posed.values, posed.sizes).variance


@dataclass(frozen=True)
class RivalDesign:
    """What `DesignSearch` needs to distinguish rivals; its scenarios are pairs.

    posed  rival -> its design problem, all with the same choices;  pairs: those that count
    """

    posed: Mapping[str, DesignProblem]
    pairs: Sequence[RivalPair]

    @property
    def first(self) -> DesignProblem:
        """The first rival's problem, whose settings hold for all."""
        return next(iter(self.posed.values()))

    @property
    def refined(self) -> "RivalDesign":
        """The design with all allowed sampling times."""
        return replace(self, posed={n: p.refined for n, p in self.posed.items()})

    def limits(self, pairs: Sequence[RivalPair]) -> list[PlannedLimits]:
        """The constraints of the models of these pairs, in a planned experiment."""
        names = dict.fromkeys(n for pair in pairs for n in (pair.right, pair.rival))
        return [one for n in names for one in self.posed[n].limits([{}])]

    @cached_property
    def block(self) -> UnknownBlock:
        """Places for the unknowns of one rival."""
        every = list(self.posed.values())
        return UnknownBlock(
            max(len(p.plan.shared) for p in every),
            max(len(p.full.box) - len(p.plan.shared) for p in every),
            max(len(p.plan.own) for p in every),
            len(self.first.space.places),
        )

    @cached_property
    def space(self) -> UnknownSpace:
        """The factor of the difference, then a block for each rival that is fitted again."""
        count, width = len(self.pairs[0].refitted), self.block.width
        names = ("difference", *(f"{b}.{i}" for b in range(count) for i in range(width)))
        inner = self.block.places()
        places = [1 + b * width + inner for b in range(count)]
        first = np.zeros((len(inner), 1), dtype=np.intp)
        return UnknownSpace(
            names, np.ones(len(names)), np.hstack([first, *places]), np.zeros(1, dtype=np.intp)
        )

    @property
    def phi(self) -> RegularisedCriterion:
        """Ds-optimality for the factor of the difference, the sum of all pairs."""
        shares = tuple(pair.share for pair in self.pairs)
        return RegularisedCriterion(DOptimal(), self.space.interest, shares)

    @cached_property
    def _predictions(self) -> dict[str, _Predictions]:
        return {n: _Predictions(p.outputs(p.values)) for n, p in self.posed.items()}

    def predicted(self, name: str, numbers: FloatArray) -> PredictedOutputs | None:
        """Predictions of a rival for a planned experiment; None where it cannot be integrated."""
        return self._predictions[name].at(numbers)

    @cached_property
    def _known(self) -> dict[str, FloatArray]:
        """Rival -> (m, width) rows of what is known of its unknowns.

        In units of the noise that the first rival leaves, as that of new measurements, where sigma
        is unknown: worse rivals leave more, but one of the rivals is right.
        """
        result, variance = {}, variance_of(self.first)
        for name, posed in self.posed.items():
            rows = posed.known(posed.values) * np.sqrt(variance_of(posed) / variance)
            result[name] = np.zeros((len(rows), self.block.width))
            result[name][:, self.block.all_columns(posed)] = rows
        return result

    def outputs(self, pair: RivalPair) -> PairRows:
        """Rows of a planned experiment."""
        every, inner = self._predictions, self.block.shared + self.block.own
        blocks = [(every[n], self.block.row_columns(self.posed[n])) for n in pair.refitted]
        plan = self.first.plan
        bounds = plan.lower, plan.lower + plan.width
        return PairRows(pair, every[pair.right], every[pair.rival], blocks, inner, bounds)

    def known(self, pair: RivalPair) -> FloatArray:
        """(m, n) rows of what is known before."""
        width, n = self.block.width, len(self.space.names)
        parts = []
        for b, name in enumerate(pair.refitted):
            rows = self._known[name]
            parts.append(np.zeros((len(rows), n)))
            parts[-1][:, 1 + b * width : 1 + (b + 1) * width] = rows
        return np.vstack(parts) if parts else np.zeros((0, n))

    def errors(self, name: str, sensitivities: FloatArray, experiment: int) -> FloatArray:
        """(n_times, n_measured) standard errors of what a rival predicts for an experiment."""
        posed = self.posed[name]
        covariance = determined(posed.known(posed.values)).covariance
        place = posed.space.places[experiment]
        own = covariance[place[:, None], place]
        lost = ~np.isfinite(np.diag(own))
        own = np.where(lost[:, None] | lost, 0.0, own)
        variance = np.einsum("tmp,pq,tmq->tm", sensitivities, own, sensitivities)
        moved = np.abs(sensitivities[..., lost]).max(axis=-1, initial=0.0) > 0
        return np.sqrt(np.where(moved, np.inf, np.maximum(variance, 0.0)))
