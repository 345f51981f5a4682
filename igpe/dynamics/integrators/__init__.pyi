from .automatic import Automatic as Automatic
from .batch.automatic_intervals import AutomaticIntervals as AutomaticIntervals
from .batch.local_linearization import LocalLinearization as LocalLinearization
from .batch.lock_step import LockStep as LockStep
from .batch.runge_kutta import RungeKutta as RungeKutta
from .dormand_prince import DormandPrince as DormandPrince
from .lsoda import Lsoda as Lsoda
from .sundials import Sundials as Sundials
