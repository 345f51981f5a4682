"""Searches of multiple shooting that match the segments exactly: `MultipleShooting(search=...)`."""

from igpe.numerics.least_squares.backward_lifting import BackwardLifting

__all__ = ["BackwardLifting"]
