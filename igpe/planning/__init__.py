"""Optimum experimental design: the next experiment, and what it would say.

Uses `dynamics`, `results`.
"""
