"""igpe: globally right parameters of dynamic models, from measurements.

problem = igpe.Problem(model, parameters=["k1", "k2"], experiments=[igpe.Experiment(data, ...)])
print(igpe.check(problem))        # what can be estimated from these measurements
result = igpe.estimate(problem)   # the five steps
print(result)
"""

import lazy_loader

# `__init__.pyi` lists the public names. They are loaded on first use: `igpe --help` must not wait
# for Pyomo and CasADi.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
