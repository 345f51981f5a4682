"""Many independent items of work: in this process, in worker processes, or on a cluster.

Uses `core`. Outcomes are stored at once; whatever is added here must survive a killed worker.
"""
