from .automatic import Automatic as Automatic
from .in_space import FiniteDifference as FiniteDifference
from .local_linearization import LocalLinearization as LocalLinearization
from .runge_kutta import RungeKutta as RungeKutta
from .sundials import Sundials as Sundials
