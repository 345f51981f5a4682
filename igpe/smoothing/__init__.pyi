from .gcv_spline import BootstrapErrors as BootstrapErrors
from .gcv_spline import GcvSpline as GcvSpline
from .gcv_spline import Interpolation as Interpolation
