"""Optimum experimental design: which experiment tells most of the parameters."""
