"""Sections of `benchmarks/robust.py`, one module each."""
