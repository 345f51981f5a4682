"""An Estimate as plain values for JSON, and back."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from igpe.core.estimates import Estimate, Horizon
from igpe.core.json_form import plain, restored
from igpe.core.status import Status


def estimate_row(estimate: Estimate) -> dict[str, Any]:
    """All fields, those of the trail and elsewhere in the same form, and the equivalent work.

    Iterates, which are recorded to be drawn, are left out.
    """
    names = [f.name for f in fields(estimate) if f.name != "iterates"]
    row = {name: plain(getattr(estimate, name)) for name in names}
    for name in ("trail", "elsewhere"):
        row[name] = [estimate_row(one) for one in getattr(estimate, name)]
    row["equivalent_iterations"] = plain(estimate.equivalent_iterations)
    row["equivalent_integrations"] = plain(estimate.equivalent_integrations)
    return row


def estimate_of(row: Mapping[str, Any]) -> Estimate:
    """What `estimate_row` was made from."""
    kind = Horizon if "until" in row else Estimate
    whole = {f.name: restored(row[f.name]) for f in fields(kind) if f.name in row}
    whole["status"], whole["notes"] = Status[row["status"]], tuple(row["notes"])
    whole["reached"] = tuple(whole["reached"])
    for name in ("trail", "elsewhere"):
        whole[name] = tuple(estimate_of(one) for one in row[name])
    return kind(**whole)
