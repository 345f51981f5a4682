from .fit import plot_correlation as plot_correlation
from .fit import plot_ellipses as plot_ellipses
from .fit import plot_residuals as plot_residuals
from .search import plot_waterfall as plot_waterfall
from .stages import horizon_table as horizon_table
from .stages import plot_film_strip as plot_film_strip
from .stages import plot_gaps as plot_gaps
from .stages import plot_pieces as plot_pieces
