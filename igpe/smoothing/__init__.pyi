from .bootstrap import BootstrapErrors as BootstrapErrors
from .gcv_spline import GcvSpline as GcvSpline
from .spline_curve import Interpolation as Interpolation
