"""Exact power series of experiments at random points of a finite field.

`graph` reduces equations to sums, products, quotients and integrals; `power_series` computes their
coefficients with derivatives, `relations` writes them down as polynomials, `ideal` solves these.
Knows `core` and `equations`, no problem. A new function is one rule in `graph`.
"""
