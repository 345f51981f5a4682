"""Problems that others have published, and what they say of them."""

PAPER = (
    "consecutive",
    "reversible",
    "gas_oil_cracking",
    "bellman",
    "methanol",
    "lotka_volterra",
)
"""Test problems 1 to 6 of Michalik, Chachuat & Marquardt (2009, IGPE): files in `models/`."""

PETAB = {
    "Bertozzi": 158.864,
    "Boehm": 138.2220,
    "Borghans": -83.3237,
    "Bruno": -46.6882,
    "Elowitz": -63.2028,
    "Fiedler": -58.5839,
    "Fujita": -53.0838,
    "Rahman": 21.153,
}
"""Negative log-likelihood at the nominal parameters (Benchmark-Models-PEtab): `data/petab/`."""
