"""Proofs and their checker saying more than is proved."""

import json
import math
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from house.planting import around, fault, given, method


def _stored(certificate: Any) -> dict[str, Any] | None:
    """The certificate as its JSON form; None if it cannot be read."""
    if hasattr(certificate, "to_json"):
        certificate = certificate.to_json()
    try:
        if isinstance(certificate, str | Path) and not str(certificate).startswith("{"):
            certificate = Path(certificate).read_text(encoding="utf-8")
        stored = json.loads(certificate) if isinstance(certificate, str) else dict(certificate)
        return stored if {"unknowns", "lower", "upper", "lower_bound"} <= set(stored) else None
    except (OSError, TypeError, ValueError):
        return None


@fault("test_verify test_certify")
def bound_checked_too_low() -> None:
    """The checker proves a bound 1 % lower than the one that it confirms."""

    def wrong(right: Any, certificate: Any, *arguments: Any, **named: Any) -> Any:
        stored = _stored(certificate)
        if stored is None or not isinstance(stored["lower_bound"], float):
            return right(certificate, *arguments, **named)
        bound = stored["lower_bound"]
        found = right(stored | {"lower_bound": 0.99 * bound}, *arguments, **named)
        return replace(found, lower_bound=bound)

    around("verify", wrong)


@fault("test_verify")
def box_not_compared() -> None:
    """The checker accepts a certificate about another box than the problem's."""

    def wrong(right: Any, certificate: Any, problem: Any, *arguments: Any, **named: Any) -> Any:
        stored, other = _stored(certificate), copy(problem)
        names = problem.box.names
        if stored is not None and tuple(stored["unknowns"]) == names == problem.unknowns.names:
            low, high = np.array(stored["lower"]), np.array(stored["upper"])
            other.unknowns = replace(problem.unknowns, lower=low, upper=high)
        return right(certificate, other, *arguments, **named)

    around("verify", wrong)


@fault("test_other_optima")
def not_a_number_called_proved() -> None:
    """A bound that is not a number is called proved."""

    def wrong(right: Any, certificate: Any) -> Any:
        lost = math.isnan(certificate.lower_bound)
        return right(
            replace(certificate, lower_bound=certificate.objective) if lost else certificate
        )

    method("DynamicCertificate", "sentence", wrong)


@fault("test_certify test_edges")
def open_boxes_called_closed() -> None:
    """A proof that was stopped counts as closed if it has a bound."""
    method("DynamicCertificate", "closed", lambda right, c: c.lower_bound > 0)


@fault("test_certify")
def wider_gap_than_asked_for() -> None:
    """A proof ends at a gap of 10 %, whichever is asked for."""
    around("certify", given(gap=lambda _: 0.1))
