"""Steady-state starts: the state at which equations come to rest, and what they conserve."""
