"""The parts of the pipeline: settings, candidates, the summary, comparisons and campaigns.

Uses all rooms but `formats` and `cli`.
"""
