from . import plots as plots
