"""Condensing against the whole problem with its constraints."""

import numpy as np
import pytest
from chain_zoo import Ricker, dense, flat, keeping, point_of, random_chained, space_of

from igpe.numerics.least_squares.chains import condensed
from igpe.numerics.least_squares.proposal import proposal, simplified


@pytest.mark.parametrize("seed", range(5))
def test_the_condensed_step_is_the_uncondensed_one(seed):
    at = random_chained(seed)
    whole = condensed(at)
    step = -np.linalg.lstsq(whole.at.jacobian, whole.at.residual, rcond=None)[0]
    assert flat(whole.move(step)) == pytest.approx(keeping(*dense(at)), rel=1e-8, abs=1e-8)


def test_the_proposal_is_that_step_where_no_bound_is_met():
    at = random_chained(3)
    step = proposal(at, point_of(at, 0), space_of(at))
    assert flat(step.move) == pytest.approx(keeping(*dense(at)), rel=1e-8, abs=1e-8)
    assert len(step.inverse.active) == 0
    assert step.inverse.held == 0


def test_the_same_operator_elsewhere_is_the_uncondensed_one_with_other_residuals():
    at, other = random_chained(1), random_chained(2)
    step = proposal(at, point_of(at, 0), space_of(at))
    _, matrix, _, links = dense(at)
    residual, _, gaps, _ = dense(other)
    known = keeping(residual, matrix, gaps, links)
    owners = [c._replace(owner=o.owner) for c, o in zip(other.chains, at.chains, strict=True)]
    found = simplified(step, other._replace(chains=tuple(owners)), 0.3)
    assert flat(found) == pytest.approx(known, rel=1e-8, abs=1e-8)


def test_at_the_point_itself_the_operator_gives_the_step():
    at = random_chained(4)
    step = proposal(at, point_of(at, 0), space_of(at, lower=-0.05, upper=0.05))
    assert len(step.inverse.active) > 0
    again = simplified(step, at, 0.0)
    assert flat(again) == pytest.approx(flat(step.move), rel=1e-9, abs=1e-9)


def test_the_derivatives_of_the_ricker_chain_against_central_differences():
    ricker = Ricker(noise=0.1)
    point = ricker.start([2.5, 1.2, 0.3])
    _, matrix, _, links = dense(ricker(point))
    both = np.vstack([matrix, links])
    both[:, 2] += both[:, 3]  # the first node is what the unknowns say, whatever stands there
    both[:, 3] = 0.0
    z, h = flat(point), 1e-6
    for i in range(len(z)):
        pair = []
        for sign in (1, -1):
            moved = z.copy()
            moved[i] += sign * h
            there = point._replace(unknowns=moved[:3], nodes=(moved[3:, None],))
            pair.append(np.concatenate([part for part in dense(ricker(there))[::2]]))
        central = (pair[0] - pair[1]) / (2 * h)
        assert both[:, i] == pytest.approx(central, abs=1e-7)
