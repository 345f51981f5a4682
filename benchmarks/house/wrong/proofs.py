"""Proofs and their checker saying more than is proved."""

import math
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from house.planting import around, fault, given, method, public


def _read(certificate: Any) -> Any:
    """The certificate as an object; None if it cannot be read."""
    kind = public("DynamicCertificate")
    if isinstance(certificate, kind):
        return certificate
    try:
        return kind.from_json(certificate)
    except public("IgpeError"):
        return None


@fault("test_verify test_mutations")
def bound_checked_too_low() -> None:
    """The checker proves a bound 1 % lower than the one that it confirms."""

    def wrong(right: Any, certificate: Any, *arguments: Any, **named: Any) -> Any:
        read = _read(certificate)
        if read is None:
            return right(certificate, *arguments, **named)
        found = right(replace(read, lower_bound=0.99 * read.lower_bound), *arguments, **named)
        return replace(found, lower_bound=read.lower_bound)

    around("verify", wrong)


@fault("test_verify test_mutations")
def box_not_compared() -> None:
    """The checker accepts a certificate about another box than the problem's."""

    def wrong(right: Any, certificate: Any, problem: Any, *arguments: Any, **named: Any) -> Any:
        read, other = _read(certificate), copy(problem)
        if read is not None and read.unknowns == problem.box.names == problem.unknowns.names:
            low, high = np.array(read.lower), np.array(read.upper)
            other.unknowns = replace(problem.unknowns, lower=low, upper=high)
        return right(certificate, other, *arguments, **named)

    around("verify", wrong)


@fault("test_edges test_certify test_result")
def not_a_number_called_proved() -> None:
    """A bound that is not a number is called proved."""

    def wrong(right: Any, certificate: Any) -> Any:
        lost = math.isnan(certificate.lower_bound)
        return right(
            replace(certificate, lower_bound=certificate.objective) if lost else certificate
        )

    method("DynamicCertificate", "sentence", wrong)


@fault("test_edges test_certify")
def open_boxes_called_closed() -> None:
    """A proof that was stopped counts as closed if it has a bound."""
    method("DynamicCertificate", "closed", lambda right, c: c.lower_bound > 0)


@fault("test_certify")
def wider_gap_than_asked_for() -> None:
    """A proof ends at a gap of 10 %, whichever is asked for."""
    around("certify", given(gap=lambda _: 0.1))
