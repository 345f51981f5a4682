"""Measured quantities that are no states: what their equations say of unmeasured states.

An equation h(x, z, y, q, t) = 0 between states x, algebraic variables z and a measured y also holds
for its derivative with respect to time,

    h_x dx/dt + h_z dz/dt + h_y dy/dt + h_t = 0,

and dy/dt is known where y is smoothed. Both go to the reduced system, so that states which only
occur scaled, summed or transformed in what is measured are solved for, and dy/dt is predicted from
the model's equations as the slope of a measured state is.
"""

from dataclasses import replace

import casadi as ca
from scipy.sparse import csr_array

from igpe.equations.incidence import incidence
from igpe.equations.symbols import stack
from igpe.structure.identifiability.posed import PosedEquations, pattern

DERIVATIVE = "derivative of "  # begins the names of the rows


def with_derivatives(posed: PosedEquations) -> PosedEquations:
    """The equations with the derivatives of those that give measured quantities.

    Their rows come last, named "derivative of ...", and so do their unknowns d(y): the derivatives
    of measured expressions and of the algebraic variables in the rows.
    """
    n = posed.n_states
    names = posed.variable_names[2 * n :]
    new = [k for k, name in enumerate(posed.data_names) if name not in posed.variable_names]
    # Columns: algebraic variables, then the measured expressions.
    columns = ca.vertcat(posed.variables[2 * n :], stack(posed.data[k] for k in new))
    names = (*names, *(posed.data_names[k] for k in new))
    rows = _rows(posed, csr_array(incidence(posed.residual, columns)), names)
    if not rows:
        return posed
    moving = stack(ca.SX.sym(f"d({name})") for name in names)
    equations = posed.residual[rows]
    slopes, states = posed.variables[:n], posed.variables[n : 2 * n]
    derived = (
        ca.jtimes(equations, states, slopes)
        + ca.jtimes(equations, columns, moving)
        + ca.jacobian(equations, posed.time)
    )
    residual = ca.vertcat(posed.residual, derived)
    variables = ca.vertcat(posed.variables, moving)
    return replace(
        posed,
        row_names=(*posed.row_names, *(DERIVATIVE + posed.row_names[i] for i in rows)),
        residual=residual,
        variable_names=(*posed.variable_names, *(f"d({name})" for name in names)),
        variables=variables,
        pattern=pattern(residual, variables),
        q_pattern=pattern(residual, posed.q),
    )


def _rows(posed: PosedEquations, algebraic: csr_array, names: tuple[str, ...]) -> list[int]:
    """Equations that give measured quantities, and all that give what these need, in order.

    Only where an unmeasured state is in them: all else follows without derivatives.

    algebraic  (n_rows, n_columns) which row contains which algebraic variable or expression
    """
    barred, n = _undifferentiable(posed), posed.n_states
    hidden = [n + i for i, name in enumerate(posed.states) if name not in posed.data_names]
    by_column, of_hidden = algebraic.tocsc(), posed.pattern[:, hidden]
    result = set[int]()
    for first in (k for k, name in enumerate(names) if name in posed.data_names):
        open_, seen, chosen = {first}, set[int](), set[int]()
        while open_:
            column = open_.pop()
            seen.add(column)
            for i in {int(i) for i in by_column[:, [column]].indices} - barred - chosen:
                chosen.add(i)
                open_ |= {int(j) for j in algebraic[[i]].indices} - seen
        if of_hidden[sorted(chosen)].nnz:
            result |= chosen
    return sorted(result)


def _undifferentiable(posed: PosedEquations) -> set[int]:
    """Rows with slopes, whose derivative is of second order, or with inputs, which may jump."""
    slopes = posed.pattern[:, : posed.n_states].tocoo().row
    inputs = incidence(posed.residual, posed.inputs).row
    once = [
        i
        for i, name in enumerate(posed.row_names[posed.n_equations :], posed.n_equations)
        if name.removeprefix("measured ") not in posed.data_names
    ]
    return {*slopes.tolist(), *inputs.tolist(), *once}
