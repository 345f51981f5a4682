"""Real data sets: a JSON file for each with its equations, bounds and sources; data in `data/real`."""
