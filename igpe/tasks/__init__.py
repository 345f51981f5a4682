"""Many independent items of work: in this process, in worker processes, or on a cluster.

Uses `core`. Outcomes are kept as they come; what is added here must survive a killed worker.
"""
