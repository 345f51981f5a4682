"""Test problems 1 to 6 of Michalik, Chachuat & Marquardt (2009, IGPE): files in `models/`."""

PAPER = (
    "consecutive",
    "reversible",
    "gas_oil_cracking",
    "bellman",
    "methanol",
    "lotka_volterra",
)
