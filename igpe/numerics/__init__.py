"""Arrays only: least squares, statistics, and the one rule of when two optima are the same.

Uses `core`; knows neither models nor time. A new local search is one file in `least_squares/`
that returns a `Fit`.
"""
