"""A method as a function of the start."""

import lotka_volterra_iss

import igpe
from igpe.dynamics.shooting.base import from_many_starts


class Told:
    """Keeps the profiles it is prepared with."""

    def prepare(self, problem, profiles=()):
        self.profiles = profiles
        return igpe.SingleShooting().prepare(problem)


def test_profiles_reach_a_method_that_is_prepared_once():
    method, profiles = Told(), (lambda name, times: times,)
    search = from_many_starts(method, lotka_volterra_iss.problem(), profiles)
    assert method.profiles is profiles
    assert search(lotka_volterra_iss.TRUTH).objective < 20


def test_profiles_move_the_nodes_of_multiple_shooting():
    asked = []

    def profile(name, times):
        asked.append(name)

    from_many_starts(igpe.MultipleShooting(), lotka_volterra_iss.problem(), (profile,))
    assert set(asked) == {"y1", "y2"}
