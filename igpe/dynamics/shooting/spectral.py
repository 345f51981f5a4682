"""Residuals of spectra along trajectories: amounts from the model, the species' spectra eliminated.

Experiments whose species have the same spectra are one block: their times are the rows of one
bilinear mixture (`igpe.numerics.mixtures`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.dynamics.integrators.base import Trajectory
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.mixtures import Mixture, Unmixed, linearised, separated
from igpe.problem.problem import Problem
from igpe.problem.problem_checks import spectral_groups
from igpe.problem.spectra import Spectra


class SpectralMember(NamedTuple):
    """One experiment's share of a block.

    number   of the experiment;  spectra: its own
    rows     (N,) of the spectra's times in the trajectory
    outputs  (n,) of the species in what the model reports
    species  (n,) their places in the block
    unknowns (n_q,) places of the run's unknowns among the problem's
    """

    number: int
    spectra: Spectra
    rows: IntArray
    outputs: IntArray
    species: IntArray
    unknowns: IntArray


@dataclass(frozen=True)
class SpectralBlock:
    """Spectra of one or several experiments with the same spectra of their species.

    species  names, of all members
    mixture  their numbers, in standard deviations, one member after the other
    weight   (N,) of the rows: standard deviation of the first member over their own
    outside  sum of squares that no smooth spectra explain
    """

    species: tuple[str, ...]
    members: tuple[SpectralMember, ...]
    mixture: Mixture
    weight: FloatArray
    outside: float = 0.0

    @property
    def degrees(self) -> int:
        """Numbers less those that eliminating spectra takes; unknowns are not counted."""
        return self.numbers - self.eliminated

    @property
    def numbers(self) -> int:
        """How many were measured."""
        return sum(m.spectra.values.size for m in self.members)

    @property
    def eliminated(self) -> int:
        """How many linear unknowns are eliminated, if none is on a bound."""
        rows, columns = self.mixture.data.shape
        free = int((~self.mixture.is_known).sum()) + self.mixture.extra.shape[1]
        v = self.mixture.varying
        return int(free * columns + v * (rows + columns - free - v))

    def amounts(self, trajectories: Sequence[Trajectory]) -> FloatArray:
        """(N, n) of the species, at the times of all members."""
        rows = []
        for m in self.members:
            own = np.zeros((len(m.rows), len(self.species)))
            values = trajectories[m.number].measured
            own[:, m.species] = values[_consecutive(m.rows)][:, _consecutive(m.outputs)]
            rows.append(own)
        return np.vstack(rows) * self.weight[:, None]

    def slopes(self, trajectories: Sequence[Trajectory], size: int) -> FloatArray:
        """(N, n, size) derivative of the amounts by the problem's unknowns."""
        rows = []
        for m in self.members:
            own = np.zeros((len(m.rows), len(self.species), size))
            by = trajectories[m.number].measured_by_unknown
            by = by[_consecutive(m.rows)][:, _consecutive(m.outputs)]
            places = _consecutive(m.species)
            if isinstance(places, slice):
                own[:, places, _consecutive(m.unknowns)] = by
            else:
                own[:, m.species[:, None], m.unknowns] = by
            rows.append(own)
        return np.vstack(rows) * self.weight[:, None, None]

    def linearised(self, trajectories: Sequence[Trajectory], size: int) -> Linearised:
        """(size,) residuals and (size, size) derivative; the rest of the cost is their offset."""
        amounts, slopes = self.amounts(trajectories), self.slopes(trajectories, size)
        if not (np.isfinite(amounts).all() and np.isfinite(slopes).all()):
            return Linearised(np.full(size, np.nan), np.full((size, size), np.nan))
        return linearised(amounts, slopes, self.mixture).with_rest(self.outside)

    def separated(self, trajectories: Sequence[Trajectory]) -> Unmixed:
        """The spectra at trajectories."""
        return separated(self.amounts(trajectories), self.mixture)

    def at_wavelengths(self, spectra: FloatArray) -> FloatArray:
        """(k, n_wavelengths) spectra of the mixture (k, m), in standard deviations."""
        basis = self.members[0].spectra.basis
        return spectra if basis is None else spectra @ basis.T

    def pure(self, trajectories: Sequence[Trajectory]) -> FloatArray:
        """(n, n_wavelengths) spectra of the species at trajectories, in standard deviations."""
        return self.at_wavelengths(self.separated(trajectories).spectra[: len(self.species)])


def _consecutive(places: IntArray) -> slice | IntArray:
    """The places as a slice if they follow each other: NumPy reads these without a copy."""
    if not len(places) or (np.diff(places) != 1).any():
        return places
    return slice(int(places[0]), int(places[-1]) + 1)


def spectral_blocks(problem: Problem, runs: Sequence[Any]) -> tuple[SpectralBlock, ...]:
    """The blocks of a problem, from its experiments made ready."""
    if not problem.has_spectra:
        return ()
    groups = spectral_groups(problem.experiments)
    return tuple(_block(problem, runs, members) for members in groups)


def _block(problem: Problem, runs: Sequence[Any], numbers: Sequence[int]) -> SpectralBlock:
    every = [problem.experiments[k].spectra for k in numbers]
    spectra = [s for s in every if s is not None]
    species = tuple(dict.fromkeys(n for s in spectra for n in s.absorbing))
    members = []
    for k, own in zip(numbers, spectra, strict=True):
        run, names = runs[k], own.absorbing
        rows = np.searchsorted(run.measurements.times, own.times)
        outputs = np.array([run.measurements.names.index(n) for n in names], dtype=np.intp)
        places = np.array([species.index(n) for n in names], dtype=np.intp)
        members.append(SpectralMember(k, own, rows, outputs, places, run.index))
    first, length = spectra[0], [len(s.times) for s in spectra]
    known = {n: s / first.noise for one in spectra for n, s in one.pure.items()}
    data = np.vstack([s.values / s.noise for s in spectra])
    weight = np.repeat([float(np.median(first.noise / s.noise)) for s in spectra], length)
    basis, outside = first.basis, 0.0
    pure = np.full((len(species), data.shape[1]), np.nan)
    for i, name in enumerate(species):
        if name in known:
            pure[i] = known[name]
    if basis is not None:
        square = float(np.vdot(data, data))
        data = data @ basis
        outside = square - float(np.vdot(data, data))
        pure = pure @ basis
    extra = np.zeros((len(data), first.constant * len(spectra)))
    if first.constant:
        extra[np.arange(len(data)), np.repeat(np.arange(len(spectra)), length)] = weight
    mixture = Mixture(data, pure, extra, first.nonnegative, first.varying)
    return SpectralBlock(species, tuple(members), mixture, weight, outside)
