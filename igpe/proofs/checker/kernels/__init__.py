"""Compiled kernels of the checker, for one box each: intervals, polynomials, steps, integration.

They share nothing with the prover's. Without Numba they are plain Python functions, and slow.
"""
