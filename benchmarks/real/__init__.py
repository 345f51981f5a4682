"""Real data sets: a JSON file each with equations, bounds and sources; data in `data/real`."""
