"""The user's model and data as a `Problem`: models, experiments, inputs, noise, tables.

Uses `core`. Every check of what the user gives is made here, before any computation. A new kind
of measurement error is one class in `problem/noise/`; a new loss one class in `loss.py`.
"""
