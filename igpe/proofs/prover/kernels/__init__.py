"""Compiled enclosures: interval arithmetic, Mueller bounds and Taylor models over tapes.

Every module here is compiled by Numba. All sources of this folder together decide whether compiled
functions on disk are up to date, so that Python code which changes often stays outside.
"""
