"""Certificates: the prover on the dynamics, and a checker that shares only `equations` with it.

Uses `dynamics`, `results`. Every new operation needs an enclosure in both, each by its own code.
"""
